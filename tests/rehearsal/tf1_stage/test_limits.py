"""Limits that a TensorFlow 1 script meets are reported at its line; a correct script meets none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.tf1_scripts import line_of, needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow

MISTAKES = """
import json, os
import numpy as np
import tensorflow as tf
from hccl.manage.api import get_rank_size
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator
from npu_bridge.hccl import hccl_ops
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

size = get_rank_size()  # rank-before-init
dataset = tf.data.Dataset.from_tensor_slices(np.ones([10, 3], np.float32))
dataset = dataset.repeat().batch(4)  # drop-remainder
merged = tf.data.Dataset.range(4).apply(tf.data.experimental.map_and_batch(lambda x: x, 2))  # map-and-batch
padded = tf.data.Dataset.range(4).padded_batch(2, [], drop_remainder=False)  # padded
fine = tf.data.Dataset.range(4).batch(2, True)
features = dataset.make_one_shot_iterator().get_next()  # static-shapes
with tf.device("/device:GPU:0"):  # gpu-device
    w = tf.get_variable("w", [3, 1], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.matmul(features, w))
double = tf.matmul(tf.cast(features, tf.float64), tf.cast(w, tf.float64))  # float64
fed = tf.placeholder(tf.float32, [None, 3])
loss += tf.reduce_sum(fed) + tf.cast(tf.reduce_sum(double), tf.float32)
try:
    hccl_ops.allreduce(loss, "mean")  # reduction-name
except ValueError:
    pass
step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())

def npu(remapping=RewriterConfig.OFF):
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.remapping = remapping
    op = config.graph_options.rewrite_options.custom_optimizers.add()
    op.name = "NpuOptimizer"
    op.parameter_map["use_off_line"].b = True
    return config, op.parameter_map

def run(sess, rows=2):
    sess.run(tf.global_variables_initializer())
    sess.run(step, {fed: np.ones([rows, 3]).tolist()})

with tf.Session(config=npu()[0]) as sess:
    run(sess)
    run(sess, 5)  # fed
with tf.Session() as sess:  # npu-optimizer
    run(sess)
with tf.Session(config=npu(RewriterConfig.DEFAULT)[0]) as sess:  # remapping
    pass
config, options = npu()
config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
config.graph_options.rewrite_options.disable_model_pruning = True
with tf.Session(config=config) as sess:  # rewrite-options
    pass
config, options = npu()
options["jit_compile"].b = True
options["sump_mode"].s = b"all"
options["precision_mode"].s = b"allow_mixed_precision"
options["enable_dump"].b = True
with tf.Session(config=config) as sess:  # parameter-map
    pass
left = tf.Session(config=npu()[0])  # session-not-closed
left.run(tf.global_variables_initializer())

for arguments in ({"model_dir": "m", "device_fn": None}, {"train_distribute": None}):
    try:
        NPURunConfig(**arguments)  # run-config
    except TypeError as error:
        print("TypeError", error)
try:
    NPUEstimator(lambda features: None, config=tf.estimator.RunConfig("m"))  # config-class
except ValueError as error:
    print(error)
estimator = NPUEstimator(lambda features: None, config=NPURunConfig(4, model_dir="m", save_checkpoints_steps=8))
try:
    estimator.train(lambda: fine, steps=10)  # step-multiples
except ValueError:
    pass
try:
    estimator.train(lambda: fine, hooks=[tf.train.LoggingTensorHook(["x"], every_n_iter=6)], steps=12)  # hook
except ValueError:
    pass
del os.environ["JOB_ID"]
NPUEstimator(lambda features: None, config=NPURunConfig(model_dir="m"))  # job-id
tf.enable_eager_execution  # named, not called
"""

SINGLE = (
    *("rank-before-init", "drop-remainder", "gpu-device", "float64", "reduction-name", "static-shapes", "remapping"),
    *("npu-optimizer", "parameter-map", "session-not-closed", "run-config", "config-class", "step-multiples", "job-id"),
    "rewrite-options",
)


def test_every_mistake_is_reported_at_its_line_and_nothing_else_is(tmp_path: Path) -> None:
    script = tmp_path / "mistakes.py"
    script.write_text(MISTAKES)
    answer = rehearse_script("npu", script, VIADUCT_LIMITS="warn")
    assert answer.code == 0, answer.stderr[-3000:]
    expected = {(name, line_of(script, name)) for name in SINGLE}
    others = {"map-and-batch": "drop-remainder", "padded": "drop-remainder", "hook": "step-multiples"}
    expected |= {(name, line_of(script, mark)) for mark, name in others.items()}
    expected |= {("static-shapes", inside(script, "sess.run(step"))}
    assert {(name, line) for name, line, _ in answer.met_limits} == expected
    assert "TypeError" in answer.stdout
    assert "`config` must be provided with type `NPUConfigs`" in answer.stdout
    for words in ("why:", "change:", "card:", "dataset = dataset.repeat().batch(4)"):
        assert words in answer.stderr


WIDE = """
import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *
x = tf.placeholder(tf.float64, [2, 3])
y = tf.cast(tf.reshape(x, [6]), tf.float32)  # carried to the card and made narrow there
{middle}
step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
with tf.Session(config=npu_config_proto()) as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(step, {{x: np.ones([2, 3])}})
"""

NARROW = "w = tf.get_variable('w', [6])"


@pytest.mark.parametrize(
    ("middle", "code", "message"),
    [
        (f"{NARROW}; loss = tf.reduce_sum(w * y)", 0, ""),
        (f"{NARROW}; loss = tf.cast(tf.reduce_sum(tf.exp(tf.cast(w, tf.float64))), tf.float32)", 0, "computes in"),
        ("w = tf.get_variable('w', [6], tf.float64); loss = tf.reduce_sum(w)", 1, "w (VariableV2) is float64"),
    ],
    ids=["narrow", "some_operator", "what_is_trained"],
)
def test_float64_weights_are_refused_operators_are_a_warning_and_feeds_are_allowed(
    middle: str, code: int, message: str, tmp_path: Path
) -> None:
    script = tmp_path / "wide.py"
    script.write_text(WIDE.format(middle=middle))
    answer = rehearse_script("npu", script)
    assert answer.code == code, answer.stderr[-3000:]
    assert [(name, line) for name, line, _ in answer.met_limits] == ([("float64", 7)] if message else []), answer.stderr
    assert message in answer.stderr


def inside(script: Path, words: str) -> int:
    return next(number for number, line in enumerate(script.read_text().splitlines(), 1) if words in line)
