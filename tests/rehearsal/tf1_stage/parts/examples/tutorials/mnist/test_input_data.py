"""MNIST as the tutorials of TensorFlow 1 read it, from files and never from the network."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow


MNIST = """
import json
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

mnist = input_data.read_data_sets("set", one_hot=True, validation_size=2)
first, labels = mnist.train.next_batch(5)
second, _ = mnist.train.next_batch(6)
counts = [mnist.train.num_examples, mnist.validation.num_examples, mnist.test.num_examples]
print(json.dumps({
    "counts": counts, "shape": list(first.shape), "labels": list(labels.shape), "largest": float(first.max()),
    "seen": sorted(round(float(x) * 255) for x in [*first[:, 0], *second[:3, 0]]),
    "passes": mnist.train.epochs_completed,
}))
"""


def write_mnist(folder: Path) -> None:
    """Ten images for training whose first pixels are 0 to 9, and three for the test."""
    folder.mkdir()
    for name, count in (("train", 10), ("t10k", 3)):
        images = b"".join(bytes([number]) + b"\xff" * 783 for number in range(count))
        header = struct.pack(">4I", 2051, count, 28, 28)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images))
        labels = struct.pack(">2I", 2049, count) + bytes(range(count))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def test_the_tutorials_mnist_is_read_from_its_files(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MNIST)
    write_mnist(tmp_path / "set")
    answer = rehearse_script("original", script)
    assert not answer.failure, answer.stderr
    output = answer.parse_last_line()
    assert (output["counts"], output["shape"], output["labels"], output["largest"]) == (
        [8, 2, 3],
        [5, 784],
        [5, 10],
        1.0,
    )
    assert output["seen"] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert output["passes"] == 1


def test_an_mnist_that_does_not_exist_is_not_downloaded(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MNIST)
    answer = rehearse_script("original", script)
    assert "set/train-images-idx3-ubyte.gz is missing" in answer.failure
    assert "--fake-data" in answer.failure
