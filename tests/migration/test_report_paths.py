"""A report replaces only an earlier report of the same kind, never another file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migration.small_project import make_project, migrated_project
from viaduct.errors import BadValue
from viaduct.migration import report
from viaduct.migration.jsonreport import as_json
from viaduct.migration.report_paths import check_report_paths
from viaduct.migration.sarif import as_sarif
from viaduct.reporting import Page, write_page

FLAGS = ("--report", "--sarif", "--json")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: p / "train.py", "script of the project"),
        (lambda p: p / "data" / ".." / "new_folder" / ".." / "train.py", "no folder"),
        (lambda p: p / "data", "is a folder"),
        (lambda p: p.parent / "none" / "r.html", "no folder"),
        (lambda p: p / "README.md" / "r.html", "no folder"),
        (lambda p: p / "dangling", "not a plain file"),
        (lambda p: p / "link.html", "not a plain file"),
        (lambda p: p.parent / "out" / "train.py", "script of the project"),
        (lambda p: p.parent / "out", "is a folder"),
    ],
)
def test_what_no_report_may_replace(project: Path, make: object, word: str, flag: str, force: bool) -> None:
    os.symlink("nowhere", project / "dangling")
    os.symlink("README.md", project / "link.html")
    path = make(project)  # type: ignore[operator]
    with pytest.raises(BadValue, match=word):
        check_report_paths(project, {flag: path}, project.parent / "out", force)


@pytest.mark.parametrize("flag", FLAGS)
def test_other_files_are_replaced_only_with_force(project: Path, flag: str) -> None:
    for path in (project / "README.md", project.parent / "out" / "README.md"):
        with pytest.raises(BadValue, match="not an earlier report"):
            check_report_paths(project, {flag: path}, project.parent / "out", False)
        check_report_paths(project, {flag: path}, project.parent / "out", True)


def test_the_script_itself_is_refused_where_it_alone_is_migrated(project: Path) -> None:
    script, out = project / "plain.py", project.parent / "out"
    for path in (script, out / "plain.py"):
        with pytest.raises(BadValue, match="script of the project"):
            check_report_paths(script, {"--json": path}, out, True)
    check_report_paths(script, {"--json": out / "README.md"}, out, False)


def test_a_new_file_is_welcome_within_the_project_and_within_the_copy(project: Path) -> None:
    out = project.parent / "out"
    paths = {"--report": project / "r.html", "--json": out / "r.json", "--sarif": None}
    check_report_paths(project, paths, out, False)


def test_a_report_replaces_one_of_its_kind_and_no_other(project: Path) -> None:
    outcome = migrated_project(project)
    paths = {"--report": project / "r", "--sarif": project / "s", "--json": project / "j"}
    report.write(outcome, paths["--report"])
    paths["--sarif"].write_text(as_sarif(outcome), encoding="utf-8")
    paths["--json"].write_text(as_json(outcome), encoding="utf-8")
    check_report_paths(project, paths, None, False)
    for flag in FLAGS:
        for path in (path for kind, path in paths.items() if kind != flag):
            with pytest.raises(BadValue, match="not an earlier report"):
                check_report_paths(project, {flag: path}, None, False)


def test_a_page_of_another_verb_is_not_ours(tmp_path: Path) -> None:
    write_page(Page("a run"), tmp_path / "report.html")
    with pytest.raises(BadValue, match="not an earlier report"):
        check_report_paths(tmp_path, {"--report": tmp_path / "report.html"}, None, False)


def test_two_reports_do_not_share_a_file(project: Path) -> None:
    paths = {"--json": project / "r", "--sarif": project / "data" / ".." / "r"}
    with pytest.raises(BadValue, match="--json and --sarif"):
        check_report_paths(project, paths, None, True)
