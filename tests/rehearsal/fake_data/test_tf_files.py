"""Missing TFRecords are made up from the features that the script parses, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from rehearsal.rehearsing import rehearse_script

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
    answer = rehearse_script(tmp_path, READS, "--on", "original", "--steps", "2", "--fake-data", "--", str(data))
    assert answer.code == 0, answer.stderr
    assert answer.summary["steps"] == 2
    assert "train-* is missing; records are made up" in answer.stderr
    assert not data.exists()
    assert all(numpy.isfinite(losses).all() for losses in answer.summary["losses"])


@pytest.mark.slow
def test_without_fake_data_nothing_is_made_up(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    answer = rehearse_script(tmp_path, READS, "--on", "original", "--steps", "2", "--", str(tmp_path / "data"))
    assert answer.code == 1
    assert "Data is missing" in answer.stderr
