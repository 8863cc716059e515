"""Records that are not there are made up from what the script parses; nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from rehearsal.rehearsing import rehearsed
from viaduct.data.example import decode_example
from viaduct.data.jpeg import decode
from viaduct.data.tfrecord import read_records
from viaduct.rehearsal.fake_data import torchvision_sets
from viaduct.rehearsal.fake_data.keras_sets import wrap_load_data
from viaduct.rehearsal.fake_data.records import Declared, records_per_file, write_records
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.summary import Summary, advise

READS = """\
import sys
import tensorflow as tf


def images(serialized):
    found = tf.parse_single_example(serialized, {
        "image/encoded": tf.FixedLenFeature((), tf.string, ""),
        "image/class/label": tf.FixedLenFeature([], tf.int64),
        "image/object/bbox/xmin": tf.VarLenFeature(tf.float32),
    })
    image = tf.image.resize_images(tf.image.decode_jpeg(found["image/encoded"], channels=3), [8, 8])
    return tf.reshape(image, [192]) / 255.0, found["image/class/label"]


def digits(serialized):
    found = tf.io.parse_single_example(serialized, features={"raw": tf.FixedLenFeature([], tf.string)})
    return tf.reshape(tf.cast(tf.decode_raw(found["raw"], tf.uint8), tf.float32), [784])


def batches(files, parse):
    return tf.data.TFRecordDataset(files).map(parse).repeat().batch(4, drop_remainder=True).make_one_shot_iterator()


files = tf.data.Dataset.list_files(sys.argv[1] + "/train-*")
image, label = files.interleave(tf.data.TFRecordDataset, 1).map(images).repeat().batch(
    4, drop_remainder=True).make_one_shot_iterator().get_next()
digit = batches([sys.argv[1] + "/mnist.tfrecords"], digits).get_next()
weight = tf.get_variable("weight", [976, 3])
loss = tf.losses.sparse_softmax_cross_entropy(label, tf.concat([image, digit / 255.0], 1) @ weight)
train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(1000):
        session.run(train)
"""


def test_missing_records_are_made_up_and_the_users_folder_stays_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    data = tmp_path / "data"
    answer = rehearsed(tmp_path, READS, "--on", "original", "--steps", "2", "--fake-data", "--", str(data))
    assert answer.code == 0, answer.talk
    assert answer.summary["steps"] == 2
    assert "train-* is missing; records are made up" in answer.talk
    assert not data.exists()
    assert all(numpy.isfinite(losses).all() for losses in answer.summary["losses"])


@pytest.mark.slow
def test_without_being_asked_nothing_is_made_up(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    answer = rehearsed(tmp_path, READS, "--on", "original", "--steps", "2", "--", str(tmp_path / "data"))
    assert answer.code == 1
    assert "Data is missing" in answer.talk


@pytest.mark.parametrize(
    ("failure", "steps", "told"),
    [
        ("tensorflow.python.framework.errors_impl.NotFoundError: data/mnist.tfrecords", 0, True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data'", 0, True),
        ("tensorflow.python.framework.errors_impl.OutOfRangeError: End of sequence", 0, True),  # no file matched
        ("tensorflow.python.framework.errors_impl.OutOfRangeError: End of sequence", 3, False),  # all was read
        ("ValueError: bad shape", 0, False),
    ],
)
def test_missing_data_is_told_from_other_failures(failure: str, steps: int, told: bool) -> None:
    plan = Plan("original", "tf1", "train.py", (), "record", "work")
    found = Summary("", "original", "tf1", "train.py", [], 1, None, 1, steps=steps, failure=failure)
    assert any("Data is missing" in line for line in advise(found, plan)) == told


def test_a_record_holds_what_was_declared(tmp_path: Path) -> None:
    features = {
        "image/encoded": Declared(1, "bytes"),
        "image/height": Declared(1, "int64"),
        "image/class/label": Declared(1, "int64"),
        "scores": Declared(6, "float"),
        "raw": Declared(1, "bytes", raw=12),
    }
    write_records(tmp_path / "train-00000", features, 3)
    records = [decode_example(record) for record in read_records(tmp_path / "train-00000")]
    assert len(records) == 3
    image = records[0]["image/encoded"]
    assert isinstance(image, list)
    assert decode(image[0]).shape[0] == records[0]["image/height"][0]
    assert records[0]["image/class/label"][0] == 1
    assert len(records[0]["scores"]) == 6
    raw = records[0]["raw"]
    assert isinstance(raw, list)
    assert len(raw[0]) == 12


def test_many_files_share_the_records() -> None:
    assert records_per_file(1) == 512
    assert records_per_file(1024) == 8


IMAGES = """\
import sys
import torch
from torchvision import datasets, transforms

to_tensor = transforms.ToTensor()
digits = datasets.MNIST(sys.argv[1], True, to_tensor, download=True)
folder = datasets.ImageFolder(sys.argv[1] + "/train", to_tensor)
assert isinstance(digits, datasets.MNIST)
print(len(digits), tuple(digits[0][0].shape), tuple(folder[0][0].shape), len(digits.class_to_idx))
"""


def test_sets_of_torchvision_that_are_missing_are_made_up(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    words = ("--on", "original", "--steps", "0", "--fake-data", "--", str(tmp_path / "nowhere"))
    answer = rehearsed(tmp_path, IMAGES, *words)
    assert answer.out == "512 (1, 28, 28) (3, 256, 256) 10\n", answer.talk
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["MNIST", "CIFAR10"])
def test_a_made_up_set_holds_its_images_as_the_real_one_does(name: str) -> None:
    images: Any = torchvision_sets.make_fake_class(object)()
    images.make_up(torchvision_sets.KNOWN[name], {})
    image, label = images[3]
    assert numpy.array_equal(numpy.asarray(image), numpy.asarray(images.data[3]))
    assert label == int(images.targets[3]) == 3
    assert isinstance(images.targets, torch.Tensor if name == "MNIST" else list)
    assert images.data.shape == ((512, 28, 28) if name == "MNIST" else (512, 32, 32, 3))


def test_an_image_set_of_keras_that_cannot_be_downloaded_is_made_up() -> None:
    def fail(path: str = "mnist.npz") -> None:
        raise Exception("URL fetch failure on https://example.org/mnist.npz: None -- no network")

    def break_down() -> None:
        raise ValueError("another mistake")

    (images, labels), (test_images, _) = wrap_load_data(fail, "cifar10")("elsewhere.npz")
    assert (images.shape, labels.shape, test_images.shape) == ((6000, 32, 32, 3), (6000, 1), (1000, 32, 32, 3))
    assert images.dtype == labels.dtype == "uint8"
    assert labels.max() == 9
    with pytest.raises(ValueError, match="another mistake"):
        wrap_load_data(break_down, "mnist")()
