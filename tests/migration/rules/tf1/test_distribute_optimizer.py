from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source, migrate_text

HEAD = "import tensorflow as tf\n"
NPU = "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"


def wrap_optimizer(source: str, **options: object) -> str:
    return migrate_text(HEAD + dedent(source), "distribute_optimizer", distributed=True, **options)


OPTIMIZER = "distribute_optimizer"


@pytest.mark.parametrize(
    "source",
    [
        "opt = tf.train.AdamOptimizer(1)\n",
        "opt = tf.train.AdamOptimizer(1)\nprint(opt, isinstance(opt, tf.train.Optimizer), opt.get_name())\n",
        "opt = tf.keras.optimizers.Adam(1)\nopt.minimize(loss)\n",
        "model.compile(optimizer=tf.train.AdamOptimizer(1), loss='mse')\n",
        "tf.contrib.opt.ScipyOptimizerInterface(loss).minimize(sess)\n",
        "class Optimizer:\n    def minimize(self, x): pass\nOptimizer().minimize(1)\nscheduler.minimize(2)\n",
        NPU + "opt = NPUDistributedOptimizer(tf.train.AdamOptimizer(1))\nopt.minimize(loss)\n",
        NPU + "opt = tf.train.AdamOptimizer(1)\nnpu = NPUDistributedOptimizer(opt)\nnpu.minimize(loss)\n",
        "from npu_bridge.npu_init import *\nopt = npu_tf_optimizer(tf.train.AdamOptimizer(1))\nopt.minimize(loss)\n",
        "import horovod.tensorflow as hvd\nopt = hvd.DistributedOptimizer(tf.train.AdamOptimizer(1))\n"
        "opt.minimize(l)\n",
    ],
)
def test_what_does_not_train_and_what_is_wrapped_stay(source: str) -> None:
    if source.startswith("class Optimizer"):
        result = migrate_source(HEAD + source, "distribute_optimizer", distributed=True)
        assert not result.changed
    else:
        check_noop("distribute_optimizer", HEAD + source, distributed=True)


def test_it_is_wrapped_after_its_construction() -> None:
    before = (
        "import tensorflow.compat.v1 as tf1\ndef f():\n\topt = tf1.train.MomentumOptimizer(\n"
        "\t\t0.1, 0.9)  # sgd\n\tgvs = opt.compute_gradients(l)\n"
    )
    later = before.replace("  # sgd\n", "  # sgd\n\topt = NPUDistributedOptimizer(opt)\n").replace(
        "tf1\n", "tf1\n" + NPU, 1
    )
    check_rewrite("distribute_optimizer", before, later, distributed=True)


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (
            "t = tf.train.AdamOptimizer(1).minimize(l)\n",
            "t = NPUDistributedOptimizer(tf.train.AdamOptimizer(1)).minimize(l)\n",
        ),
        (
            "def f():\n    return tf.train.AdamOptimizer(1)\n",
            "def f():\n    return NPUDistributedOptimizer(tf.train.AdamOptimizer(1))\n",
        ),
        (
            "def f():\n    o = tf.train.AdamOptimizer(1)\n    return o, 2\n",
            "def f():\n    o = tf.train.AdamOptimizer(1)\n    o = NPUDistributedOptimizer(o)\n    return o, 2\n",
        ),
        (
            "o = tf.train.AdamOptimizer(1) if a else tf.contrib.opt.LARSOptimizer(1)\no.minimize(l)\n",
            "o = tf.train.AdamOptimizer(1) if a else tf.contrib.opt.LARSOptimizer(1)\n"
            "o = NPUDistributedOptimizer(o)\no.minimize(l)\n",
        ),
        (
            "class M:\n    def __init__(self):\n        self.o = tf.train.AdamOptimizer(1)\n"
            "    def step(self):\n        return self.o.minimize(l)\n",
            "class M:\n    def __init__(self):\n        self.o = tf.train.AdamOptimizer(1)\n"
            "        self.o = NPUDistributedOptimizer(self.o)\n    def step(self):\n"
            "        return self.o.minimize(l)\n",
        ),
        (
            "op = tf.contrib.layers.optimize_loss(l, s, optimizer=lambda r: tf.train.AdamOptimizer(r))\n",
            "op = tf.contrib.layers.optimize_loss(l, s, optimizer=lambda r: "
            "NPUDistributedOptimizer(tf.train.AdamOptimizer(r)))\n",
        ),
        (
            "o = tf.train.AdamOptimizer(1)\nop = tf.contrib.slim.learning.create_train_op(l, o)\n",
            "o = tf.train.AdamOptimizer(1)\no = NPUDistributedOptimizer(o)\n"
            "op = tf.contrib.slim.learning.create_train_op(l, o)\n",
        ),
        (
            "def step(opt):\n    return opt.minimize(l)\nstep(tf.train.AdamOptimizer(1))\n",
            "def step(opt):\n    return opt.minimize(l)\nstep(NPUDistributedOptimizer(tf.train.AdamOptimizer(1)))\n",
        ),
    ],
)
def test_every_way_to_train_leads_to_a_wrapper(before: str, later: str) -> None:
    assert wrap_optimizer(before) == HEAD + NPU + later


def test_one_line_after_an_if_wraps_all_branches() -> None:
    before = (
        "def f():\n"
        "  if lars:\n"
        "    opt = tf.contrib.opt.LARSOptimizer(1)\n"
        "  elif adam:\n"
        "    opt = tf.train.AdamOptimizer(1)\n"
        "  else:\n"
        "    raise ValueError(adam)\n"
        "  return opt.minimize(l)\n"
    )
    later = before.replace("  return opt", "  opt = NPUDistributedOptimizer(opt)\n  return opt")
    assert wrap_optimizer(before) == HEAD + NPU + later


def test_without_an_else_each_optimizer_is_wrapped_at_its_creation() -> None:
    before = (
        "opt = tf.train.AdamOptimizer(1)\nif sgd:\n    opt = tf.train.GradientDescentOptimizer(1)\nopt.minimize(l)\n"
    )
    later = (
        "opt = tf.train.AdamOptimizer(1)\nopt = NPUDistributedOptimizer(opt)\nif sgd:\n"
        "    opt = tf.train.GradientDescentOptimizer(1)\n    opt = NPUDistributedOptimizer(opt)\nopt.minimize(l)\n"
    )
    assert wrap_optimizer(before) == HEAD + NPU + later


def test_an_optimizer_used_in_its_branch_is_wrapped_there() -> None:
    before = (
        "if a:\n    o = tf.train.AdamOptimizer(1)\n    t = o.minimize(l)\nelse:\n"
        "    o = tf.train.FtrlOptimizer(1)\n    t = o.minimize(l)\n"
    )
    text = wrap_optimizer(before)
    assert text.count("    o = NPUDistributedOptimizer(o)\n    t = o.minimize(l)\n") == 2


def test_what_is_wrapped_by_a_caller_is_not_wrapped_twice() -> None:
    others = {
        "main.py": "import horovod.tensorflow as hvd\nfrom script import make\nopt = hvd.DistributedOptimizer(make())\n"
    }
    source = HEAD + "def make():\n    return tf.train.AdamOptimizer(1)\n"
    check_says("distribute_optimizer", source, "manual", "once", others=others, distributed=True)


@pytest.mark.parametrize("use", ["table = {'adam': %s}", "train(%s)", "a, b = %s, 1"])
def test_an_optimizer_of_unknown_use_needs_manual_review(use: str) -> None:
    check_says(
        "distribute_optimizer", HEAD + use % "tf.train.AdamOptimizer(1)" + "\n", "manual", "once", distributed=True
    )


def test_wrapper_style_and_loss_scale_optimizers_are_handled() -> None:
    text = wrap_optimizer("o = tf.train.AdamOptimizer(1)\no.minimize(l)\n", style="wrapper")
    assert "o = npu_distributed_optimizer_wrapper(o)\n" in text
    source = (
        "from npu_bridge.npu_init import *\no = NPULossScaleOptimizer(tf.train.AdamOptimizer(1), m)\no.minimize(l)\n"
    )
    text = wrap_optimizer(source)
    assert (
        "o = NPULossScaleOptimizer(NPUDistributedOptimizer(tf.train.AdamOptimizer(1)), m, is_distributed=True)" in text
    )


@pytest.mark.parametrize(
    "source",
    [
        "opt = {'adam': tf.train.AdamOptimizer}[name](0.1)\nopt.minimize(loss)\n",
        "opt = getattr(tf.train, name)(0.1)\nopt.apply_gradients(g)\n",
        "def f(kind=tf.train.AdamOptimizer):\n    kind(0.1).minimize(loss)\n",
        "def f(opt):\n    opt.minimize(loss)\n",
        "W = tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.AdamOptimizer)\nW(0.1).minimize(loss)\n",
        "class A:\n    def f(self):\n        self.opt.minimize(loss)\n",
        "from elsewhere import make\nopt = make(0.1)\nopt.minimize(loss)\n",
    ],
)
def test_an_optimizer_of_unknown_origin_is_reported_where_it_trains(source: str) -> None:
    result = check_says(OPTIMIZER, HEAD + source, "manual", "does not show", distributed=True)
    assert {finding.risk for finding in result.findings} == {"high"}


@pytest.mark.parametrize("optimizer", ["'Adam'", "tf.train.AdamOptimizer"])
def test_an_optimizer_that_optimize_loss_creates_needs_review(optimizer: str) -> None:
    source = f"tf.contrib.layers.optimize_loss(loss, None, 0.1, optimizer={optimizer})\n"
    check_says(OPTIMIZER, HEAD + source, "manual", "creates the optimizer", distributed=True)


@pytest.mark.parametrize(
    "source",
    [
        "if a:\n    opt = tf.train.AdamOptimizer(1)\nelse:\n    opt = tf.train.AdagradOptimizer(1)\nopt.minimize(x)\n",
        "def f(opt):\n    opt.minimize(loss)\nf(tf.train.AdamOptimizer(1))\n",
        "class A:\n    def f(self):\n        self.o = tf.train.AdamOptimizer(1)\n        self.o.minimize(loss)\n",
        "def make():\n    return tf.train.AdamOptimizer(1)\nmake().minimize(loss)\n",
    ],
)
def test_what_is_wrapped_needs_no_manual_review(source: str) -> None:
    result = migrate_source(HEAD + source, OPTIMIZER, distributed=True)
    assert "NPUDistributedOptimizer(" in result.after.decode()
    assert not [finding for finding in result.findings if finding.status == "manual"]


def test_nothing_is_wrapped_on_one_device() -> None:
    text = migrate_text(HEAD + "opt = tf.train.AdamOptimizer(1)\ntrain = opt.minimize(loss)\n")
    assert "NPUDistributedOptimizer" not in text
