"""A step ends at the line or function that the user names; one that does not exist is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from carrying.carry_scripts import carry_script
from rehearsal.rehearsing import TRAINS, rehearse_script
from viaduct.errors import BadValue
from viaduct.rehearsal import limits
from viaduct.rehearsal.step_at import StepEnd, StepEndTracer, find_step_end, parse_step_end

LOOP = '''\
"""Text."""
import math


def update(value):
    # a comment
    return value + 1


def fail():
    raise ValueError


def run():
    value = 0
    for step in range(3):
        value = update(
            value
        )
        try:
            fail()
        except ValueError:
            pass
    return value


run()
'''


def write(folder: Path) -> dict[str, Path]:
    (folder / "loop.py").write_text(LOOP)
    return {"loop.py": folder / "loop.py"}


def test_a_target_is_a_statement_or_a_function(tmp_path: Path) -> None:
    files = write(tmp_path)
    assert find_step_end("loop.py:18", files) == StepEnd("loop.py", 17, 19)
    assert find_step_end(f"{tmp_path}/loop.py:16", files) == StepEnd("loop.py", 16, 16)
    assert find_step_end("update", files) == StepEnd(function="update")
    for target in (StepEnd("a/b.py", 3, 4), StepEnd(function="Net.update")):
        assert parse_step_end(str(target)) == target


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ("loop.py:999", "loop.py has 27 lines", ""),
        ("loop.py:6", "no statement is executed in this line", "next statement is in line 7"),
        ("other.py:3", "no file of the project is called other.py", "loop.py"),
        ("loop.py:x", "'x' is no line number", "FILE:LINE"),
        ("updat", "no function of that name", "update"),
    ],
)
def test_what_does_not_exist_is_refused(tmp_path: Path, text: str, message: str, advice: str) -> None:
    with pytest.raises(BadValue) as caught:
        find_step_end(text, write(tmp_path))
    assert message in str(caught.value)
    assert advice in str(caught.value)


def test_files_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    files = {f"{number}.py": tmp_path / f"{number}.py" for number in range(8)}
    with pytest.raises(BadValue) as caught:
        find_step_end("other.py:3", files)
    assert "There are: 0.py, 1.py, 2.py, 3.py, 4.py, 5.py and 2 more." in str(caught.value)


@pytest.mark.parametrize(
    ("text", "steps"), [("loop.py:18", 3), ("update", 3), ("loop.py:24", 1), ("fail", 0), ("run", 1)]
)
def test_each_execution_is_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, steps: int) -> None:
    files = write(tmp_path)
    monkeypatch.setenv(limits.PROJECT_VARIABLE, str(tmp_path))
    found: list[None] = []
    counter = StepEndTracer(find_step_end(text, files), lambda: found.append(None))
    counter.start()
    try:
        exec(compile(LOOP, str(files["loop.py"]), "exec"), {})
    finally:
        counter.close()
    assert len(found) == steps


WITHOUT = TRAINS + (
    "weights = torch.zeros(2)\n"
    "def update(step):\n"
    "    global weights\n"
    "    weights = weights + step\n"
    "for step in range(100):\n"
    "    update(step)\n"
    "    print('done', step)\n"
)


def test_a_rehearsal_stops_after_the_steps_that_were_named(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, WITHOUT, "--on", "npu", "--steps", "4", "--step-at", "update")
    assert (answer.code, answer.summary["steps"]) == (0, 4), answer.stderr
    assert answer.stdout.split()[-1] == "2"


def test_a_line_that_is_never_executed_is_named(tmp_path: Path) -> None:
    source = WITHOUT + "if weights.sum() < 0:\n    update(1)\n"
    line = len(source.splitlines())
    answer = rehearse_script(tmp_path, source, "--on", "npu", "--step-at", f"train.py:{line}")
    assert answer.code == 1
    assert f"--step-at train.py:{line}-{line} was never completed" in answer.stderr


MIXED = """\
import torch
from torch import nn

torch.set_num_threads(1)
device = torch.device("cuda")
net = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    for part in range(2):
        x = torch.randn(8, 4).cuda()
        loss = nn.functional.cross_entropy(net(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("step", step, "loss", loss.item())
"""
ASSIGNS = """\
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
x = tf.placeholder(tf.float32, [8, 4])
w = tf.get_variable("w", [4, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
gradient = tf.gradients(loss, [w])[0]
given = tf.placeholder(tf.float32, [4, 1])
assign = tf.assign(tf.get_variable("copy", [4, 1], trainable=False), given)
data = np.random.RandomState(0).normal(size=(8, 4))
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(5):
        value, slope = sess.run([loss, gradient], {x: data})
        sess.run(assign, {given: slope})
        print("step", step, value)
"""


@pytest.mark.slow
def test_a_named_line_is_found_again_in_the_migrated_script(tmp_path: Path) -> None:
    result = carry_script(tmp_path, MIXED, "--step-at", "train.py:15", "--steps", "20")
    assert result.code == 0, result.stdout + result.stderr[-2000:]
    assert "12 losses of 6 steps" in result.stdout


@pytest.mark.slow
def test_a_named_line_counts_steps_of_tensorflow(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow_estimator")
    answer = rehearse_script(tmp_path, ASSIGNS, "--on", "original", "--step-at", "train.py:16", "--steps", "3")
    assert (answer.code, answer.summary["steps"]) == (0, 3), answer.stderr
    assert all(answer.summary["losses"])


def test_a_line_and_a_function_of_a_notebook_are_those_of_its_cells(tmp_path: Path) -> None:
    path, update = tmp_path / "train.ipynb", "def update():\n    x += 1"
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in ("x = 1", update)]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}, indent=1))
    files = {"train.ipynb": path}
    assert str(find_step_end("update", files)) == "update"
    assert str(find_step_end("train.ipynb:5", files)) == "train.ipynb:5-5"
    with pytest.raises(BadValue, match="has 5 lines"):
        find_step_end("train.ipynb:6", files)
