"""TensorFlow 1 scripts run on the stage as they are, and the stand-in's parts compute what the real ones do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rehearsal.tf1_scripts import SOURCE, needs_tensorflow, rehearsed

pytestmark = needs_tensorflow

OLD = """
import json
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib import layers as contrib_layers, legacy_seq2seq, rnn, lookup
from tensorflow.contrib.framework import nest
from tensorflow.contrib.training import HParams
from tensorflow.contrib.seq2seq import sequence_loss
from tensorflow.contrib.framework.python.ops import arg_scope as scopes
from tensorflow.contrib.layers.python.layers import initializers
from tensorflow.keras.layers import Dense
from tensorflow.python.ops import array_ops
from tensorflow.train import AdamOptimizer
import tensorflow.compat.v1 as same
import numpy as np
from absl import flags
import os

said = {}
said["one"] = same is tf and tf.compat.v1.Session is tf.Session
said["version"] = tf.__version__
said["aliases"] = [np.zeros(1, np.bool).dtype.name, np.zeros(1, np.float).dtype.name]
said["TF_CONFIG"] = os.environ.get("TF_CONFIG")
flags.DEFINE_enum("colour", "red", "red|green", "a choice")

with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(0.5),
                    normalizer_fn=slim.batch_norm, normalizer_params={"scale": True, "is_training": True}):
    with tf.device("/gpu:0"):
        x = tf.placeholder(tf.float32, [2, 8, 8, 3])
        y = slim.repeat(x, 2, slim.conv2d, 4, [3, 3], scope="body")
        y = slim.max_pool2d(y, [2, 2], scope="pool")
        y = slim.flatten(slim.dropout(y, 0.9, is_training=False))
        y = slim.fully_connected(y, 5, activation_fn=None, normalizer_fn=None, scope="logits")
said["analyzed"] = slim.model_analyzer.analyze_vars(tf.global_variables()[:1], print_info=True)
said["variables"] = sorted(v.op.name for v in tf.global_variables())
said["shape"] = y.shape.as_list()
said["updates"] = len(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
inner = contrib_layers.batch_norm(tf.ones([2, 3]), is_training=True, updates_collections=None, scope="inner")
contrib_layers.batch_norm(tf.ones([2, 3]), is_training=True, updates_collections="mine", scope="mine")
said["updates_elsewhere"] = [len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)), len(tf.get_collection("mine"))]
said["penalties"] = len(tf.losses.get_regularization_losses())
total = tf.losses.get_total_loss(add_regularization_losses=True)
train = slim.learning.create_train_op(total + tf.reduce_mean(y), tf.train.GradientDescentOptimizer(0.1))

table = lookup.index_table_from_tensor(["a", "b"], default_value=-7)
found = table.lookup(tf.constant(["b", "z"]))
loss = sequence_loss(tf.zeros([1, 2, 4]), tf.constant([[0, 1]]), tf.constant([[1.0, 0.0]]))
cell = rnn.BasicLSTMCell(3)
outputs, _ = legacy_seq2seq.rnn_decoder([tf.ones([2, 3])] * 4, cell.zero_state(2, tf.float32), cell, scope="decoder")
said["decoder"] = [len(outputs), sum(v.op.name.startswith("decoder/") for v in tf.trainable_variables())]
steps = [tf.zeros([2, 4])] * 3, [tf.constant([0, 1])] * 3, [tf.constant([1.0, 0.5])] * 3
legacy = [legacy_seq2seq.sequence_loss_by_example(*steps), legacy_seq2seq.sequence_loss(*steps)]
h = HParams(rate=0.1, layers=[1, 2], wide=False).parse("rate=0.5,layers=[3,4],wide=true")
said["hparams"] = h.values()
try:
    tf.contrib.quantize
except AttributeError as error:
    said["missing"] = str(error)
try:
    import tensorflow.contrib.ffmpeg
except ImportError as error:
    said["missing_import"] = str(error)
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
    for _ in range(3):
        sess.run(train, {x: np.ones([2, 8, 8, 3])})
    said["lookup"] = sess.run(found).tolist()
    said["sequence_loss"] = float(sess.run(loss))
    said["legacy"] = [np.asarray(value).tolist() for value in sess.run(legacy)]
print(json.dumps(said))
"""


def test_an_old_script_finds_the_world_it_was_written_for(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text(OLD)
    answer = rehearsed("original", script, TF_CONFIG='{"cluster": {"ps": ["x:1"]}}')
    assert answer.code == 0, answer.talk[-3000:]
    said = answer.said()
    assert said["one"]
    assert said["version"] == "1.15.0"
    assert said["aliases"] == ["bool", "float64"]
    assert said["TF_CONFIG"] is None
    body = [f"body/body_{n}/{name}" for n in (1, 2) for name in ("weights", *(f"BatchNorm/{part}" for part in PARTS))]
    assert said["variables"] == sorted([*body, "logits/weights", "logits/biases"])
    assert said["shape"] == [2, 5]
    assert (said["updates"], said["penalties"]) == (4, 3)
    assert said["updates_elsewhere"] == [4, 2]
    assert said["lookup"] == [1, -7]
    assert said["sequence_loss"] == pytest.approx(np.log(4))
    assert said["decoder"] == [4, 2]
    assert said["analyzed"] == [108, 432]
    assert "Total size of variables: 108" in answer.out
    assert said["legacy"][0] == pytest.approx([np.log(4)] * 2)
    assert said["legacy"][1] == pytest.approx(np.log(4))
    assert said["hparams"] == {"rate": 0.5, "layers": [3, 4], "wide": True}
    for message in (said["missing"], said["missing_import"]):
        assert "tensorflow.contrib." in message
        assert "slim" in message
    assert len(answer.losses) == 3
    assert len(answer.gradients) == 8
    assert answer.hits == []


PARTS = ("beta", "gamma", "moving_mean", "moving_variance")

NPU = """
import json, os
import numpy as np
import tensorflow as tf
from npu_bridge.estimator import npu_ops, npu_aicore_ops
from npu_bridge.estimator.npu_unary_ops import npu_unary_ops
from npu_bridge.estimator.npu import npu_scope, util, npu_plugin
from npu_bridge.estimator.npu.npu_config import *
from npu_bridge.estimator.npu.npu_dynamic_rnn import DynamicRNN, DynamicGRUV2
from npu_bridge.estimator.npu.npu_loss_scale_manager import ExponentialUpdateLossScaleManager, FixedLossScaleManager
from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer
from npu_bridge.estimator.npu.npu_optimizer import *
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator, NPUEstimatorSpec
from npu_bridge.hccl import hccl_ops
from hccl.manage.api import get_rank_size, get_rank_id
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

said = {}
def refused(name, call):
    try:
        call()
        said[name] = None
    except Exception as error:
        said[name] = type(error).__name__ + ": " + str(error)

def config():
    config = tf.ConfigProto()
    op = config.graph_options.rewrite_options.custom_optimizers.add()
    op.name = "NpuOptimizer"
    op.parameter_map["use_off_line"].b = True
    config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    return config

x = tf.constant(np.linspace(-3, 3, 12).reshape(3, 4), tf.float32)
refused("dropout int", lambda: npu_ops.dropout(tf.constant([1]), 0.5))
refused("dropout 0", lambda: npu_ops.dropout(x, 0.0))
said["dropout 1"] = npu_ops.dropout(x, 1.0) is x
refused("broadcast", lambda: hccl_ops.broadcast(x, 0))
refused("loops", lambda: NPURunConfig(iterations_per_loop=0))
refused("mixed", lambda: NPURunConfig(iterations_per_loop=2, mix_compile_mode=True))
refused("jit", lambda: NPURunConfig(jit_compile=True))
refused("mode", lambda: NPURunConfig(graph_run_mode=2))
refused("dump class", lambda: NPURunConfig(dump_config={}))
refused("host call", lambda: NPUEstimatorSpec("train", loss=x, train_op=tf.no_op(), host_call=(len, [x, x])))
refused("no manager", lambda: NPUOptimizer(tf.train.AdamOptimizer(), is_loss_scale=True))
refused("small scale", lambda: FixedLossScaleManager(0.5))
refused("train op", lambda: util.set_iteration_per_loop(None, x, 2))
configs = NPURunConfig(), NPURunConfig(save_checkpoints_secs=5)
said["checkpoints"] = [one.save_checkpoints_steps for one in configs]
with npu_scope.without_npu_compile_scope():
    said["mark"] = tf.identity(x).op.get_attr("_without_npu_compile")
weights, gradients = tf.constant([3.0, 4.0]), tf.constant([0.6, 0.8])
values = {"gelu": npu_unary_ops.gelu(x), "lars": npu_ops.LARS([weights], [gradients], 0.1, 0.001, 0.0)[0],
          "dropped": npu_ops.dropout(tf.ones([4000]), 0.25), "centred": npu_aicore_ops.centralization(x)}

sequence = tf.constant(np.random.RandomState(0).randn(5, 2, 3), tf.float32)
layer = DynamicRNN(4, tf.float32, forget_bias=1.0)
out = layer(sequence, seq_length=tf.constant([5, 3]))
kernel, bias = layer.trainable_variables
with tf.variable_scope("check"):
    cell = tf.nn.rnn_cell.BasicLSTMCell(4)
    expected, last = tf.nn.dynamic_rnn(cell, sequence, tf.constant([5, 3]), dtype=tf.float32, time_major=True)
copies = tf.group(cell.variables[0].assign(kernel), cell.variables[1].assign(bias))
values["rnn"], values["rnn_h"], values["rnn_c"] = out[0], out[1][-1], out[2][-1]
values["rnn_expected"], values["rnn_last_h"], values["rnn_last_c"] = expected, last.h, last.c
said["rnn_outputs"] = len(out)

w = tf.Variable(1.0)
data = tf.placeholder(tf.float32, [])
manager = ExponentialUpdateLossScaleManager(2.0 ** 4, incr_every_n_steps=2, decr_every_n_nan_or_inf=2)
optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.25), manager)
step = optimizer.minimize(w * data, tf.train.get_or_create_global_step())
said["forwarded"] = optimizer._learning_rate
history = []
with tf.Session(config=config()) as sess:
    said["rank"] = [get_rank_size(), get_rank_id()] if sess.run(npu_ops.initialize_system()) is None else None
    sess.run(tf.global_variables_initializer())
    sess.run(copies)
    for value in (1.0, float("inf"), float("nan"), 2.0, 2.0, 4.0):
        sess.run(step, {data: value})
        history.append([float(v) for v in sess.run([w, manager.get_loss_scale(), tf.train.get_global_step()])])
    said["history"] = history
    said.update({name: np.asarray(value).tolist() for name, value in sess.run(values).items()})

    # ---- a loop on the device
    counter = tf.Variable(0, trainable=False)
    v = tf.Variable(10.0)
    once = tf.train.GradientDescentOptimizer(1.0).minimize(v, global_step=tf.train.get_global_step())
    loop = util.set_iteration_per_loop(sess, once, 5)
    sess.run(tf.variables_initializer([counter, v]))
    sess.run(loop)
    said["looped"] = float(sess.run(v))
    sess.run(once)
    said["once"] = float(sess.run(v))
print(json.dumps(said))
"""


def test_the_stand_in_checks_and_computes_as_the_adapter(tmp_path: Path) -> None:
    script = tmp_path / "npu.py"
    script.write_text(NPU)
    answer = rehearsed("npu", script)
    assert answer.code == 0, answer.talk[-3000:]
    said = answer.said()
    check_refusals(said)
    assert said["dropout 1"]
    assert said["checkpoints"] == [100, None]
    assert said["mark"] is True
    assert said["rank"] == [1, 0]
    x = np.linspace(-3, 3, 12).reshape(3, 4)
    gelu = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    assert np.allclose(said["gelu"], gelu, atol=1e-6)
    ratio = 0.001 * 5.0 / (1.0 + 0.1 * 5.0)
    assert np.allclose(said["lars"], ratio * (np.array([0.6, 0.8]) + 0.1 * np.array([3.0, 4.0])))
    dropped = np.array(said["dropped"])
    assert set(np.unique(dropped)) == {0.0, 4.0}
    assert 0.2 < (dropped > 0).mean() < 0.3
    assert np.allclose(np.mean(said["centred"], axis=-1), 0, atol=1e-6)
    assert said["rnn_outputs"] == 8
    for mine, theirs in (("rnn", "rnn_expected"), ("rnn_h", "rnn_last_h"), ("rnn_c", "rnn_last_c")):
        assert np.allclose(said[mine], said[theirs], atol=1e-6), mine
    # Good, two bad (skipped; the scale falls to 0.8 of it), two good (it doubles), good.
    assert said["history"] == [
        [pytest.approx(expected) for expected in row]
        for row in ([0.75, 16, 1], [0.75, 16, 1], [0.75, 12.8, 1], [0.25, 12.8, 2], [-0.25, 25.6, 3], [-1.25, 25.6, 4])
    ]
    assert (said["looped"], said["once"]) == (5.0, 4.0)
    assert len(answer.losses) == 6 + 5 + 1, "a loop of five is five steps, and a skipped step is one too"
    assert answer.hits == []


def check_refusals(said: dict[str, Any]) -> None:
    wanted = {
        "dropout int": "floating point tensor",
        "dropout 0": "range (0, 1]",
        "broadcast": "Expected list",
        "loops": "iterations_per_loop must be",
        "mixed": '"iterations_per_loop" must be 1',
        "jit": '"jit_compile" type must be str',
        "mode": '"graph_run_mode" value must be 0 or 1',
        "dump class": "`DumpConfig`",
        "host call": "length of tensors does not match",
        "no manager": "loss_scale_manager can not be None",
        "small scale": "at least 1",
        "train op": "instance of tf.Operation",
    }
    assert {name: words in str(said[name]) for name, words in wanted.items()} == dict.fromkeys(wanted, True)


def test_without_tensorflow_the_pip_line_is_said() -> None:
    code = (
        "import importlib.util, sys; plain = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'tensorflow' else plain(name, *a)\n"
        "from viaduct.rehearsal import tf1_stage\n"
        "from viaduct.rehearsal.tf1_stage import collectives, golden, options, state\n"
        "from viaduct.extras import MissingExtra\n"
        "try: tf1_stage.install('npu')\n"
        "except MissingExtra as error: print(error)\n"
        "assert 'tensorflow' not in sys.modules and not tf1_stage.state.on"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}, timeout=600
    )
    assert answer.returncode == 0, answer.stderr
    assert "pip install 'viaduct[tf]'" in answer.stdout
