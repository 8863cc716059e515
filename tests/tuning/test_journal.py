"""The journal of a search that may be killed."""

from __future__ import annotations

from pathlib import Path

from tuning.bank_entries import HERE
from viaduct.tuning.bank import Bank, encode_point
from viaduct.tuning.journal import Journal
from viaduct.tuning.signature import Signature


def test_a_line_that_was_cut_off_loses_no_other(tmp_path: Path) -> None:
    journal = Journal.of(Bank(tmp_path), HERE, Signature.of("conv2d", x="a"))
    journal.append({"tile": 1}, {"us": 5.0})
    with journal.path.open("a") as file:
        file.write('{"key": "conv2d x=a", "point": {"ti')
    journal.append({"tile": 2}, {"us": 4.0})
    assert {key: row["us"] for key, row in journal.read().items()} == {
        encode_point({"tile": 1}): 5.0,
        encode_point({"tile": 2}): 4.0,
    }
    journal.remove()
    assert journal.read() == {}


def test_another_operators_lines_are_not_taken(tmp_path: Path) -> None:
    journal = Journal.of(Bank(tmp_path), HERE, Signature.of("conv2d", x="a"))
    journal.append({"tile": 1}, {"us": 5.0})
    assert Journal(journal.path, "conv2d x=b").read() == {}
