"""Two scripts that use many parts of the adapter, each run once for the tests of all of them."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import rehearse_script

LAYERS = """
import json, os, sys
import numpy as np
import tensorflow as tf
from npu_bridge.estimator import npu_aicore_ops, npu_ops
from npu_bridge.estimator.npu.keras_to_npu import model_to_npu_estimator
from npu_bridge.estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_dynamic_rnn import DynamicAUGRU, DynamicGRUV2
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator, NPUEstimatorSpec
from npu_bridge.estimator.npu.npu_strategy import NPUStrategy
from npu_bridge.npu_init import npu_config_proto

keras, printed, heard = tf.keras, {}, []
folder = sys.argv[1]


def refused(name, call):
    try:
        call()
    except Exception as error:
        printed[name] = type(error).__name__ + ": " + str(error)


def data():
    features, labels = np.array([[1, 0], [0, 1], [1, 1], [2, 1]], np.float32), np.ones([4, 1], np.float32)
    return tf.data.Dataset.from_tensors((features, labels)).repeat()


def config(name):
    return NPURunConfig(model_dir=os.path.join(folder, name))


# ---- an Estimator whose model function has no params, and calls the host
def hear(step, loss):
    return tf.numpy_function(lambda *values: heard.append([float(one) for one in values]) or np.int32(0), [step, loss],
                             tf.int32)


def model_fn(features, labels, mode):
    loss = tf.reduce_mean(tf.square(tf.layers.dense(features, 1, kernel_initializer=tf.ones_initializer()) - labels))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    call = (hear, [step, loss]) if mode == "train" else (hear, {"step": step, "loss": loss})
    return NPUEstimatorSpec(mode, loss=loss, train_op=train, host_call=call)


estimator = NPUEstimator(model_fn, config=config("plain"))
estimator.train(data, steps=3)
printed["evaluated"] = float(estimator.evaluate(data, steps=2)["loss"])
printed["heard"] = heard
refused("params", lambda: NPUEstimator(model_fn, config=config("params"), params={"rate": 1}))

# ---- a Keras model as an Estimator
network = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(2,))])
network.compile(tf.train.GradientDescentOptimizer(0.1), "mse")
converted = model_to_npu_estimator(network, config=config("keras"))
converted.train(data, steps=2)
printed["converted"] = [type(converted).__name__, int(converted.get_variable_value("global_step"))]
printed["kernel"] = converted.get_variable_value("dense/kernel").ravel().tolist()

# ---- Keras on the NPU's strategy, with the NPU's callback
keras.backend.clear_session()
keras.backend.set_session(tf.Session(config=npu_config_proto()))
strategy = NPUStrategy()
with strategy.scope():
    network = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(2,))])
    network.compile(keras.optimizers.SGD(0.1), "mse")
callback = NPUBroadcastGlobalVariablesCallback(0)
network.fit(data(), steps_per_epoch=2, epochs=1, verbose=0, callbacks=[callback])
printed["strategy"] = [strategy.num_replicas_in_sync, callback.broadcast_done]
printed["fitted"] = network.get_weights()[0].ravel().tolist()
keras.backend.get_session().close()

# ---- operators
with tf.Graph().as_default(), tf.Session(config=npu_config_proto()) as sess:
    x = tf.constant(np.linspace(-4, 4, 9), tf.float32)
    gelu = npu_aicore_ops.fast_gelu_v2(x)
    printed["gelu"], printed["gelu_gradient"] = [part.tolist() for part in sess.run([gelu, tf.gradients(gelu, x)[0]])]
    printed["prelu"] = sess.run(npu_aicore_ops.prelu(x, 0.25)).tolist()
    norm = npu_aicore_ops.layer_norm(tf.reshape(x[:8], [2, 4]), 2.0, 1.0, begin_norm_axis=1, begin_params_axis=1)
    printed["norm"] = sess.run(norm[0]).tolist()

    sent = npu_ops.outfeed_enqueue_op("channel", [x[:2], tf.constant([7])])
    got = npu_ops.outfeed_dequeue_op("channel", [tf.float32, tf.int32], [[2], [1]])
    printed["shapes"] = [tensor.shape.as_list() for tensor in got]
    for _ in range(2):
        sess.run(sent)
    printed["received"] = [part.tolist() for part in sess.run(got)]
    sess.run(npu_ops.stop_outfeed_dequeue_op("channel"))
    sess.run(sent)
    printed["after_stop"] = [part.tolist() for part in sess.run(got)]

# ---- recurrent layers against Keras' own, and one by hand
with tf.Graph().as_default(), tf.Session(config=npu_config_proto()) as sess:
    sequence = tf.constant(np.random.RandomState(0).randn(5, 2, 3), tf.float32)
    for after in (True, False):
        layer = DynamicGRUV2(4, tf.float32, reset_after=after)
        out = layer(sequence)
        own = keras.layers.GRU(4, recurrent_activation="sigmoid", reset_after=after, return_sequences=True,
                               time_major=True)
        theirs = own(sequence)
        sess.run(tf.global_variables_initializer())
        values = {v.op.name.rsplit("/", 1)[-1]: v for v in layer.trainable_variables}
        bias = sess.run([values["bias_input"], values["bias_hidden"]])
        sess.run([own.cell.kernel.assign(values["weight_input"]),
                  own.cell.recurrent_kernel.assign(values["weight_hidden"]),
                  own.cell.bias.assign(np.stack(bias) if after else bias[0] + bias[1])])
        printed["gru %s" % after] = [part.tolist() for part in sess.run([out[0], theirs])]
        printed["gru_outputs"] = len(out)
    swapped = DynamicGRUV2(4, tf.float32, gate_order="rzh")
    gates = swapped(sequence, seq_length=tf.constant([5, 2]))
    attended = DynamicAUGRU(4, tf.float32)
    ends = {"full": tf.ones([5, 2]), "none": tf.zeros([5, 2])}
    out = {name: attended(sequence, weight) for name, weight in ends.items()}
    sess.run(tf.global_variables_initializer())
    printed["ended"] = sess.run(gates[0])[2:, 1].tolist()
    weights = {v.op.name.rsplit("/", 1)[-1]: v for v in swapped.trainable_variables}
    both = tf.matmul(sequence[0], weights["weight_input"]) + weights["bias_input"] + weights["bias_hidden"]
    printed["swapped"] = [part.tolist() for part in sess.run([tf.sigmoid(both[:, 4:8]), gates[2][0]])]
    full, none = sess.run([out["full"], out["none"]])
    printed["augru"] = [len(full), float(np.abs(full[0] - full[5]).max()), float(np.abs(none[2] - none[3]).max())]
    gradients = tf.gradients(out["none"][0], attended.trainable_variables)
    printed["learns"] = [bool(np.abs(part).max() > 0) for part in sess.run(gradients)]
    refused("order", lambda: DynamicGRUV2(4, tf.float32, gate_order="hzr"))
print(json.dumps(printed))
"""


CHECKS = """
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

printed = {}
def refused(name, call):
    try:
        call()
        printed[name] = None
    except Exception as error:
        printed[name] = type(error).__name__ + ": " + str(error)

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
printed["dropout 1"] = npu_ops.dropout(x, 1.0) is x
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
printed["checkpoints"] = [one.save_checkpoints_steps for one in configs]
with npu_scope.without_npu_compile_scope():
    printed["mark"] = tf.identity(x).op.get_attr("_without_npu_compile")
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
printed["rnn_outputs"] = len(out)

w = tf.Variable(1.0)
data = tf.placeholder(tf.float32, [])
manager = ExponentialUpdateLossScaleManager(2.0 ** 4, incr_every_n_steps=2, decr_every_n_nan_or_inf=2)
optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.25), manager)
step = optimizer.minimize(w * data, tf.train.get_or_create_global_step())
printed["forwarded"] = optimizer._learning_rate
history = []
with tf.Session(config=config()) as sess:
    printed["rank"] = [get_rank_size(), get_rank_id()] if sess.run(npu_ops.initialize_system()) is None else None
    sess.run(tf.global_variables_initializer())
    sess.run(copies)
    for value in (1.0, float("inf"), float("nan"), 2.0, 2.0, 4.0):
        sess.run(step, {data: value})
        history.append([float(v) for v in sess.run([w, manager.get_loss_scale(), tf.train.get_global_step()])])
    printed["history"] = history
    printed.update({name: np.asarray(value).tolist() for name, value in sess.run(values).items()})

    # ---- a loop on the device
    counter = tf.Variable(0, trainable=False)
    v = tf.Variable(10.0)
    once = tf.train.GradientDescentOptimizer(1.0).minimize(v, global_step=tf.train.get_global_step())
    loop = util.set_iteration_per_loop(sess, once, 5)
    sess.run(tf.variables_initializer([counter, v]))
    sess.run(loop)
    printed["looped"] = float(sess.run(v))
    sess.run(once)
    printed["once"] = float(sess.run(v))
print(json.dumps(printed))
"""


@pytest.fixture(scope="session")
def layer_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what Estimators, Keras, operators and recurrent layers of the adapter have computed."""
    folder = tmp_path_factory.mktemp("layers")
    script = folder / "layers.py"
    script.write_text(LAYERS)
    answer = rehearse_script("npu", script, arguments=[str(folder)])
    assert answer.code == 0, answer.stderr[-4000:]
    assert answer.met_limits == []
    return answer.parse_last_line()


@pytest.fixture(scope="session")
def check_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the adapter's checks refuse and what its optimizers compute, and the number of steps as `steps`."""
    script = tmp_path_factory.mktemp("checks") / "checks.py"
    script.write_text(CHECKS)
    answer = rehearse_script("npu", script)
    assert answer.code == 0, answer.stderr[-3000:]
    assert answer.met_limits == []
    return {**answer.parse_last_line(), "steps": len(answer.losses)}
