from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

RULE = "keras_broadcast"
HEAD = "import tensorflow as tf\n"
IMPORT = "from npu_bridge.estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback\n"
MODEL = "model = tf.keras.Sequential()\n"
NEW = "NPUBroadcastGlobalVariablesCallback(0)"


@pytest.mark.parametrize(
    "body",
    [
        "from sklearn.svm import SVC\nSVC().fit(x, y)\n",
        "scaler.fit(x)\n",
        f"{IMPORT}model.fit(x, y, callbacks=[a, {NEW}])\n",
        f"{IMPORT}cbs = [{NEW}, a]\nmodel.fit(x, y, callbacks=cbs)\n",
        f"{IMPORT}cbs = []\ncbs.append({NEW})\nmodel.fit(x, y, callbacks=cbs)\n",
        "from npu_bridge.npu_init import *\nmodel.fit(x, y, callbacks=npu_callbacks_append([a]))\n",
        "import horovod.keras as hvd\nmodel.fit(x, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])\n",
    ],
)
def test_other_fits_and_present_callbacks_are_left_alone(body: str) -> None:
    check_noop(RULE, HEAD + MODEL + body, distributed=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fit(x, y)", f"fit(x, y, callbacks=[{NEW}])"),
        ("fit(x, y, callbacks=None)", f"fit(x, y, callbacks=[{NEW}])"),
        ("fit(x, y, callbacks=[])", f"fit(x, y, callbacks=[{NEW}])"),
        ("fit(x, y, callbacks=[a,  # one\n b])", f"fit(x, y, callbacks=[{NEW}, a,  # one\n b])"),
        ("fit(x, y, callbacks=(a,))", f"fit(x, y, callbacks=[{NEW}, a,])"),
        ("fit(x, y, 32, 3, 1, cbs)", f"fit(x, y, 32, 3, 1, [{NEW}] + list(cbs or []))"),
        ("fit_generator(g, 10, 3, 1, [a])", f"fit_generator(g, 10, 3, 1, [{NEW}, a])"),
        ("fit(x, callbacks=make(3))", f"fit(x, callbacks=[{NEW}] + list(make(3) or []))"),
    ],
)
def test_the_callback_is_inserted_first(before: str, after: str) -> None:
    check_rewrite(RULE, f"{HEAD}{MODEL}model.{before}\n", f"{HEAD}{IMPORT}{MODEL}model.{after}\n", distributed=True)


def test_a_list_by_name_is_added_to() -> None:
    body = "cbs = [a]\nmodel.fit(x, callbacks={})\n"
    after = HEAD + IMPORT + MODEL + body.format(f"[{NEW}] + cbs")
    check_rewrite(RULE, HEAD + MODEL + body.format("cbs"), after, distributed=True)


def test_train_on_batch_and_unknown_models_need_review() -> None:
    check_says(RULE, HEAD + MODEL + "model.train_on_batch(x, y)\n", "manual", "broadcast", distributed=True)
    check_says(RULE, HEAD + "def f(m):\n    m.fit(x, epochs=3)\n", "manual", "broadcast", distributed=True)
    check_says(RULE, HEAD + MODEL + "model.fit(x, **more)\n", "manual", "broadcast", distributed=True)
