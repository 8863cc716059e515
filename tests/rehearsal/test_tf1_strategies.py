"""Originals that train under a distribution strategy run on one CPU as one replica, and their numbers are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rehearsal.tf1 import needs_tensorflow, rehearsed

pytestmark = needs_tensorflow

HEAD = """
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
MINIMIZE = "train = optimizer.minimize(loss, tf.train.get_or_create_global_step())"
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
    script.write_text(HEAD.replace("UPDATE", update) + made + f"train_with({strategy})\n")
    answer = rehearsed("original", script, steps=3)
    assert answer.code == 0, answer.talk[-3000:]
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
        HEAD.replace("UPDATE", MINIMIZE)
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
    answer = rehearsed("original", script, steps=2)
    assert answer.code == 0, answer.talk[-3000:]
    assert answer.losses[0] == pytest.approx(69.0), "the loss of weights of one"
    assert len(answer.losses) == 2


def test_counters_of_metrics_are_no_weights(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD.replace("UPDATE", MINIMIZE) + "train_with()\n")
    answer = rehearsed("original", script, steps=2)
    assert set(answer.variables) == {"w", "mean", "global_step"}, "mean/total and mean/count count batches"


def test_a_mistake_of_the_stand_in_is_not_taken_for_one_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import tensorflow as tf\n"
        "import viaduct.rehearsal.tf1_stage.reach as reach\n"
        "reach.find_reach = lambda *given: 1 / 0\n"
        "with tf.Session() as session:\n    session.run(tf.constant(1))\n"
    )
    answer = rehearsed("original", script)
    assert "StandInFails: ZeroDivisionError" in answer.failure + answer.talk


def test_a_mistake_of_the_script_stays_one_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import tensorflow as tf\nx = tf.placeholder(tf.float32)\n"
        "with tf.Session() as session:\n    session.run(x + 1)\n"
    )
    answer = rehearsed("original", script)
    assert "InvalidArgumentError" in answer.failure + answer.talk
    assert "StandInFails" not in answer.failure + answer.talk


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
    answer = rehearsed("original", script, steps=2)
    assert answer.losses == [pytest.approx(1.0), pytest.approx(0.64)], answer.talk[-2000:]


def test_reads_that_have_no_order_with_a_write_are_the_same_in_every_run(tmp_path: Path) -> None:
    """As a learning rate that reads the global step while it is counted up, in BERT's optimizer."""
    script = tmp_path / "race.py"
    script.write_text(
        "import json\nimport tensorflow as tf\n"
        "counter = tf.get_variable('counter', [400000], initializer=tf.zeros_initializer())\n"
        "up = counter.assign(counter + 1)\n"
        "late = [tf.reduce_max(counter * 2.0) for _ in range(20)]\n"
        "seen = []\n"
        "for _ in range(10):\n"
        "    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=8)) as session:\n"
        "        session.run(tf.global_variables_initializer())\n"
        "        seen.append([session.run([up, *late])[1:] for _ in range(3)])\n"
        "print(json.dumps({'same': all(repr(one) == repr(seen[0]) for one in seen)}))\n"
    )
    answer = rehearsed("original", script)
    assert answer.said() == {"same": True}, "sessions that did the same read different values"
