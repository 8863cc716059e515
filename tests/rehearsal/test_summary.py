"""The advice of a summary tells missing data from other failures."""

from __future__ import annotations

import pytest

from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.summary import Summary, advise


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
