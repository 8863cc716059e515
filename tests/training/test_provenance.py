"""Recorded origin of a run: what was read, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.record_files import write_split
from viaduct.data.records import Records
from viaduct.data.source import ImageSet, Split
from viaduct.training import provenance
from viaduct.training.provenance import (
    MAX_SESSIONS,
    count_modified_files,
    describe_provenance,
    describe_run_of_file,
    fingerprint_data,
    hash_sources,
)


def image_set(value: int = 0, label: int = 0) -> ImageSet:
    images = np.zeros((4, 8, 8, 3), np.uint8)
    images[3, 7, 7, 2] = value
    labels = np.array([0, 1, 0, label], np.int64)
    return ImageSet(Split(images, labels), Split(images[:2], labels[:2]), ("a", "b"))


def test_one_pixel_and_one_label_change_a_fingerprint() -> None:
    known = fingerprint_data(image_set(), None)
    assert fingerprint_data(image_set(), None) == known
    assert fingerprint_data(image_set(value=1), None)["fingerprint"] != known["fingerprint"]
    assert fingerprint_data(image_set(label=1), None)["fingerprint"] != known["fingerprint"]
    assert known["basis"] == "every pixel; all labels"


def test_images_that_are_too_many_are_sampled_and_that_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "MAX_PIXEL_BYTES", 300)
    assert "one in 3 blocks" in fingerprint_data(image_set(), None)["basis"]


def test_records_are_known_by_names_sizes_and_labels(tmp_path: Path) -> None:
    for folder, count in (("first", 4), ("copy", 4), ("other", 5)):
        write_split(tmp_path / folder, "train", [count])
        write_split(tmp_path / folder, "validation", [2])
    (tmp_path / "copy" / "build.json").write_text(json.dumps({"source": {"images": 6}, "options": {"seed": 3}}))
    source = Records(global_batch=2, size=32, classes=4)
    found = {
        name: fingerprint_data(source.load(tmp_path / name), tmp_path / name) for name in ("first", "copy", "other")
    }
    assert found["first"]["fingerprint"] == found["copy"]["fingerprint"] != found["other"]["fingerprint"]
    assert found["first"]["basis"] == "names and sizes of record files; all labels"
    assert found["first"]["build"] is None
    assert found["copy"]["build"] == {"source": {"images": 6}, "options": {"seed": 3}}


def test_a_resumed_run_keeps_its_id_its_origin_and_its_sessions() -> None:
    first = describe_provenance(None, {"step": 0}, {"source": "w"}, resumed=False)
    after = describe_provenance(first, {"step": 5}, None, resumed=True)
    assert (after["id"], after["init"]) == (first["id"], {"source": "w"})
    assert after["sessions"] == [{"step": 0}, {"step": 5}]


@pytest.mark.parametrize("earlier", [None, {}, {"sessions": "odd"}])
def test_what_came_before_is_not_made_up(earlier: dict[str, Any] | None) -> None:
    record = describe_provenance(earlier, {"step": 5}, None, resumed=True)
    assert "init" not in record
    assert record["sessions"] == [{"step": 5}]


def test_restarts_without_end_do_not_fill_the_record() -> None:
    record = describe_provenance(None, {"step": 0}, None, resumed=False)
    for step in range(100):
        record = describe_provenance(record, {"step": step + 1}, None, resumed=True)
    assert len(record["sessions"]) == MAX_SESSIONS
    assert (record["sessions"][0], record["sessions"][-1]) == ({"step": 0}, {"step": 100})


def test_the_source_has_a_digest_and_files_of_a_repository_are_counted() -> None:
    assert hash_sources() == hash_sources() is not None
    count = count_modified_files()
    assert count is None or count >= 0


def test_a_file_outside_of_any_run_has_no_run(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"")
    assert describe_run_of_file(tmp_path / "w.safetensors") == {"run": None, "run_id": None}
    (tmp_path / "recipe.json").write_text("{")
    assert describe_run_of_file(tmp_path / "w.safetensors") == {"run": str(tmp_path), "run_id": None}
