"""Evaluations are bounded by the steps too; neither later training nor the script's end is lost."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script
from viaduct.rehearsal.tf1_stage import evaluations
from viaduct.rehearsal.tf1_stage.watch import ScriptWatch
from viaduct.scripts.notebook_runs import read_source
from viaduct.scripts.runner import StopScript

SCRIPT = """
import json
import numpy as np
import tensorflow as tf
keras, values = tf.keras, {}

data = tf.data.Dataset.range(10**6).batch(2, drop_remainder=True)
iterator = data.make_initializable_iterator()
batch = tf.cast(iterator.get_next(), tf.float32)
fed = tf.placeholder(tf.float32, [2])
w = tf.get_variable("w", [], initializer=tf.ones_initializer())
error, fed_error = tf.reduce_mean(batch * w), tf.reduce_mean(fed * w)
train = tf.train.GradientDescentOptimizer(0.01).minimize(fed_error, tf.train.get_or_create_global_step())


def until_the_end(sess):
    sess.run(iterator.initializer)
    seen = []
    try:
        while True:
            seen.append(float(sess.run(error)))
    except tf.errors.OutOfRangeError:
        return len(seen)


def so_many(sess, count):
    done = 0
    try:
        for _ in range(count):
            sess.run(fed_error, {fed: [1.0, 2.0]})
            done += 1
    finally:
        return done


class Batches(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = 0
    def on_test_batch_end(self, batch, logs=None):
        self.seen += 1


sess = tf.Session()
sess.run(tf.global_variables_initializer())
values["before"] = [until_the_end(sess), until_the_end(sess), so_many(sess, 150)]
for _ in range(3):
    sess.run(train, {fed: [1.0, 2.0]})
values["after"] = [until_the_end(sess), so_many(sess, 20)]

x, y = np.arange(400, dtype=np.float32).reshape(200, 2), np.zeros(200, np.float32)
keras.backend.set_session(sess)
network = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones", input_shape=(2,))])
network.compile(keras.optimizers.SGD(0.01), "mse")
endless = tf.data.Dataset.from_tensors((x[:4], y[:4])).repeat()
batches = [Batches() for _ in range(4)]
values["loss"] = float(network.evaluate(x, y, batch_size=10, verbose=0, callbacks=[batches[0]]))
network.evaluate(x, y, batch_size=10, verbose=0, callbacks=[batches[1]])
network.evaluate(endless, steps=50, verbose=0, callbacks=[batches[2]])
network.evaluate(tf.data.Dataset.from_tensors((x[:4], y[:4])).repeat(2), verbose=0, callbacks=[batches[3]])
values["batches"] = [one.seen for one in batches]
values["predicted"] = [len(network.predict(x, batch_size=10)), len(network.predict(endless, steps=50)),
                     len(network.predict_generator((x[:4] for _ in range(99)), steps=50))]
print(json.dumps(values), flush=True)
with sess:
    while True:
        sess.run(fed_error, {fed: [1.0, 2.0]})
"""


@needs_tensorflow
def test_evaluations_end_in_every_style_and_the_script_continues_after_them(tmp_path: Path) -> None:
    script = tmp_path / "evaluates.py"
    script.write_text(SCRIPT)
    answer = rehearse_script("original", script, steps=3)
    assert answer.code == 0, answer.stderr[-3000:]
    values = answer.parse_last_line()
    assert values["before"] == [3, 3, 150], "training is still to come, so a loop that cannot be left goes on"
    assert values["after"] == [3, 20], "a short one is worth seeing"
    assert answer.stopped, "the last one has no end"
    assert len(answer.losses) == 3
    assert values["batches"] == [3, 3, 3, 2], "never more than there are"
    assert values["loss"] == pytest.approx(float(sum((4 * n + 1) ** 2 for n in range(30)) / 30), rel=1e-5)
    assert values["predicted"] == [200, 12, 12], "of arrays every row; else so many batches of four"


def run(graph: Any, *types: str, training: bool = False, data: bool = False, is_by_keras: bool = False) -> Any:
    subgraph = SimpleNamespace(ops=[SimpleNamespace(type=kind) for kind in types], reads_data=data)
    return SimpleNamespace(
        session_record=graph,
        graph=graph,
        subgraph=subgraph,
        is_training=training,
        feeds={"x": 1},
        is_by_keras=is_by_keras,
    )


def evaluate(loops: evaluations.EvaluationBounds, graph: Any, times: int) -> None:
    for _ in range(times):
        loops.before_run(run(graph))


class Graph:
    """Something that can be pointed at weakly."""


def test_a_script_that_only_evaluates_is_stopped_and_keras_own_loops_are_left_to_keras() -> None:
    script_watch, graph = ScriptWatch(max_steps=5), Graph()
    loops = evaluations.EvaluationBounds(script_watch)
    for _ in range(1000):
        loops.before_run(run(graph, is_by_keras=True))
    assert script_watch.stop_requested_at is None
    with pytest.raises(StopScript):
        evaluate(loops, graph, evaluations.MIN_EVALUATION_BATCHES + 1)
    assert script_watch.stop_requested_at is not None


def test_a_step_begins_the_count_anew_and_each_session_has_its_own() -> None:
    script_watch, graphs = ScriptWatch(max_steps=5, losses=[0.0] * 5), (Graph(), Graph())
    loops = evaluations.EvaluationBounds(script_watch)
    for _ in range(2):
        for _ in range(evaluations.MIN_EVALUATION_BATCHES):
            for graph in graphs:
                loops.before_run(run(graph))
        loops.before_run(run(graphs[0], training=True))
    assert script_watch.stop_requested_at is None


def test_without_a_bound_nothing_is_counted() -> None:
    loops, graph = evaluations.EvaluationBounds(ScriptWatch(max_steps=None)), Graph()
    for _ in range(1000):
        loops.before_run(run(graph, data=True))


@pytest.mark.parametrize(
    ("handler", "awaited"),
    [
        ("tf.errors.OutOfRangeError", True),
        ("(KeyError, errors.OutOfRangeError)", True),
        ("OutOfRangeError as end", True),
        ("Exception", False),
        ("ValueError", False),
    ],
)
def test_only_a_loop_that_catches_the_end_of_data_gets_that_error(handler: str, awaited: bool, tmp_path: Path) -> None:
    script = tmp_path / f"script{awaited}{len(handler)}.py"
    script.write_text(f"try:\n    work()\nexcept {handler}:\n    after()\n")
    assert evaluations.is_end_of_data_caught((str(script), 2)) is awaited
    assert not evaluations.is_end_of_data_caught((str(script), 4)), "the handler itself is not tried"


def test_the_end_of_data_that_a_cell_of_a_notebook_expects_is_seen(tmp_path: Path) -> None:
    loop = "try:\n    while True:\n        sess.run(error)\nexcept tf.errors.OutOfRangeError:\n    pass\n"
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in ("x = 1\n", loop)]
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    line = read_source(path, path.read_bytes()).decode().splitlines().index("        sess.run(error)") + 1
    assert evaluations.is_end_of_data_caught((str(path), line))
    assert not evaluations.is_end_of_data_caught((str(path), 2))
