"""Lines a second of `viaduct migrate`, on files that it edits and on those that it leaves alone; and its memory.

    python benchmarks/migrate_project.py                        57 files, then 1,000 files
    python benchmarks/migrate_project.py --out docs/results/migrate_project_cpu.json

The projects are generated: a third of the files (and 17 of the 57) need edits, in the styles that TensorFlow 1 scripts
have; the others are models in TensorFlow that need none, and plain Python. `whole` is the command as a user gives it,
from its start to a written copy, on all cores. The rates of edited and untouched files are from one process, file by
file, in seconds of a core; the look through the whole project (the survey), which reads only files that mention a
framework, is shared out among those by their lines.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from viaduct import devices
from viaduct.migration.options import Options
from viaduct.migration.project import FRAMEWORKS, survey
from viaduct.migration.run import FileResult, migrate_project
from viaduct.training.summary import commit, machine

HEAD = '''"""{title}: generated for measuring, in the manner of a TensorFlow 1 training script."""
import argparse
import os

import numpy as np
import tensorflow as tf

FLAGS = argparse.Namespace(batch=32, rate=0.1, steps=1000, classes={classes})
'''
LAYERS = '''

def block_{number}(inputs, filters, training, name="block_{number}"):
    """A residual block with {filters} filters."""
    with tf.variable_scope(name):
        shortcut = inputs
        x = tf.layers.conv2d(inputs, filters, 3, padding="same", use_bias=False)  # {comment}
        x = tf.layers.batch_normalization(x, training=training, momentum={momentum})
        x = tf.nn.relu(x)
        x = tf.layers.conv2d(x, {filters}, 3, padding="same", use_bias=False)
        x = tf.layers.batch_normalization(x, training=training)
        if shortcut.shape[-1] != filters:
            shortcut = tf.layers.conv2d(shortcut, filters, 1, padding="same")
        return tf.nn.relu(x + shortcut)
'''
PLAIN = '''

class Record_{number}:
    """What was measured in run {number}."""

    def __init__(self, name, values=None, limit={filters}):
        self.name = name
        self.values = list(values or [])  # {comment}
        self.limit = limit

    def add(self, value):
        if len(self.values) >= self.limit:
            raise ValueError("record %s is full: %d values" % (self.name, len(self.values)))
        self.values.append(float(value))
        return self

    def mean(self):
        return sum(self.values) / len(self.values) if self.values else {momentum}
'''
INPUT = """

def input_fn(files, batch={batch}):
    dataset = tf.data.TFRecordDataset(files)
    dataset = dataset.map(lambda record: tf.parse_single_example(record, {{}}), num_parallel_calls=4)
    dataset = dataset.shuffle(1000).repeat()
    dataset = dataset.batch(batch)
    return dataset.prefetch(2)
"""
ESTIMATOR = """

def main():
    config = tf.estimator.RunConfig("model", 1, 100, save_checkpoints_steps=500)
    estimator = tf.estimator.Estimator(model_fn=model_fn, model_dir="model", config=config)
    estimator.train(lambda: input_fn(["a", "b"]), max_steps=FLAGS.steps)


def model_fn(features, labels, mode):
    logits = tf.layers.dense(features, FLAGS.classes)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train = tf.train.MomentumOptimizer(FLAGS.rate, 0.9).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


if __name__ == "__main__":
    main()
"""
SESSION = """

def main():
    features = input_fn(["a", "b"]).make_one_shot_iterator().get_next()
    dropped = tf.nn.dropout(features, keep_prob=0.5)
    loss = tf.reduce_mean(tf.layers.dense(dropped, FLAGS.classes))
    train = tf.train.AdamOptimizer(FLAGS.rate).minimize(loss)
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        for step in range(FLAGS.steps):
            session.run(train)


if __name__ == "__main__":
    main()
"""
DEVICE = """

def towers(images):
    with tf.device("/gpu:0"):
        x = tf.layers.conv2d(images, 64, 7, 2)  # the stem
        x = tf.nn.relu(x)
    return tf.reduce_mean(x, axis=[1, 2])
"""
EDITED = (INPUT + ESTIMATOR, INPUT + SESSION, INPUT + DEVICE)
LINES = 150
CASES = {"57 files": (57, 17), "1,000 files": (1000, 340)}


def make_file(kind: str, number: int, dice: random.Random) -> str:
    def fill(text: str) -> str:
        facts = {"number": dice.randrange(1000), "filters": dice.choice((64, 128, 256)), "classes": 10}
        facts |= {"comment": dice.choice(("as in the paper", "kept", "see above")), "batch": 32, "momentum": 0.9}
        return text.format(title=f"file {number}", **facts)

    body = LAYERS if kind != "plain" else PLAIN
    text = fill(HEAD) if kind != "plain" else '"""Records."""\n'
    tail = fill(dice.choice(EDITED)) if kind == "edited" else ""
    while text.count("\n") + tail.count("\n") < LINES:
        text += fill(body)
    return text + tail


def make_project(folder: Path, files: int, edited: int) -> None:
    """The same every time; ten files a package."""
    dice = random.Random(files)
    kinds = ["edited"] * edited
    kinds += [("model", "plain")[place % 2] for place in range(files - edited)]
    dice.shuffle(kinds)
    for number, kind in enumerate(kinds):
        target = folder / f"package_{number // 10:03d}" / f"{kind}_{number:04d}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(make_file(kind, number, dice))


def seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def whole(project: Path, scratch: Path) -> tuple[float, float]:
    """Of the command itself: its seconds, and the most memory of all its processes together, in MiB."""
    out = scratch / f"out_{time.monotonic_ns()}"
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "viaduct", "migrate", str(project), "--out", str(out), "--quiet"],
        stdout=subprocess.DEVNULL,
    )
    memory = 0.0
    while process.poll() is None:
        memory = max(memory, sum(map(own_memory, [process.pid, *children_of(process.pid)])))
        time.sleep(0.05)
    assert process.returncode == 0
    return time.perf_counter() - began, memory / 1024


def children_of(process: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def own_memory(process: int) -> float:
    """KiB; pages that several processes share are shared out among them."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0.0)


def measure(name: str, files: int, edited: int, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "project"
        make_project(project, files, edited)
        wholes = [whole(project, Path(scratch)) for _ in range(runs)]
        migrate_project(project, Options(), jobs=1)  # the rules are imported, the files are in memory
        samples = [rates(project) for _ in range(runs)]
    return {
        "case": name,
        "whole_s": [took for took, _ in wholes],
        "memory_mib": [memory for _, memory in wholes],
        "lines": samples[0]["lines"],
        "edited_files": samples[0]["edited_files"],
        "edited": [sample["edited"] for sample in samples],
        "untouched": [sample["untouched"] for sample in samples],
    }


def rates(project: Path) -> dict[str, Any]:
    outcome = migrate_project(project, Options(), jobs=1)
    texts = [(file.path, (project / file.path).read_bytes()) for file in outcome.files]
    gc.disable()  # as migrate_project does
    surveyed = seconds(lambda: survey(texts))
    gc.enable()
    with_framework = {path for path, data in texts if any(word in data for word in FRAMEWORKS)}
    lines = sum(file.line_count for file in outcome.files)
    surveyed_lines = sum(file.line_count for file in outcome.files if file.path in with_framework)

    def rate(files: list[FileResult]) -> float:
        mine = sum(file.line_count for file in files)
        shared = sum(file.line_count for file in files if file.path in with_framework) / surveyed_lines
        return mine / (sum(file.seconds for file in files) + surveyed * shared)

    changed = outcome.changed
    untouched = [file for file in outcome.files if not file.changed]
    return {
        "lines": lines,
        "edited_files": len(changed),
        "edited": rate(changed),
        "untouched": rate(untouched),
    }


def row(found: dict[str, Any]) -> dict[str, str]:
    return {
        "project": found["case"],
        "lines": f"{found['lines']:,}",
        "files edited": f"{found['edited_files']:,}",
        "whole, s": f"{median(found['whole_s']):.2f}",
        "edited, lines/s": f"{median(found['edited']):,.0f}",
        "untouched, lines/s": f"{median(found['untouched']):,.0f}",
        "memory, MiB": f"{max(found['memory_mib']):,.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--case", choices=[*CASES], action="append", help="one of them; else all")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    found = [measure(name, *CASES[name], options.runs) for name in options.case or CASES]
    rows = [row(one) for one in found]
    widths = {column: max(len(column), *(len(one[column]) for one in rows)) for column in rows[0]}
    for line in [dict(zip(widths, widths, strict=True)), *rows]:
        print("  ".join(f"{line[column]:>{width}}" for column, width in widths.items()))
    print(f"{os.cpu_count()} cores", file=sys.stderr)
    if options.out:
        record = {
            "kind": "benchmark",
            "title": "Migrating a project",
            "command": shlex.join(["python", "benchmarks/migrate_project.py", *sys.argv[1:]]),
            "commit": commit(),
            "machine": machine(devices.get("cpu")),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "note": "Rates are of one process; `whole` is the command on all cores, its start and the copy included.",
            "columns": list(rows[0]),
            "rows": rows,
            "samples": found,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
