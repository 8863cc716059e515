"""TensorFlow 1 scripts run on the stage as they are, and the stand-in's parts compute what the real ones do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rehearsal.tf1_scripts import SOURCE, needs_tensorflow, rehearse_script

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

values = {}
values["one"] = same is tf and tf.compat.v1.Session is tf.Session
values["version"] = tf.__version__
values["aliases"] = [np.zeros(1, np.bool).dtype.name, np.zeros(1, np.float).dtype.name]
values["TF_CONFIG"] = os.environ.get("TF_CONFIG")
flags.DEFINE_enum("colour", "red", "red|green", "a choice")

with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(0.5),
                    normalizer_fn=slim.batch_norm, normalizer_params={"scale": True, "is_training": True}):
    with tf.device("/gpu:0"):
        x = tf.placeholder(tf.float32, [2, 8, 8, 3])
        y = slim.repeat(x, 2, slim.conv2d, 4, [3, 3], scope="body")
        y = slim.max_pool2d(y, [2, 2], scope="pool")
        y = slim.flatten(slim.dropout(y, 0.9, is_training=False))
        y = slim.fully_connected(y, 5, activation_fn=None, normalizer_fn=None, scope="logits")
values["analyzed"] = slim.model_analyzer.analyze_vars(tf.global_variables()[:1], print_info=True)
values["variables"] = sorted(v.op.name for v in tf.global_variables())
values["shape"] = y.shape.as_list()
values["updates"] = len(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
inner = contrib_layers.batch_norm(tf.ones([2, 3]), is_training=True, updates_collections=None, scope="inner")
contrib_layers.batch_norm(tf.ones([2, 3]), is_training=True, updates_collections="mine", scope="mine")
values["updates_elsewhere"] = [len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)), len(tf.get_collection("mine"))]
values["penalties"] = len(tf.losses.get_regularization_losses())
total = tf.losses.get_total_loss(add_regularization_losses=True)
train = slim.learning.create_train_op(total + tf.reduce_mean(y), tf.train.GradientDescentOptimizer(0.1))

table = lookup.index_table_from_tensor(["a", "b"], default_value=-7)
found = table.lookup(tf.constant(["b", "z"]))
loss = sequence_loss(tf.zeros([1, 2, 4]), tf.constant([[0, 1]]), tf.constant([[1.0, 0.0]]))
cell = rnn.BasicLSTMCell(3)
outputs, _ = legacy_seq2seq.rnn_decoder([tf.ones([2, 3])] * 4, cell.zero_state(2, tf.float32), cell, scope="decoder")
values["decoder"] = [len(outputs), sum(v.op.name.startswith("decoder/") for v in tf.trainable_variables())]
steps = [tf.zeros([2, 4])] * 3, [tf.constant([0, 1])] * 3, [tf.constant([1.0, 0.5])] * 3
legacy = [legacy_seq2seq.sequence_loss_by_example(*steps), legacy_seq2seq.sequence_loss(*steps)]
h = HParams(rate=0.1, layers=[1, 2], wide=False).parse("rate=0.5,layers=[3,4],wide=true")
values["hparams"] = h.values()
try:
    tf.contrib.quantize
except AttributeError as error:
    values["missing"] = str(error)
try:
    import tensorflow.contrib.ffmpeg
except ImportError as error:
    values["missing_import"] = str(error)
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
    for _ in range(3):
        sess.run(train, {x: np.ones([2, 8, 8, 3])})
    values["lookup"] = sess.run(found).tolist()
    values["sequence_loss"] = float(sess.run(loss))
    values["legacy"] = [np.asarray(value).tolist() for value in sess.run(legacy)]
print(json.dumps(values))
"""


def test_an_old_script_finds_the_names_that_its_packages_had(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text(OLD)
    answer = rehearse_script("original", script, TF_CONFIG='{"cluster": {"ps": ["x:1"]}}')
    assert answer.code == 0, answer.stderr[-3000:]
    values = answer.parse_last_line()
    assert values["one"]
    assert values["version"] == "1.15.0"
    assert values["aliases"] == ["bool", "float64"]
    assert values["TF_CONFIG"] is None
    body = [f"body/body_{n}/{name}" for n in (1, 2) for name in ("weights", *(f"BatchNorm/{part}" for part in PARTS))]
    assert values["variables"] == sorted([*body, "logits/weights", "logits/biases"])
    assert values["shape"] == [2, 5]
    assert (values["updates"], values["penalties"]) == (4, 3)
    assert values["updates_elsewhere"] == [4, 2]
    assert values["lookup"] == [1, -7]
    assert values["sequence_loss"] == pytest.approx(np.log(4))
    assert values["decoder"] == [4, 2]
    assert values["analyzed"] == [108, 432]
    assert "Total size of variables: 108" in answer.stdout
    assert values["legacy"][0] == pytest.approx([np.log(4)] * 2)
    assert values["legacy"][1] == pytest.approx(np.log(4))
    assert values["hparams"] == {"rate": 0.5, "layers": [3, 4], "wide": True}
    for message in (values["missing"], values["missing_import"]):
        assert "tensorflow.contrib." in message
        assert "slim" in message
    assert len(answer.losses) == 3
    assert len(answer.gradients) == 8
    assert answer.met_limits == []


PARTS = ("beta", "gamma", "moving_mean", "moving_variance")


def test_without_tensorflow_the_pip_line_is_reported() -> None:
    code = (
        "import importlib.util, sys; plain = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'tensorflow' else plain(name, *a)\n"
        "from viaduct.rehearsal import tf1_stage\n"
        "from viaduct.rehearsal.tf1_stage import collectives, golden, options, state\n"
        "from viaduct.extras import MissingExtra\n"
        "try: tf1_stage.install('npu')\n"
        "except MissingExtra as error: print(error)\n"
        "assert 'tensorflow' not in sys.modules and not tf1_stage.state.platform"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}, timeout=600
    )
    assert answer.returncode == 0, answer.stderr
    assert "pip install 'viaduct[tf]'" in answer.stdout
