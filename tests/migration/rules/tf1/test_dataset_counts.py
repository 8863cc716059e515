from __future__ import annotations

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


def test_an_assertion_that_counts_predictions_is_reported_and_others_are_not() -> None:
    check_says("dataset_counts", HEAD + "assert len(predictions) == num_examples\n", "manual", "last batch")
    check_says("dataset_counts", HEAD + "assert num_written_lines == num_actual_predict_examples\n", "manual", "fails")
    check_noop("dataset_counts", HEAD + "assert len(shape) == 4\nassert x == y\nassert num_layers == len(layers)\n")
