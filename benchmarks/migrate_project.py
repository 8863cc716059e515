"""Measure time and memory of `viaduct migrate` for whole projects, and how its time grows with the length of a file.

    python benchmarks/migrate_project.py                 100 and 1,000 files, then patterns of 1,000 to 8,000 lines
    python benchmarks/migrate_project.py --full          10,000 files with 2.5 million lines as well
    python benchmarks/migrate_project.py --full --out docs/results/migrate_project_cpu.json \\
        --out-growth docs/results/migrate_growth_cpu.json

The projects are generated and are the same in every run: folders of ten files that import each other, half of the
folders TensorFlow 1, half PyTorch. A third of the files need edits, a third are models that need none, a third are
plain Python. The whole command is measured, from its start to a written copy, on all cores. Memory is the largest sum
over its processes at one time; shared pages count once.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from run_description import write_record

from viaduct import devices

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
TORCH_HEAD = '''"""{title}: generated for measuring, in the manner of a PyTorch training script."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn

{imports}
'''
TORCH_LAYERS = '''

class Block_{number}(nn.Module):
    """A residual block with {filters} filters."""

    def __init__(self, inputs, filters={filters}, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, filters, 3, stride, 1, bias=False)  # {comment}
        self.norm1 = nn.BatchNorm2d(filters, momentum={momentum})
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(filters)

    def forward(self, x):
        out = torch.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return torch.relu(out + x)
'''
TORCH_MAIN = """

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default={batch})
    parser.add_argument("--local_rank", type=int, default=0)
    args = parser.parse_args()
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group(backend="nccl")
    device = torch.device("cuda", args.local_rank)
    model = nn.Sequential(nn.Conv2d(3, {filters}, 7, 2), nn.ReLU()).cuda()
    model = nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum={momentum})
    scaler = torch.cuda.amp.GradScaler()
    for step in range(1000):
        images = torch.randn(args.batch, 3, 224, 224).cuda(non_blocking=True)
        target = torch.randint(0, 10, (args.batch,), device=device)
        with torch.cuda.amp.autocast():
            loss = nn.functional.cross_entropy(model(images).flatten(1), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
"""
EDITED = (INPUT + ESTIMATOR, INPUT + SESSION, INPUT + DEVICE)
CASES = {"100 files": (100, 160), "1,000 files": (1000, 160)}
FULL = {"10,000 files": (10_000, 250)}
TORCH, TF = "import torch\n", "import tensorflow as tf\n"
PATTERNS: dict[str, Callable[[int], str]] = {
    "x = x.cuda()": lambda n: f"{TORCH}x = torch.zeros(3)\n" + "x = x.cuda()\n" * n,
    "x = hvd.size()": lambda n: f"{TF}import horovod.tensorflow as hvd\nhvd.init()\n" + "x = hvd.size()\n" * n,
    "with tf.device(…)": lambda n: TF + 'with tf.device("/gpu:0"):\n    x = tf.zeros(3)\n' * (n // 2),
    "self.ds = self.ds.map(f)": lambda n: (
        f"{TF}class A:\n    def f(self):\n        self.ds = tf.data.Dataset.range(3)\n"
        + "        self.ds = self.ds.map(f)\n" * n
        + "        self.ds = self.ds.batch(8)\n"
    ),
    "x = x.attribute": lambda n: TORCH + "x = x.attribute\n" * n,
    "def f(x): return x.cuda()": lambda n: TORCH + "".join(f"def f{i}(x): return x.cuda()\n" for i in range(n)),
    "a table of numbers": lambda n: f"{TORCH}X = [\n" + "    1, 2, 3, 4, 5, 6, 7, 8,\n" * n + "]\nx = x.cuda()\n",
}
LENGTHS = (1000, 2000, 4000, 8000)


def make_file(kind: str, framework: str, number: int, lines: int, generator: random.Random) -> str:
    def fill(text: str) -> str:
        facts = {"number": generator.randrange(1000), "filters": generator.choice((64, 128, 256)), "classes": 10}
        facts |= {"comment": generator.choice(("as in the paper", "kept", "see above")), "batch": 32, "momentum": 0.9}
        imports = f"from .file_{number // 10 * 10:05d} import *" if number % 10 else ""
        return text.format(title=f"file {number}", imports=imports, **facts)

    body = PLAIN if kind == "plain" else TORCH_LAYERS if framework == "torch" else LAYERS
    head = '"""Records."""\n' if kind == "plain" else fill(TORCH_HEAD if framework == "torch" else HEAD)
    tail = fill(TORCH_MAIN if framework == "torch" else generator.choice(EDITED)) if kind == "edited" else ""
    text = head
    while text.count("\n") + tail.count("\n") < lines:
        text += fill(body)
    return text + tail


def make_project(folder: Path, files: int, lines: int) -> int:
    """Write the files, ten per folder; return their number of lines."""
    generator = random.Random(files)
    written = 0
    for number in range(files):
        kind = ("edited", "model", "plain")[generator.randrange(3)]
        framework = "torch" if number // 10 % 2 else "tf"
        target = folder / f"area_{number // 1000:02d}" / f"package_{number // 10:04d}" / f"file_{number:05d}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = make_file(kind, framework, number, lines, generator)
        target.write_text(text)
        written += text.count("\n")
    return written


def run_command(path: Path, out: Path) -> dict[str, float]:
    """Migrate into a copy; return seconds, CPU seconds and the largest memory of all processes together in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "viaduct", "migrate", str(path), "--out", str(out), "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    memory, status = 0.0, 0
    while True:
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            break
        memory = max(memory, sum(map(read_memory, [process.pid, *list_children(process.pid)])))
        time.sleep(0.1)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"viaduct migrate {path} ended with {process.returncode}")
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "memory_mib": memory / 1024,
    }


def list_children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def read_memory(process: int) -> float:
    """Return the KiB of a process; a shared page counts in parts for each process that shares it."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0.0)


def measure_project(name: str, files: int, lines: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        written = make_project(Path(scratch) / "project", files, lines)
        found = run_command(Path(scratch) / "project", Path(scratch) / "out")
    return {"case": name, "lines": written, **found}


def measure_growth(name: str) -> dict[str, Any]:
    """Measure CPU seconds for files of growing length, minus those of a file with one line of the pattern."""
    seconds = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, lines in enumerate((2, *LENGTHS)):
            script = Path(scratch) / f"script_{number}.py"
            script.write_text(PATTERNS[name](lines))
            seconds.append(run_command(script, Path(scratch) / f"out_{number}.py")["cpu_seconds"])
    return {
        "pattern": name,
        "start": seconds[0],
        "cpu_seconds": [max(0.0, found - seconds[0]) for found in seconds[1:]],
    }


def make_project_row(found: dict[str, Any]) -> dict[str, str]:
    return {
        "project": found["case"],
        "lines": f"{found['lines']:,}",
        "seconds": f"{found['seconds']:.1f}",
        "CPU seconds": f"{found['cpu_seconds']:.1f}",
        "memory, MiB": f"{found['memory_mib']:,.0f}",
        "CPU µs/line": f"{found['cpu_seconds'] / found['lines'] * 1e6:.0f}",
    }


def make_growth_row(found: dict[str, Any]) -> dict[str, str]:
    columns = {
        f"{lines:,} lines": f"{seconds:.2f}" for lines, seconds in zip(LENGTHS, found["cpu_seconds"], strict=True)
    }
    return {
        "pattern": f"`{found['pattern']}`" if "(" in found["pattern"] or "=" in found["pattern"] else found["pattern"]
    } | columns


def print_rows(rows: list[dict[str, str]]) -> None:
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in rows[0]}
    for line in [dict(zip(widths, widths, strict=True)), *rows]:
        print("  ".join(f"{line[column]:>{width}}" for column, width in widths.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="10,000 files with 2.5 million lines as well")
    parser.add_argument("--case", choices=[*CASES, *FULL, "growth"], action="append", help="one of them; else all")
    parser.add_argument("--out", type=Path, help="write the figures of the projects here, for docs/results/")
    parser.add_argument("--out-growth", type=Path, help="write the figures of the growth here")
    options = parser.parse_args()
    cases = {**CASES, **FULL}
    wanted = options.case or [*CASES, *(FULL if options.full else ()), "growth"]
    projects = [measure_project(name, *cases[name]) for name in wanted if name != "growth"]
    if projects:
        rows = [make_project_row(found) for found in projects]
        print_rows(rows)
        if options.out:
            note = "The command on all cores, its start and the copy included; memory is of all processes together."
            write_record(options.out, devices.get("cpu"), "Migrating a project", rows, projects, note)
    if "growth" in wanted:
        growth = [measure_growth(name) for name in PATTERNS]
        rows = [make_growth_row(found) for found in growth]
        print_rows(rows)
        if options.out_growth:
            note = "CPU seconds for one file that holds a pattern so many times, less those for a short file."
            write_record(options.out_growth, devices.get("cpu"), "Migrating one long file", rows, growth, note)
    print(f"{os.cpu_count()} cores", file=sys.stderr)


if __name__ == "__main__":
    main()
