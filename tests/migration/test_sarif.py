"""SARIF 2.1.0: what its schema requires is there, and indices, levels and places are right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from migration.notebook_files import SET_UP, USE, dump, notebook
from migration.small_project import make_project, migrated_project
from viaduct.migration.sarif import as_sarif

# From sarif-schema-2.1.0: object -> (required, allowed of what we write, enumerations).
LEVELS = {"none", "note", "warning", "error"}


def document(folder: Path, **options: Any) -> Any:
    return json.loads(as_sarif(migrated_project(folder, **options)))


def check_required(log: Any) -> None:
    assert log["version"] == "2.1.0"
    assert isinstance(log["runs"], list)
    assert log["runs"]
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert isinstance(driver["name"], str)
        assert driver["name"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(set(ids)) == len(ids)
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        for rule in driver["rules"]:
            assert rule["shortDescription"]["text"]
            assert rule["help"]["text"]
            assert rule["defaultConfiguration"]["level"] in LEVELS
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)
        for result in run["results"]:
            check_result(result, ids)


def check_result(result: Any, ids: list[str]) -> None:
    assert result["message"]["text"]
    assert result["level"] in LEVELS
    assert ids[result["ruleIndex"]] == result["ruleId"]
    assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
    for location in result["locations"]:
        physical = location["physicalLocation"]
        uri = physical["artifactLocation"]["uri"]
        assert re.fullmatch(r"[\w/.%~+-]+", uri, re.ASCII)
        assert not uri.startswith("/")
        if "region" in physical:
            assert 1 <= physical["region"]["startLine"] <= physical["region"]["endLine"]


def test_what_the_schema_requires_is_there(tmp_path: Path) -> None:
    log = document(make_project(tmp_path))
    check_required(log)
    assert len(log["runs"][0]["results"]) >= 4


def test_a_project_without_findings_is_a_valid_log(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    log = document(tmp_path)
    check_required(log)
    assert log["runs"][0]["results"] == []


def test_levels_follow_status_and_risk(tmp_path: Path) -> None:
    results = document(make_project(tmp_path))["runs"][0]["results"]
    for result in results:
        status, risk = result["properties"]["status"], result["properties"]["risk"]
        expected = "note" if status != "manual" else "error" if risk == "high" else "warning"
        assert result["level"] == expected
    assert {"note", "error"} <= {result["level"] for result in results}


def test_odd_names_become_proper_addresses(tmp_path: Path) -> None:
    (tmp_path / "a b#é%.py").write_text("import tensorflow as tf\ntf.data.Dataset.range(3).batch(2)\n")
    log = document(tmp_path)
    check_required(log)
    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%20b%23%C3%A9%25.py"


def test_findings_of_a_notebook_name_the_cell_and_claim_no_line(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_bytes(dump(notebook(SET_UP, USE)))
    log = document(tmp_path, only=("dataset_drop_remainder",))
    check_required(log)
    (result,) = log["runs"][0]["results"]
    assert "region" not in result["locations"][0]["physicalLocation"]
    assert result["message"]["text"].startswith("n.ipynb cell 2:2: ")
