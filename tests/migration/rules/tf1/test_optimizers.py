"""TensorFlow's optimizers and the calls that use one."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_noop, check_says, migrate_text

HEAD = "import tensorflow as tf\n"


def wrap_optimizer(source: str, **options: object) -> str:
    return migrate_text(HEAD + dedent(source), "distribute_optimizer", distributed=True, **options)


OPTIMIZER = "distribute_optimizer"


def test_of_an_optimizer_within_another_the_inner_one_is_wrapped() -> None:
    text = wrap_optimizer(
        "o = tf.train.AdamOptimizer(1)\no = tf.contrib.opt.MovingAverageOptimizer(o)\no.minimize(l)\n"
    )
    assert "o = tf.train.AdamOptimizer(1)\no = NPUDistributedOptimizer(o)\no = tf.contrib.opt.Moving" in text
    assert text.count("NPUDistributedOptimizer(") == 1


def test_a_class_of_the_project_that_derives_from_an_optimizer() -> None:
    others = {"optim.py": HEAD + "class Lamb(tf.train.Optimizer):\n    pass\n"}
    source = "import tensorflow as tf\nimport optim\no = optim.Lamb(1)\no.apply_gradients(g)\n"
    text = migrate_text(source, "distribute_optimizer", others=others, distributed=True)
    assert "o = optim.Lamb(1)\no = NPUDistributedOptimizer(o)\n" in text


def test_a_class_that_is_an_optimizer_by_name_only_needs_review() -> None:
    source = HEAD + "import other\no = other.MyOptimizer(1)\no.minimize(l)\n"
    check_says("distribute_optimizer", source, "manual", "does not show", distributed=True)


@pytest.mark.parametrize(
    "source",
    [
        "from scipy import optimize\noptimize.minimize(f, x)\n",
        "def f(opt):\n    g = tf.gradients(loss, v)\n    opt.apply_gradients(zip(g, v))\n",
        "class A(tf.train.Optimizer):\n    def apply_gradients(self, g):\n        return self.o.apply_gradients(g)\n",
        "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"
        "opt = NPUDistributedOptimizer(getattr(tf.train, name)(0.1))\nopt.minimize(loss)\n",
    ],
)
def test_what_is_no_optimizer_or_is_wrapped_is_not_mentioned(source: str) -> None:
    check_noop(OPTIMIZER, HEAD + source, distributed=True)
