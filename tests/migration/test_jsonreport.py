"""JSON: records with relative paths in a stable order."""

from __future__ import annotations

import json
from pathlib import Path

from migration.small_project import make_project, migrated_project
from viaduct.migration.jsonreport import SCHEMA, as_json

FIELDS = {"file", "line", "end_line", "column", "rule", "kind", "status", "before", "after", "message", "doc"}


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    make_project(tmp_path)
    assert as_json(migrated_project(tmp_path)) == as_json(migrated_project(tmp_path))


def test_every_finding_has_all_fields_and_paths_are_relative(tmp_path: Path) -> None:
    text = as_json(migrated_project(make_project(tmp_path)))
    assert str(tmp_path) not in text
    record = json.loads(text)
    assert record["schema"] == SCHEMA
    assert record["command"] == "viaduct migrate project"
    assert all(set(finding) >= FIELDS for finding in record["findings"])
    changed = next(finding for finding in record["findings"] if finding["rule"] == "tf1.dataset_drop_remainder")
    assert (changed["file"], changed["line"], changed["status"]) == ("data/pipeline.py", 7, "changed")
    assert changed["before"] == "    return ds.batch(32)  # keep me"
    assert changed["after"] == "    return ds.batch(32, drop_remainder=True)  # keep me"
    assert changed["doc"] == "docs/rules.md#tf1dataset_drop_remainder"


def test_files_are_listed_with_their_state_and_reason(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    record = json.loads(as_json(migrated_project(make_project(tmp_path))))
    states = {file["path"]: file["state"] for file in record["files"]}
    assert states == {
        "data/__init__.py": "unchanged",
        "data/pipeline.py": "changed",
        "old.py": "unread",
        "plain.py": "unchanged",
        "train.py": "changed",
    }
    assert record["skipped"] == [{"path": "__pycache__", "reason": "a cache"}]
    assert sum(rule["changed"] for rule in record["summary"]["rules"].values()) == record["summary"]["edits"]


def test_findings_speak_chinese_when_requested(tmp_path: Path) -> None:
    outcome = migrated_project(make_project(tmp_path))
    output = json.loads(as_json(outcome, "zh"))["findings"]
    assert any("丢弃" in finding["message"] for finding in output)


def test_a_name_that_is_not_unicode_is_written_out(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9.py").write_text("import tensorflow as tf\ntf.data.Dataset.range(3).batch(2)\n")
    assert "caf\\\\xe9.py" in as_json(migrated_project(tmp_path))
