"""Fingerprints, by which measurements of different machines are stored apart."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest

from tuning.bank_entries import ELSEWHERE, HERE
from viaduct.json_records import Damaged, decode_record
from viaduct.tuning.fingerprint import Fingerprint, read_fingerprint


@pytest.mark.parametrize("field", [field.name for field in fields(Fingerprint)])
def test_machines_that_differ_in_any_field_have_different_files(field: str) -> None:
    other = replace(HERE, **{field: 7 if field == "threads" else "other"})
    assert other.file_name != HERE.file_name


@pytest.mark.parametrize(
    ("change", "message"),
    [({"threads": "2"}, "fingerprint.threads is '2'"), ({"threads": True}, "is True"), ({"name": None}, "is None")],
)
def test_a_damaged_field_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(Damaged, match=message):
        decode_record(Fingerprint, {**asdict(HERE), **change}, "fingerprint")


def test_a_fingerprint_is_read_back() -> None:
    assert decode_record(Fingerprint, asdict(HERE)) == HERE


def test_file_names_hold_no_path_and_are_not_too_long() -> None:
    name = replace(HERE, name="Some / strange \\ name\0" * 40).file_name
    assert len(name) < 120
    assert not set(name) & set("/\\\0 ")


def test_differing_fields_are_named_with_both_values() -> None:
    assert ELSEWHERE.list_differences(HERE) == ["torch 2.13.0, here 2.11.0"]
    assert replace(HERE, triton="3.5").list_differences(HERE) == ["triton none, here 3.5"]
    assert HERE.describe() == "cpu: some processor, 2 cores, AVX2, 2 threads, torch 2.13.0"


def test_this_machine_has_its_processor_and_its_threads() -> None:
    fingerprint = read_fingerprint("cpu")
    assert fingerprint.name
    assert fingerprint.threads >= 1
    assert fingerprint.triton == ""
