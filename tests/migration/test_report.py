"""The page of a migration: what it says, and how it behaves in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.small_project import make_project, migrated_project
from migration.test_notebooks import SET_UP, USE, dump, notebook
from reporting.browser import needs_browser, open_page
from viaduct.migration.report import page, write
from viaduct.reporting import render_page


@pytest.fixture
def report(tmp_path: Path) -> Path:
    project = make_project(tmp_path / "project")
    (project / "n.ipynb").write_bytes(dump(notebook(SET_UP, USE)))
    path = tmp_path / "report.html"
    write(migrated_project(project), path)
    return path


def test_the_page_has_the_summary_the_rest_and_the_command(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    for words in ("project to NPU", "Left for a person", "confidence", "viaduct migrate project", "drop_remainder"):
        assert words in text
    assert "n.ipynb cell 2:2" in text
    assert "http://" not in text
    assert "https://" not in text


def test_findings_speak_chinese_when_asked(tmp_path: Path) -> None:
    assert "丢弃" in render_page(page(migrated_project(make_project(tmp_path)), "zh"))


def test_the_same_project_gives_the_same_page(tmp_path: Path) -> None:
    make_project(tmp_path)
    assert render_page(page(migrated_project(tmp_path))) == render_page(page(migrated_project(tmp_path)))


def test_a_project_in_which_nothing_is_found_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    text = render_page(page(migrated_project(tmp_path)))
    assert "nothing to show" in text
    assert "nothing left for a person" in text


FILTER = """
(() => {
  const [state, group] = document.querySelectorAll('.diff-bar select');
  const visible = (what) => [...document.querySelectorAll(what)].filter((one) => one.offsetParent !== null);
  const count = () => [visible('.diff-comment').length, visible('.diff-file').length];
  const change = (select, value) => { select.value = value; select.dispatchEvent(new Event('change')); };
  const answers = {all: count(), bars: document.querySelectorAll('.diff-bar').length};
  change(state, 'for a person');
  answers.left = visible('.diff-comment').map((one) => one.dataset.state);
  answers.said = document.querySelector('.diff-bar output').textContent;
  change(state, '');
  change(group, 'tf1.dataset_drop_remainder');
  answers.rule = visible('.diff-comment').map((one) => one.dataset.group);
  answers.files = visible('.diff-file').length;
  change(group, '');
  answers.again = count();
  document.querySelector('.diff-bar button').click();
  answers.folded = document.querySelectorAll('.diff-file[open]').length;
  return answers;
})()
"""


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_filters_by_rule_and_outcome_and_asks_for_nothing(report: Path, dark: bool) -> None:
    visit = open_page(report, dark=dark, script=FILTER)
    assert visit.console == []
    assert visit.requests == []
    answers = visit.answer
    assert answers["bars"] == 1
    assert set(answers["left"]) == {"for a person"}
    assert answers["said"].startswith(f"{len(answers['left'])} of {answers['all'][0]} findings")
    assert set(answers["rule"]) == {"tf1.dataset_drop_remainder"}
    assert answers["files"] == 2
    assert answers["again"] == answers["all"]
    assert answers["folded"] == 0


@pytest.mark.browser
@needs_browser
def test_the_page_can_be_read_without_scripts_and_fits_a_narrow_window(report: Path) -> None:
    plain = open_page(report, with_scripts=False)
    assert "drop_remainder" in plain.dom
    narrow = open_page(report, width=400, script="document.documentElement.scrollWidth")
    assert narrow.answer <= 400
    assert narrow.console == []
