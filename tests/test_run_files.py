"""The files of a run: what is said of each kind of damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadRun
from viaduct.run_files import list_step_folders, read_manifest, read_metrics, read_recipe_record, read_summary

RECORD: dict[str, Any] = {"name": "tiny", "file": None, "recipe": {"is": "Recipe"}, "data": None, "device": "cpu"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is empty"),
        (b"[]", "it holds a list, not an object"),
        (b"null", "it holds null, not an object"),
        (b"\xff{}", "byte 0 is not UTF-8"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"recipe": ' + b"[" * 300 + b"]" * 300 + b"}", "it is nested too deeply"),
        (b"{}", "name is missing"),
        (json.dumps(RECORD | {"name": 3}).encode(), "name is 3; it must be a text"),
        (json.dumps(RECORD | {"file": []}).encode(), r"file is \[\]; it must be a text or none"),
        (json.dumps(RECORD | {"recipe": "x"}).encode(), "recipe is 'x'; it must be an object"),
        (json.dumps(RECORD | {"data": "a\0b"}).encode(), "no path contains a NUL byte"),
        (json.dumps(RECORD | {"images": {"training": 1}}).encode(), r"images\.training is 1; it must be an object"),
    ],
)
def test_a_damaged_recipe_is_named_with_the_reason(text: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_bytes(text)
    with pytest.raises(BadRun, match=rf"recipe\.json is damaged: .*{reason}"):
        read_recipe_record(tmp_path)


def test_images_of_a_run_of_an_earlier_version_are_found(tmp_path: Path) -> None:
    split = {"count": 3, "labels": 1}
    (tmp_path / "recipe.json").write_text(json.dumps(RECORD | {"pictures": {"training": split, "validation": split}}))
    record = read_recipe_record(tmp_path)
    assert record["images"]["training"]["count"] == 3
    assert "pictures" not in record


def test_a_file_that_is_much_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "recipe.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadRun, match="has 1,099,511,627,776 bytes"):
        read_recipe_record(tmp_path)


def test_a_folder_without_recipe_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match=r"is not a run: it has no recipe\.json"):
        read_recipe_record(tmp_path)


def test_a_summary_that_cannot_be_used_is_none(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"steps": "2", "length": {}}', '{"steps": 2, "length": {"steps": 0}}'):
        (tmp_path / "summary.json").write_text(text)
        assert read_summary(tmp_path) is None


def test_lines_that_are_cut_off_are_left_out_of_the_metrics(tmp_path: Path) -> None:
    entry = {"kind": "restart", "step": 1, "first": 2, "last": 3, "ranks": 2}
    lines = [json.dumps(entry).encode(), b'{"kind": "restart", "st', b"\xff", b"[]", b'{"kind": "restart", "step": []}']
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    assert read_metrics(tmp_path, "restart") == [entry]


def test_a_manifest_without_checksums_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"files": {"state.pt": {"size": 3}}}')
    with pytest.raises(BadRun, match=r"files\.state\.pt\.sha256 is missing"):
        read_manifest(tmp_path)


def test_only_folders_that_a_run_would_write_are_checkpoints(tmp_path: Path) -> None:
    for name in (
        "step-2",
        "step-10",
        "step-0",
        "step-²",
        "step-٣",
        "step-1e9",
        "step-007",
        "step--1",
        f"step-{10**20}",
    ):
        (tmp_path / name).mkdir()
    assert list(list_step_folders(tmp_path)) == [0, 2, 10]
