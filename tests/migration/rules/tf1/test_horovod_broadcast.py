from __future__ import annotations

import pytest

from migration.checking import check_rewrite, migrate_text

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"
KERAS = "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\n"


def test_the_hook_of_a_session_is_replaced() -> None:
    source = HEAD + (
        "def f():\n    hook = hvd.BroadcastGlobalVariablesHook(root_rank=1, device='/gpu:0')\n"
        "    return tf.train.MonitoredTrainingSession(hooks=[hook])\n"
    )
    text = migrate_text(source, "horovod_broadcast", distributed=True)
    assert "hook = NPUBroadcastGlobalVariablesHook(1, get_rank_id())" in text


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("h = [hvd.BroadcastGlobalVariablesHook(0)]\n", "h = []\n"),
        ("h = [a, hvd.BroadcastGlobalVariablesHook(0), b]\n", "h = [a, b]\n"),
        ("h = [a, hvd.BroadcastGlobalVariablesHook(0)]\n", "h = [a]\n"),
        ("h.append(hvd.BroadcastGlobalVariablesHook(0))\nx = 1\n", "x = 1\n"),
    ],
)
def test_an_estimator_needs_no_hook(before: str, later: str) -> None:
    head = HEAD + "e = tf.estimator.Estimator(f)\n"
    check_rewrite("horovod_broadcast", head + before, head + later)


def test_a_hook_outside_a_list_becomes_an_empty_hook() -> None:
    head = HEAD + "e = tf.estimator.Estimator(f)\n"
    text = migrate_text(head + "h = hvd.BroadcastGlobalVariablesHook(0)\np = (h, a)\n", "horovod_broadcast")
    assert "h = NpuEmptyHook()\n" in text


def test_the_estimator_may_live_in_another_file() -> None:
    main = "import tensorflow as tf\ne = tf.estimator.Estimator(f)\n"
    source = HEAD + "h = [hvd.BroadcastGlobalVariablesHook(0)]\n"
    text = migrate_text(source, "horovod_broadcast", others={"main.py": f"import script\n{main}"})
    assert "h = []\n" in text
    other_program = migrate_text(source, "horovod_broadcast", others={"main.py": main})
    assert "h = [NPUBroadcastGlobalVariablesHook(0, " in other_program


def test_the_callback_keeps_its_root() -> None:
    source = KERAS + "c = [hvd.callbacks.BroadcastGlobalVariablesCallback(2)]\n"
    assert "c = [NPUBroadcastGlobalVariablesCallback(root_rank=2)]" in migrate_text(source, "horovod_broadcast")


def test_the_operation_assigns_each_variable() -> None:
    text = migrate_text(HEAD + "sess.run(hvd.broadcast_global_variables(0))\n", "horovod_broadcast")
    assert (
        "sess.run(tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()]))" in text
    )
    text = migrate_text(HEAD + "op = hvd.broadcast_variables(mine, root_rank=0)\n", "horovod_broadcast")
    assert "op = tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in mine])" in text
