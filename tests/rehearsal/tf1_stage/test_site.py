"""The stand-in for the adapter has every name and signature that migrated scripts use, and computes what they say.

`npu_bridge_surface.txt` lists the names and signatures.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rehearsal.tf1_scripts import needs_tensorflow, rehearsed

pytestmark = needs_tensorflow

SCRIPT = """
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

keras, said, heard = tf.keras, {}, []
folder = sys.argv[1]


def refused(name, call):
    try:
        call()
    except Exception as error:
        said[name] = type(error).__name__ + ": " + str(error)


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
said["evaluated"] = float(estimator.evaluate(data, steps=2)["loss"])
said["heard"] = heard
refused("params", lambda: NPUEstimator(model_fn, config=config("params"), params={"rate": 1}))

# ---- a Keras model as an Estimator
network = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(2,))])
network.compile(tf.train.GradientDescentOptimizer(0.1), "mse")
converted = model_to_npu_estimator(network, config=config("keras"))
converted.train(data, steps=2)
said["converted"] = [type(converted).__name__, int(converted.get_variable_value("global_step"))]
said["kernel"] = converted.get_variable_value("dense/kernel").ravel().tolist()

# ---- Keras on the NPU's strategy, with the NPU's callback
keras.backend.clear_session()
keras.backend.set_session(tf.Session(config=npu_config_proto()))
strategy = NPUStrategy()
with strategy.scope():
    network = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(2,))])
    network.compile(keras.optimizers.SGD(0.1), "mse")
callback = NPUBroadcastGlobalVariablesCallback(0)
network.fit(data(), steps_per_epoch=2, epochs=1, verbose=0, callbacks=[callback])
said["strategy"] = [strategy.num_replicas_in_sync, callback.broadcast_done]
said["fitted"] = network.get_weights()[0].ravel().tolist()
keras.backend.get_session().close()

# ---- operators
with tf.Graph().as_default(), tf.Session(config=npu_config_proto()) as sess:
    x = tf.constant(np.linspace(-4, 4, 9), tf.float32)
    gelu = npu_aicore_ops.fast_gelu_v2(x)
    said["gelu"], said["gelu_gradient"] = [part.tolist() for part in sess.run([gelu, tf.gradients(gelu, x)[0]])]
    said["prelu"] = sess.run(npu_aicore_ops.prelu(x, 0.25)).tolist()
    norm = npu_aicore_ops.layer_norm(tf.reshape(x[:8], [2, 4]), 2.0, 1.0, begin_norm_axis=1, begin_params_axis=1)
    said["norm"] = sess.run(norm[0]).tolist()

    sent = npu_ops.outfeed_enqueue_op("channel", [x[:2], tf.constant([7])])
    got = npu_ops.outfeed_dequeue_op("channel", [tf.float32, tf.int32], [[2], [1]])
    said["shapes"] = [tensor.shape.as_list() for tensor in got]
    for _ in range(2):
        sess.run(sent)
    said["received"] = [part.tolist() for part in sess.run(got)]
    sess.run(npu_ops.stop_outfeed_dequeue_op("channel"))
    sess.run(sent)
    said["after_stop"] = [part.tolist() for part in sess.run(got)]

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
        said["gru %s" % after] = [part.tolist() for part in sess.run([out[0], theirs])]
        said["gru_outputs"] = len(out)
    swapped = DynamicGRUV2(4, tf.float32, gate_order="rzh")
    gates = swapped(sequence, seq_length=tf.constant([5, 2]))
    attended = DynamicAUGRU(4, tf.float32)
    ends = {"full": tf.ones([5, 2]), "none": tf.zeros([5, 2])}
    out = {name: attended(sequence, weight) for name, weight in ends.items()}
    sess.run(tf.global_variables_initializer())
    said["ended"] = sess.run(gates[0])[2:, 1].tolist()
    weights = {v.op.name.rsplit("/", 1)[-1]: v for v in swapped.trainable_variables}
    both = tf.matmul(sequence[0], weights["weight_input"]) + weights["bias_input"] + weights["bias_hidden"]
    said["swapped"] = [part.tolist() for part in sess.run([tf.sigmoid(both[:, 4:8]), gates[2][0]])]
    full, none = sess.run([out["full"], out["none"]])
    said["augru"] = [len(full), float(np.abs(full[0] - full[5]).max()), float(np.abs(none[2] - none[3]).max())]
    gradients = tf.gradients(out["none"][0], attended.trainable_variables)
    said["learns"] = [bool(np.abs(part).max() > 0) for part in sess.run(gradients)]
    refused("order", lambda: DynamicGRUV2(4, tf.float32, gate_order="hzr"))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process for all of them."""
    folder = tmp_path_factory.mktemp("parts")
    script = folder / "parts.py"
    script.write_text(SCRIPT)
    answer = rehearsed("npu", script, arguments=[str(folder)])
    assert answer.code == 0, answer.talk[-4000:]
    assert answer.hits == []
    return answer.said()


def descent(steps: int, bias: bool) -> tuple[np.ndarray[Any, Any], list[float]]:
    """Least squares from weights of one, by hand."""
    x, w, b, losses = np.array([[1.0, 0], [0, 1], [1, 1], [2, 1]]), np.ones(2), 0.0, []
    for _ in range(steps):
        error = x @ w + b - 1
        losses.append(float(np.mean(error**2)))
        w, b = w - 0.1 * 2 * x.T @ error / 4, (b - 0.1 * 2 * float(np.mean(error))) if bias else 0.0
    return w, losses


def test_params_for_a_model_function_without_them_are_refused(said: dict[str, Any]) -> None:
    assert "ValueError" in said["params"]
    assert "does not include params argument" in said["params"]


def test_the_host_hears_of_every_step_once_it_is_taken(said: dict[str, Any]) -> None:
    _, losses = descent(4, bias=True)
    trained = [[float(number), pytest.approx(loss, rel=1e-5)] for number, loss in enumerate(losses[:3], 1)]
    assert said["heard"] == [*trained, *[[3.0, pytest.approx(losses[3], rel=1e-5)]] * 2], "and of each evaluation"
    assert said["evaluated"] == pytest.approx(losses[3], rel=1e-5)


def test_a_keras_model_trains_as_an_npu_estimator(said: dict[str, Any]) -> None:
    assert said["converted"] == ["NPUEstimator", 2]
    assert np.allclose(said["kernel"], descent(2, bias=False)[0])


def test_a_keras_model_fits_on_the_strategy_and_is_broadcast_once(said: dict[str, Any]) -> None:
    assert said["strategy"] == [1, True]
    assert np.allclose(said["fitted"], descent(2, bias=False)[0])


def test_operators_follow_their_formulas(said: dict[str, Any]) -> None:
    x = np.linspace(-4, 4, 9)
    bend = np.minimum(np.abs(0.7071 * x), 1.769) - 1.769
    assert np.allclose(said["gelu"], x * (np.sign(x) * (-0.1444 * bend**2 + 0.5) + 0.5), atol=1e-6)
    assert said["gelu_gradient"][4] == pytest.approx(0.5)
    assert np.allclose(said["gelu_gradient"][-1], 1.0), "far out it is the identity"
    assert np.allclose(said["prelu"], np.where(x > 0, x, 0.25 * x))
    assert np.allclose(np.mean(said["norm"], axis=1), 1.0, atol=1e-5)
    assert np.allclose(np.std(said["norm"], axis=1), 2.0, atol=1e-5)


def test_what_is_sent_out_of_a_graph_is_received_in_order_and_a_channel_can_be_emptied(said: dict[str, Any]) -> None:
    assert said["shapes"] == [[2], [1]]
    assert said["received"] == [[-4.0, -3.0], [7]]
    assert said["after_stop"] == [[-4.0, -3.0], [7]], "the second message of before is gone, this is the third"


def test_recurrent_layers_are_those_of_keras(said: dict[str, Any]) -> None:
    for after in ("True", "False"):
        mine, theirs = said[f"gru {after}"]
        assert np.allclose(mine, theirs, atol=1e-6), after
    assert said["gru_outputs"] == 6
    assert np.allclose(said["ended"], 0), "behind the end of a sequence"
    assert np.allclose(*said["swapped"], atol=1e-6), "rzh: the second third is the update gate"
    assert "zrh" in said["order"]


def test_attention_weakens_the_update_gate(said: dict[str, Any]) -> None:
    outputs, all_new, unchanged = said["augru"]
    assert outputs == 7
    assert all_new == pytest.approx(0, abs=1e-6), "full attention forgets the state"
    assert unchanged == 0, "no attention is a GRU"
    assert said["learns"] == [True] * 4


LISTED = Path(__file__).with_name("npu_bridge_surface.txt")

SURFACE = """
import importlib, inspect, json, sys
answer = {}
for module, names in json.load(open("surface.json")).items():
    try:
        home = importlib.import_module(module)
    except Exception as error:
        answer[module] = repr(error)
        continue
    for name in names:
        found = home
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            answer[module + " " + name] = None
            continue
        try:
            given = inspect.signature(found).parameters.values()
        except (TypeError, ValueError):  # an object, or a message of protobuf
            given = []
        shown = [[p.name, p.kind.name, None if p.default is p.empty else repr(p.default)] for p in given]
        answer[module + " " + name] = shown
print(json.dumps(answer))
"""


def listed() -> dict[str, dict[str, str]]:
    modules: dict[str, dict[str, str]] = {}
    for line in LISTED.read_text().splitlines():
        if found := re.fullmatch(r"\[(.+)\]", line):
            modules[found[1]] = {}
        elif line and not line.startswith("#"):
            name, bracket, rest = line.partition("(")
            modules[list(modules)[-1]][name] = bracket + rest
    return modules


def parameters(text: str) -> list[list[Any]]:
    """Names, kinds and defaults of `(a, b=1, **c)`."""
    function = ast.parse(f"def f{text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    blank: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    plain = [
        [argument.arg, "POSITIONAL_OR_KEYWORD", None if default is None else repr(ast.literal_eval(default))]
        for argument, default in zip(given.args, [*blank, *given.defaults], strict=True)
    ]
    if given.vararg:
        plain.append([given.vararg.arg, "VAR_POSITIONAL", None])
    if given.kwarg:
        plain.append([given.kwarg.arg, "VAR_KEYWORD", None])
    return plain


@needs_tensorflow
def test_every_name_and_signature_is_there(tmp_path: Path) -> None:
    modules = listed()
    names = [(module, name) for module, found in modules.items() for name in found]
    assert len(modules) >= 25
    assert len(names) >= 180
    script = tmp_path / "surface.py"
    script.write_text(SURFACE)
    (tmp_path / "surface.json").write_text(json.dumps({module: list(found) for module, found in modules.items()}))
    answer = rehearsed("npu", script)
    assert answer.code == 0, answer.talk[-3000:]
    found = answer.said()
    assert [module for module in modules if module in found] == [], found
    wrong = {}
    for module, name in names:
        shown, wanted = found[f"{module} {name}"], modules[module][name]
        if shown is None:
            wrong[name] = "missing"
        elif wanted not in ("", "(?)") and shown != parameters(wanted):
            wrong[name] = f"{shown} is not {parameters(wanted)}"
    assert wrong == {}
