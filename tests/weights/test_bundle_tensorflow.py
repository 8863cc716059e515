"""TensorFlow reads what we write, and we read what TensorFlow writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from viaduct.errors import BadData
from viaduct.weights.bundle import DTYPES, Bundle, write_bundle

pytest.importorskip("tensorflow", reason="reads and writes checkpoints with TensorFlow; install viaduct[tf]")
tf = pytest.importorskip("tensorflow.compat.v1")

KINDS = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with every type, three hundred variables, a string and a partitioned variable."""
    folder = tmp_path_factory.mktemp("theirs")
    with tf.Graph().as_default(), tf.Session() as session:
        for place, kind in enumerate(KINDS):
            values = tf.constant(np.random.default_rng(place).uniform(0, 5, (3, place + 1)))
            tf.get_variable(f"kinds/{kind}", initializer=tf.cast(values, kind))
        for place in range(300):
            tf.get_variable(f"many/block_{place}/kernel", initializer=np.full((2, 2), place, np.float32))
        tf.get_variable("global_step", initializer=np.int64(77))
        tf.get_variable("text", initializer="words")
        tf.get_variable("parted", (10, 4), partitioner=tf.fixed_size_partitioner(2))
        session.run(tf.global_variables_initializer())
        return Path(tf.train.Saver().save(session, str(folder / "model.ckpt"), 77, write_meta_graph=False))


def as_floats(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def test_everything_that_tensorflow_saved_is_listed_and_read(theirs: Path) -> None:
    reader = tf.train.load_checkpoint(str(theirs))
    with Bundle(theirs.parent) as stored:
        assert {name: list(entry.shape) for name, entry in stored.entries.items()} == (
            reader.get_variable_to_shape_map()
        )
        for name, entry in stored.entries.items():
            if name in ("text", "parted"):
                with pytest.raises(BadData, match=r"string values|partitioned"):
                    stored.read(name)
                continue
            np.testing.assert_array_equal(as_floats(stored.read(name).double()), as_floats(reader.get_tensor(name)))
            if name.startswith("kinds/"):
                assert entry.dtype == name.removeprefix("kinds/")
        assert stored.scalar("global_step") == 77


def test_tensorflow_reads_every_type_that_we_write(tmp_path: Path) -> None:
    values = {f"scope/{dtype}": (torch.rand(2, 3) * 2).to(getattr(torch, dtype)) for dtype in DTYPES.values()}
    values |= {f"many/block_{place}": torch.tensor(place) for place in range(300)}
    values["empty"] = torch.zeros(0, 3)
    write_bundle(tmp_path / "model.ckpt-5", values)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-5")
    reader = tf.train.load_checkpoint(str(tmp_path))
    assert set(reader.get_variable_to_shape_map()) == set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(as_floats(reader.get_tensor(name)), as_floats(value.double()))


def test_a_saver_restores_what_we_write(tmp_path: Path) -> None:
    prefix = write_bundle(tmp_path / "model.ckpt-5", {"dense/kernel": torch.arange(6.0).reshape(2, 3)})
    with tf.Graph().as_default(), tf.Session() as session:
        kernel = tf.get_variable("dense/kernel", (2, 3))
        tf.train.Saver().restore(session, str(prefix))
        np.testing.assert_array_equal(session.run(kernel), np.arange(6.0).reshape(2, 3))
