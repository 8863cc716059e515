"""Steps are counted and bounded in every style of TensorFlow 1, and their losses, gradients and weights are exact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script
from viaduct.comparison.readers import read

MINIMIZE = "train = optimizer.minimize(loss, tf.train.get_or_create_global_step())"

pytestmark = needs_tensorflow

HEAD = """
import json, sys
import numpy as np
import tensorflow as tf
x = np.arange(8, dtype=np.float32).reshape(4, 2)
"""
PLAIN = (
    HEAD
    + """
w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
table = tf.get_variable("table", [3, 1], initializer=tf.ones_initializer())
rows = tf.nn.embedding_lookup(table, [1, 1])
loss = tf.reduce_mean(tf.square(tf.linalg.matvec(tf.constant(x), w))) + tf.reduce_sum(rows)
step = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
sess = tf.Session()
sess.run(tf.global_variables_initializer())
ended = []
try:
    for number in range(1000):
        sess.run(step)
        ended.append(number)
finally:
    print(json.dumps({"ran": len(ended)}))
"""
)


def test_a_loop_of_the_scripts_own_is_ended_and_its_numbers_are_exact(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    answer = rehearse_script("original", script, steps=3)
    assert answer.stopped
    assert answer.code == 0
    assert answer.parse_last_line() == {"ran": 3}, "its finally block has run"
    x, w, table = np.arange(8.0).reshape(4, 2), np.ones(2), 1.0
    for step in range(3):
        gradient = 2 * x.T @ (x @ w) / 4
        assert answer.losses[step] == pytest.approx(np.mean((x @ w) ** 2) + 2 * table, rel=1e-6)
        if step == 0:
            assert np.allclose(answer.gradients["w"], gradient)
            assert np.allclose(answer.gradients["table"], [[0], [2], [0]]), "rows that are named twice add up"
        w, table = w - 0.01 * gradient, table - 0.02
    assert np.allclose(answer.variables["w"], w)
    assert np.allclose(answer.variables["table"], [[1], [table], [1]])
    assert answer.variables["global_step"] == 3


STYLES = (
    HEAD
    + """
def model_fn(features, labels, mode):
    y = tf.layers.dense(features, 1, kernel_initializer=tf.ones_initializer(), name="dense")[:, 0]
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y})
    loss = tf.losses.mean_squared_error(labels, y)
    train = tf.train.AdamOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"m": tf.metrics.mean(y)})

def data():
    return tf.data.Dataset.from_tensors((x, np.zeros(4, np.float32))).repeat()

values = {}
estimator = tf.estimator.Estimator(model_fn, sys.argv[1])
estimator.train(data, max_steps=10**6)
values["trained"] = int(estimator.get_variable_value("global_step"))
values["evaluated"] = estimator.evaluate(data)["m"] is not None       # the data never ends
values["predicted"] = sum(1 for _ in estimator.predict(data))
values["there"] = True
print(json.dumps(values), flush=True)
estimator.train(data, max_steps=10**6)
print("never")
"""
)
KERAS = (
    HEAD
    + """
keras = tf.keras
model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones", input_shape=(2,))])
model.compile(keras.optimizers.SGD(0.01), "mse")
shown = []
class Seen(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        shown.append(sorted(logs))
model.fit(np.tile(x, (50, 1)), np.zeros(200), batch_size=4, epochs=7, verbose=0, shuffle=False,
          validation_data=(x, np.zeros(4)), callbacks=[Seen()])
after = model.predict(x).shape
print(json.dumps({"shown": shown, "after": after}))
"""
)


BRANCHES = (
    HEAD
    + """
w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
table = tf.get_variable("table", [3, 2], initializer=tf.ones_initializer())
given = tf.placeholder(tf.float32, [])
h = tf.constant(x) * w
h = tf.cond(given > 0, lambda: h * v, lambda: h + 1.0)
_, h = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 0.5), [0, h])
h = tf.cond(given > 5, lambda: tf.while_loop(lambda t: tf.reduce_sum(t) > 1, lambda t: t * 0.5, [h]), lambda: h)
h = tf.cond(given > 5, lambda: tf.cond(given > 6, lambda: h * v, lambda: h), lambda: h)
loss = tf.reduce_sum(h) + tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 1]))
step = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for number in range(3):
        sess.run(step, {given: 1.0 - 2.0 * number})
"""
)


def test_gradients_after_branches_and_loops_are_recorded(tmp_path: Path) -> None:
    script = tmp_path / "branches.py"
    script.write_text(BRANCHES)
    answer = rehearse_script("original", script, steps=3)
    assert answer.code == 0, answer.stderr
    assert all(loss is not None for loss in answer.losses)
    assert np.allclose(answer.gradients["w"], np.arange(8.0).reshape(4, 2).sum(0) / 8)
    assert np.allclose(answer.gradients["table"], [[0, 0], [2, 2], [0, 0]])


def test_scripts_continue_after_the_training_of_an_estimator(tmp_path: Path) -> None:
    script = tmp_path / "styles.py"
    script.write_text(STYLES)
    answer = rehearse_script("original", script, steps=4, arguments=[str(tmp_path / "model")])
    assert answer.code == 0, answer.stderr[-3000:]
    assert answer.parse_last_line() == {"trained": 4, "evaluated": True, "predicted": 16, "there": True}
    assert answer.stopped, "a second training has no steps left"
    assert len(answer.losses) == 4
    assert set(answer.gradients) == {"dense/kernel", "dense/bias"}


def test_fit_ends_with_a_whole_epoch_and_its_validation(tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(KERAS)
    answer = rehearse_script("original", script, steps=3)
    assert answer.code == 0, answer.stderr[-3000:]
    assert not answer.stopped
    assert answer.parse_last_line() == {"shown": [["loss", "val_loss"]], "after": [4, 1]}
    x, w = np.arange(8.0).reshape(4, 2), np.ones(2)
    assert answer.losses[0] == pytest.approx(np.mean((x @ w) ** 2))
    assert len(answer.losses) == 3
    assert np.allclose(np.ravel(answer.gradients["dense/kernel"]), 2 * x.T @ (x @ w) / 4)


NPU = """
import json, os, sys
import numpy as np
import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import NPURunConfig, DumpConfig, ProfilingConfig
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator, NPUEstimatorSpec
folder = sys.argv[1]
seen = []

class Steps(tf.train.SessionRunHook):
    def begin(self):
        self.step = tf.train.get_global_step()
    def before_run(self, context):
        return tf.train.SessionRunArgs(self.step)
    def after_run(self, context, values):
        seen.append(int(context.session.run(self.step)))

def host(loss):
    return tf.py_func(lambda value: seen.append("host") or value, [loss], tf.float32)

def model_fn(features, labels, mode, params):
    y = tf.layers.dense(features, 1, name="dense")
    loss = tf.reduce_mean(tf.square(y - labels))
    train = tf.train.AdamOptimizer(params["rate"]).minimize(loss, tf.train.get_or_create_global_step())
    return NPUEstimatorSpec(mode, loss=loss, train_op=train)

def data():
    return tf.data.Dataset.from_tensors((np.ones([4, 2], np.float32), np.ones([4, 1], np.float32))).repeat()

def run(name, **options):
    config = NPURunConfig(model_dir=os.path.join(folder, name), **options)
    estimator = NPUEstimator(model_fn, config=config, params={"rate": 0.1})
    estimator.train(data, hooks=[Steps()], steps=4)
    return estimator

run("loops", iterations_per_loop=2, save_checkpoints_steps=4)
loops = list(seen)
run("dumps", dump_config=DumpConfig(True, os.path.join(folder, "dump"), "0|2-3", "all"),
    profiling_config=ProfilingConfig(True, json.dumps({"output": os.path.join(folder, "prof"), "training_trace": "on",
                                                       "fp_point": "dense/MatMul", "bp_point": ""})))
errors = []
for make in (lambda: NPUEstimator(model_fn, "a", config=NPURunConfig(model_dir="b")),):
    try:
        make()
    except ValueError as error:
        errors.append(str(error))
print(json.dumps({"loops": loops, "errors": errors}))
"""


def test_an_npu_estimator_loops_dumps_and_profiles_as_its_config_says(tmp_path: Path) -> None:
    script = tmp_path / "estimator.py"
    script.write_text(NPU)
    for name in ("dump", "prof"):
        (tmp_path / name).mkdir()
    answer = rehearse_script("npu", script, arguments=[str(tmp_path)])
    assert answer.code == 0, answer.stderr[-3000:]
    output = answer.parse_last_line()
    assert output["loops"] == [2, 4], "the host sees every second step"
    assert "different values" in output["errors"][0]
    assert len(answer.losses) == 8
    assert answer.met_limits == []
    check_dump(tmp_path / "dump")
    check_profile(tmp_path / "prof")


def check_dump(folder: Path) -> None:
    """The comparison reads it as an NPU's dump."""
    steps = sorted(int(path.name) for path in folder.glob("*/*/*/*/*"))
    assert steps == [0, 2, 3]
    side = read(folder)
    assert side.kind == "npu"
    first = {(tensor.op, tensor.role, tensor.index) for tensor in side.tensors if tensor.step == 0}
    assert ("dense_MatMul", "output", 0) in first
    assert ("dense_MatMul", "input", 1) in first
    assert not any(tensor.fault for tensor in side.tensors)


def check_profile(folder: Path) -> None:
    (made,) = folder.glob("PROF_*")
    rows = (made / "summary" / "step_trace.csv").read_text().splitlines()
    assert rows[0].startswith("Device_id,Iteration ID,FP Start(us)")
    assert len(rows) == 5
    for row in rows[1:]:
        _, _, start, middle, end, _, forward, tail, _, _ = row.split(",")
        assert float(start) <= float(middle) <= float(end)
        assert float(forward) + float(tail) == pytest.approx(float(end) - float(start))
    timeline = json.loads((made / "timeline" / "step_0.json").read_text())
    assert any(event.get("args", {}).get("name") == "dense/MatMul" for event in timeline["traceEvents"])


STRATEGY_HEAD = """
import numpy as np
import tensorflow as tf

x = np.arange(8, dtype=np.float32).reshape(4, 2)


def input_fn():
    return tf.data.Dataset.from_tensor_slices((x, np.ones(4, np.float32))).repeat().batch(4)


def model_fn(features, labels, mode):
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    mean = tf.get_variable("mean", [], initializer=tf.zeros_initializer(), trainable=False)
    logits = tf.linalg.matvec(features, w)
    loss = tf.reduce_mean(tf.square(logits))
    accuracy = tf.metrics.mean(logits)
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    UPDATE
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"mean": accuracy})


def train_with(**strategies):
    config = tf.estimator.RunConfig(model_dir="model", tf_random_seed=1, **strategies)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(input_fn, steps=100)
    estimator.evaluate(input_fn, steps=1)
"""

COMPUTE = """pairs = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(pairs, tf.train.get_or_create_global_step())"""

GRADIENTS = """pairs = list(zip(tf.gradients(loss, tf.trainable_variables()), tf.trainable_variables()))
    train = optimizer.apply_gradients(pairs, tf.train.get_or_create_global_step())"""


@pytest.mark.parametrize(
    ("update", "strategy"),
    [
        (MINIMIZE, 'train_distribute=tf.distribute.MirroredStrategy(devices=["/gpu:0", "/gpu:1"])'),
        (COMPUTE, "train_distribute=tf.distribute.MirroredStrategy()"),
        (GRADIENTS, 'train_distribute=tf.distribute.MirroredStrategy(["device:GPU:0"])'),
        (COMPUTE, 'train_distribute=tf.distribute.OneDeviceStrategy("device:GPU:0")'),
        (MINIMIZE, "train_distribute=STRATEGY, eval_distribute=STRATEGY"),
    ],
)
def test_an_estimator_under_a_strategy_is_followed_step_by_step(tmp_path: Path, update: str, strategy: str) -> None:
    script = tmp_path / "train.py"
    made = "STRATEGY = tf.distribute.MirroredStrategy()\n"
    script.write_text(STRATEGY_HEAD.replace("UPDATE", update) + made + f"train_with({strategy})\n")
    answer = rehearse_script("original", script, steps=3)
    assert answer.code == 0, answer.stderr[-3000:]
    data, w = np.arange(8.0).reshape(4, 2), np.ones(2)
    for step in range(3):
        gradient = 2 * data.T @ (data @ w) / 4
        assert answer.losses[step] == pytest.approx(np.mean((data @ w) ** 2), rel=1e-5)
        if step == 0:
            assert np.allclose(answer.gradients["w"], gradient)
        w = w - 0.01 * gradient
    assert np.allclose(answer.variables["w"], w)
    assert answer.variables["global_step"] == 3


def test_a_loop_under_the_scope_of_a_strategy_is_followed(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(
        STRATEGY_HEAD.replace("UPDATE", MINIMIZE)
        + """
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    optimizer = tf.train.GradientDescentOptimizer(0.01)

    def step(features):
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, w)))
        with tf.control_dependencies([optimizer.minimize(loss)]):
            return tf.identity(loss)

    losses = strategy.run(step, args=(tf.constant(x),))
    total = strategy.reduce("SUM", losses, axis=None)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(100):
            session.run(total)
"""
    )
    answer = rehearse_script("original", script, steps=2)
    assert answer.code == 0, answer.stderr[-3000:]
    assert answer.losses[0] == pytest.approx(69.0), "the loss of weights of one"
    assert len(answer.losses) == 2


def test_counters_of_metrics_are_no_weights(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STRATEGY_HEAD.replace("UPDATE", MINIMIZE) + "train_with()\n")
    answer = rehearse_script("original", script, steps=2)
    assert set(answer.variables) == {"w", "mean", "global_step"}, "mean/total and mean/count count batches"


def test_a_broadcast_among_one_rank_is_no_step(tmp_path: Path) -> None:
    script = tmp_path / "hvd.py"
    script.write_text(
        "import horovod.tensorflow as hvd\nimport tensorflow as tf\n"
        "from horovod.tensorflow.compression import Compression\n"
        "from horovod.tensorflow.mpi_ops import size\n"
        "hvd.init()\n"
        "w = tf.get_variable('w', [], initializer=tf.ones_initializer())\n"
        "step = tf.train.get_or_create_global_step()\n"
        "optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1), compression=Compression.none)\n"
        "train = optimizer.minimize(w * w, step)\n"
        "with tf.Session() as session:\n"
        "    session.run(tf.global_variables_initializer())\n"
        "    session.run(hvd.broadcast_global_variables(0))\n"
        "    for _ in range(10 * size()):\n        session.run(train)\n"
    )
    answer = rehearse_script("original", script, steps=2)
    assert answer.losses == [pytest.approx(1.0), pytest.approx(0.64)], answer.stderr[-2000:]
