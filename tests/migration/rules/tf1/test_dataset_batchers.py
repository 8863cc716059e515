"""Batches that functions other than Dataset.batch create."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.checking import check_rewrite, check_says
from migration.small_project import migrated_project
from viaduct.migration.summary import summarise

HEAD = "import tensorflow as tf\n"
HOMES = ["tf.data.experimental", "tf.contrib.data"]


@pytest.mark.parametrize("home", HOMES)
def test_a_reader_of_features_drops_its_last_batch(home: str) -> None:
    call = f"{home}.make_batched_features_dataset('a', 4, {{}}, num_epochs=2"
    check_rewrite("dataset_batchers", f"{HEAD}{call})\n", f"{HEAD}{call}, drop_final_batch=True)\n")


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("rest", ["num_epochs=1", "num_epochs=epochs", "**settings"])
def test_a_reader_of_csv_files_that_ends_needs_review(home: str, rest: str) -> None:
    check_says("dataset_batchers", f"{HEAD}{home}.make_csv_dataset('a', 4, {rest})\n", "manual", "num_epochs")


def test_a_queue_with_unpacked_arguments_needs_review() -> None:
    check_says("dataset_batchers", f"{HEAD}x = tf.train.batch([x], 4, **settings)\n", "manual", "allow_smaller_final")


@pytest.mark.parametrize("home", HOMES)
def test_buckets_need_review_for_their_shapes(home: str) -> None:
    source = f"{HEAD}ds = ds.apply({home}.bucket_by_sequence_length(length, [9], [4, 4]))\n"
    check_says("dataset_batchers", source, "manual", "drop_remainder=True")


@pytest.mark.parametrize(
    "use",
    [
        "step = ds.batch\nstep(3)\n",
        "from functools import partial\nmake = partial(ds.batch, 3)\n",
        "getattr(ds, 'padded_batch')(3, [None])\n",
        "ds = ds.apply(tf.data.experimental.dense_to_sparse_batch(4, [9]))\n",
        "ds = ds.apply(tf.data.experimental.bucket_by_sequence_length(n, [9], [4, 4]))\n",
    ],
)
def test_hidden_batches_are_counted(tmp_path: Path, use: str) -> None:
    (tmp_path / "train.py").write_text(f"{HEAD}ds = tf.data.TFRecordDataset(['a'])\n{use}")
    summary = summarise(migrated_project(tmp_path))
    assert summary.verdict == "incomplete"
    row = next(row for row in summary.ledger if row.requirement == "batches")
    assert row.needed == row.manual + row.unresolved == 1
