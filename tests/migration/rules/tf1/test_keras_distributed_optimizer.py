from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

RULE = "keras_distributed_optimizer"
HEAD = "import tensorflow as tf\nmodel = tf.keras.Sequential()\n"
IMPORT = "from npu_bridge.estimator.npu.npu_optimizer import npu_distributed_optimizer_wrapper\n"


@pytest.mark.parametrize(
    "body",
    [
        "import re\nre.compile(optimizer='a', loss='b')\n",
        "pattern.compile('sgd')\n",
        "from npu_bridge.npu_init import *\nmodel.compile(npu_keras_optimizer(opt))\n",
        "from npu_bridge.npu_init import *\nopt = KerasDistributeOptimizer(opt)\nmodel.compile(optimizer=opt)\n",
        "import horovod.keras as hvd\nopt = hvd.DistributedOptimizer(opt)\nmodel.compile(optimizer=opt)\n",
    ],
)
def test_other_compiles_and_wrapped_optimizers_are_left_alone(body: str) -> None:
    check_noop(RULE, HEAD + body, distributed=True)


def test_without_distributed_nothing_is_wrapped() -> None:
    assert IMPORT.encode() not in migrate_source(HEAD + "model.compile('sgd')\nmodel.fit(x)\n").after


def test_unknown_receivers_need_manual_review() -> None:
    check_says(
        RULE, HEAD + "def f(m):\n    m.compile(optimizer='sgd', loss='mse')\n", "manual", "wrap", distributed=True
    )


def test_positional_and_keyword_optimizers_are_wrapped() -> None:
    for before, after in (
        ("model.compile('sgd', 'mse')\n", "model.compile(npu_distributed_optimizer_wrapper('sgd'), 'mse')\n"),
        (
            "model.compile(loss='mse', optimizer=tf.keras.optimizers.SGD(\n    0.1))  # slow\n",
            "model.compile(loss='mse', optimizer=npu_distributed_optimizer_wrapper("
            "tf.keras.optimizers.SGD(\n    0.1)))  # slow\n",
        ),
    ):
        expected = HEAD.replace("as tf\n", "as tf\n" + IMPORT) + after
        check_rewrite(RULE, HEAD + before, expected, distributed=True)


def test_a_name_of_an_optimizer_of_standalone_keras_needs_review() -> None:
    text = "from keras.models import Sequential\nm = Sequential()\nm.compile('sgd', 'mse')\n"
    check_says(RULE, text, "manual", "wrapped", distributed=True)
