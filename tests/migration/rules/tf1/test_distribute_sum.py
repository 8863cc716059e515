"""`--reduction sum`: gradients are summed where the code shows their optimizer; others are reported."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source
from viaduct.errors import BadValue
from viaduct.migration.checks import check_options
from viaduct.migration.options import Options
from viaduct.migration.requirements import REQUIREMENTS_BY_NAME

HEAD = "import tensorflow as tf\n"
HCCL = "from npu_bridge.hccl import hccl_ops\n"
SUM = '[(g if g is None else hccl_ops.allreduce(g, "sum"), v) for g, v in {}]'


def migrate_all(source: str, **options: object) -> tuple[str, list[str]]:
    """Return the text after all rules, and the findings about optimizers that still average."""
    result = migrate_source(source, distributed=True, **options)
    averages = [finding.message for finding in result.findings if "averages gradients" in finding.message]
    return result.after.decode(), averages


def test_without_reduction_sum_gradients_are_averaged() -> None:
    text, averages = migrate_all(HEAD + "opt = tf.train.AdamOptimizer(1)\ntrain = opt.minimize(loss)\n")
    assert "NPUDistributedOptimizer(opt)" in text
    assert "hccl_ops.allreduce" not in text
    assert averages == []


@pytest.mark.parametrize(
    "source",
    [
        "from mine import opt\nopt.minimize(loss)\n",
        "class Optimizer:\n    def minimize(self, x): pass\nOptimizer().minimize(1)\n",
        "opt = tf.keras.optimizers.Adam(1)\nopt.minimize(loss)\n",
        "opt = tf.train.AdamOptimizer(1)\nopt.minimize(*args)\n",
        "opt = tf.train.AdamOptimizer(1)\ntrain = opt.minimize(loss) if training else None\n",
        "opt = tf.train.AdamOptimizer(1) if a else other()\nopt.minimize(loss)\n",
        HCCL + "opt = tf.train.AdamOptimizer(1)\ngvs = " + SUM.format("opt.compute_gradients(loss)") + "\n",
    ],
)
def test_unknown_objects_and_summed_gradients_stay(source: str) -> None:
    check_noop("distribute_sum", HEAD + source, distributed=True, reduction="sum")


@pytest.mark.parametrize(
    ("arguments", "computed", "applied"),
    [
        ("loss", "loss", ""),
        ("loss, step", "loss", ", global_step=step"),
        ("loss=a + b, global_step=step, name='t'", "a + b", ", global_step=step, name='t'"),
        ("loss, var_list=tvars, global_step=step", "loss, var_list=tvars", ", global_step=step"),
        ("loss, step, tvars, 1", "loss, var_list=tvars, gate_gradients=1", ", global_step=step"),
    ],
)
def test_minimize_becomes_compute_sum_and_apply(arguments: str, computed: str, applied: str) -> None:
    check_rewrite(
        "distribute_sum",
        HEAD + f"opt = tf.train.AdamOptimizer(1)\nwith deps:\n  train = opt.minimize({arguments})  # go\n",
        HEAD
        + HCCL
        + f"opt = tf.train.AdamOptimizer(1)\nwith deps:\n  grads = {SUM.format(f'opt.compute_gradients({computed})')}\n"
        f"  train = opt.apply_gradients(grads{applied})  # go\n",
        distributed=True,
        reduction="sum",
    )


def test_an_optimizer_without_a_variable_gets_one() -> None:
    text, averages = migrate_all(
        HEAD + "grads = 1\ntrain = tf.train.AdamOptimizer(\n    0.1).minimize(loss)\n", reduction="sum"
    )
    assert "optimizer = tf.train.AdamOptimizer(\n    0.1)\n" in text
    assert f"grads_2 = {SUM.format('optimizer.compute_gradients(loss)')}\n" in text
    assert "train = optimizer.apply_gradients(grads_2)\n" in text
    assert "NPUDistributedOptimizer" not in text
    assert averages == []


def test_gradients_are_summed_before_clipping() -> None:
    body = "opt = tf.train.AdamOptimizer(1)\ngvs = opt.compute_gradients(loss)\nopt.apply_gradients(clip(gvs))\n"
    text, averages = migrate_all(HEAD + body, reduction="sum")
    assert f"gvs = {SUM.format('opt.compute_gradients(loss)')}\n" in text
    assert "NPUDistributedOptimizer" not in text
    assert averages == []


def test_gradients_of_tf_gradients_are_summed_by_npu_allreduce() -> None:
    body = (
        "opt = tf.train.AdamOptimizer(1)\ntvars = tf.trainable_variables()\ngrads = tf.gradients(loss, tvars)\n"
        "train = opt.apply_gradients(zip(grads, tvars))\n"
    )
    text, averages = migrate_all(HEAD + body, reduction="sum")
    assert 'grads = npu_allreduce(tf.gradients(loss, tvars), "sum")\n' in text
    assert "NPUDistributedOptimizer" not in text
    assert averages == []


@pytest.mark.parametrize(
    "body",
    [
        "class M:\n  def f(self):\n    self.opt = tf.train.AdamOptimizer(1)\n    self.t = self.opt.minimize(loss)\n",
        "def f():\n    opt = tf.train.AdamOptimizer(1)\n    return opt\nt = f().minimize(loss)\n",
        "import horovod.tensorflow as h\nopt = h.DistributedOptimizer(tf.train.AdamOptimizer(1))\nopt.minimize(1)\n",
    ],
)
def test_an_optimizer_that_still_averages_is_reported(body: str) -> None:
    text, averages = migrate_all(HEAD + body, reduction="sum")
    assert "Distributed" in text
    assert averages
    assert "multiply the learning rate by the number of ranks" in averages[0]


def test_a_second_run_without_reduction_does_not_average_sums() -> None:
    once, _ = migrate_all(HEAD + "opt = tf.train.AdamOptimizer(1)\nt = opt.minimize(loss)\n", reduction="sum")
    again, _ = migrate_all(once)
    assert again == once


def test_an_optimizer_wrapped_before_is_reported() -> None:
    wrapped = "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"
    source = HEAD + wrapped + "opt = NPUDistributedOptimizer(tf.train.AdamOptimizer(1))\nopt.minimize(loss)\n"
    check_says("distribute_sum_left", source, "manual", "averages", distributed=True, reduction="sum")


def test_a_sum_on_one_device_is_refused() -> None:
    with pytest.raises(BadValue, match="--reduction sum without --distributed"):
        check_options(Options(reduction="sum"))


TRAIN = """
import numpy as np
import tensorflow as tf
x = tf.placeholder(tf.float32, [4, 3])
w = tf.get_variable("w", initializer=np.ones((3, 1), np.float32))
loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
opt = tf.train.GradientDescentOptimizer(0.01)
train = opt.minimize(loss)
init = tf.global_variables_initializer()
with tf.Session() as sess:
    sess.run(init)
    for step in range(3):
        sess.run([train, loss], {x: np.full((4, 3), 0.5, np.float32)})
    print("weight", sess.run(w)[0, 0])
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.parametrize(("reduction", "expected"), [("average", 0.985**3), ("sum", 0.97**3)])
def test_two_ranks_average_or_sum_in_a_rehearsal(reduction: str, expected: float, tmp_path: Path) -> None:
    """Every rank has the gradient 1.5 w: the weight shrinks by 1.5 % of the learning rate's step, or by twice that."""
    text, _ = migrate_all(TRAIN, reduction=reduction)
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "viaduct", "rehearse", "train.py", "--ranks", "2"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    weights = re.findall(r"weight ([\d.]+)", answer.stdout + answer.stderr)
    assert [float(weight) for weight in weights] == pytest.approx([expected] * 2, rel=1e-5), answer.stderr


def test_the_summary_does_not_call_a_sum_an_average() -> None:
    assert "average" not in REQUIREMENTS_BY_NAME["optimizers"].title
