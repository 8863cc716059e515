"""Places of TensorFlow 1 scripts that a requirement concerns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migration.small_project import migrated_project
from viaduct.migration.summary import Summary, summarise


def summary_of(folder: Path, text: str, **options: Any) -> Summary:
    (folder / "train.py").write_text(text)
    return summarise(migrated_project(folder, **options))


def counts(summary: Summary, requirement: str) -> tuple[int, ...]:
    """Return needed, changed, right, manual, unresolved."""
    for row in summary.ledger:
        if row.requirement == requirement:
            return (row.needed, row.changed, row.right, row.manual, row.unresolved)
    return (0, 0, 0, 0, 0)


def test_input_that_no_rank_shards_needs_review(tmp_path: Path) -> None:
    text = "import tensorflow as tf\ndef input_fn(files):\n    return tf.data.TFRecordDataset(files)\n"
    assert counts(summary_of(tmp_path, text, distributed=True), "shards") == (1, 0, 0, 1, 0)


def test_a_class_with_a_batch_method_does_not_hide_a_dataset(tmp_path: Path) -> None:
    text = (
        "import tensorflow as tf\nclass A:\n    def batch(self, n):\n        return n\n"
        "parts = {'train': tf.data.Dataset.range(9)}\nparts['train'].batch(4)\n"
    )
    assert counts(summary_of(tmp_path, text), "batches")[3:] in ((1, 0), (0, 1))


@pytest.mark.parametrize(
    "line", ["# NPUEstimator, or hvd.init and broadcast_global_", "print('no NPUEstimator, hvd.init')"]
)
def test_communication_that_is_only_mentioned_is_not_started(tmp_path: Path, line: str) -> None:
    text = f"import tensorflow as tf\n{line}\ndef f(loss):\n    return tf.train.AdamOptimizer(1e-3).minimize(loss)\n"
    assert counts(summary_of(tmp_path, text, distributed=True), "communication") == (1, 0, 0, 0, 1)


@pytest.mark.parametrize(("table", "unresolved"), [("{'dev': '/gpu:0'}", 1), ("{'/gpu:0': 1}", 0)])
def test_a_gpu_in_a_dictionary_is_unresolved_for_the_mlu(tmp_path: Path, table: str, unresolved: int) -> None:
    text = f"import tensorflow as tf\nD = {table}\nwith tf.device(D['dev']):\n    a = tf.constant(1)\n"
    assert counts(summary_of(tmp_path, text, to="mlu"), "placement")[4] == unresolved


def test_a_session_class_that_is_looked_up_by_name_is_unresolved(tmp_path: Path) -> None:
    text = "import tensorflow as tf\nsession = getattr(tf, 'Session')()\n"
    assert counts(summary_of(tmp_path, text), "sessions") == (1, 0, 0, 0, 1)
    text = "import tensorflow as tf\nname = getattr(tf, 'Sessions', 'Session')\n"
    assert counts(summary_of(tmp_path, text), "sessions") == (0, 0, 0, 0, 0)
