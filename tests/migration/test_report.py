"""The page of a migration: what it says, and how it behaves in a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from migration.notebook_files import SET_UP, USE, dump, notebook
from migration.small_project import make_project, migrated_project
from reporting.browser import needs_browser, open_page
from viaduct.migration.report import make_diffs, make_page, write
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
    for words in (
        "project to NPU",
        "Manual review",
        "Requirements",
        "verdict",
        "viaduct migrate project",
        "drop_remainder",
    ):
        assert words in text
    assert "n.ipynb cell 2:2" in text
    assert "http://" not in text
    assert "https://" not in text


def test_findings_speak_chinese_when_requested(tmp_path: Path) -> None:
    assert "丢弃" in render_page(make_page(migrated_project(make_project(tmp_path)), "zh"))


def test_the_same_project_gives_the_same_page(tmp_path: Path) -> None:
    make_project(tmp_path)
    assert render_page(make_page(migrated_project(tmp_path))) == render_page(make_page(migrated_project(tmp_path)))


def test_a_project_in_which_nothing_is_found_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    text = render_page(make_page(migrated_project(tmp_path)))
    assert re.findall(r'<h2 id="[^"]*">([^<]*)</h2>', text) == ["Summary", "Manual review", "Files"]
    assert "nothing to show" not in text
    assert "Nothing to change: 0 edits" in text


def test_a_migration_by_some_rules_is_not_called_reviewed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = torch.zeros(1).cuda()\n")
    text = render_page(make_page(migrated_project(tmp_path, to="npu", only=("torch.nvtx",))))
    assert "No finding needs manual review, but the migration is incomplete: see Summary." in text
    assert "see Not read" not in text


def test_a_file_that_was_not_understood_is_not_spoken_for(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = (\n")
    (tmp_path / "b.py").write_text("import torch\ntorch.ones(1).cuda()\n")
    text = render_page(make_page(migrated_project(tmp_path)))
    assert "all that was found could be decided" not in text


def test_a_file_with_findings_and_no_change_is_not_called_new(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = getattr(y, 'is_cuda')\n")
    (file,) = make_diffs(migrated_project(tmp_path), "en")
    assert file.note == "unchanged"


def test_a_hostile_file_name_and_hostile_source_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202e.py"
    (tmp_path / name).write_text("import torch  # \x1b[31m\u202e<script>alert(1)</script>\ntorch.ones(1).cuda()\n")
    text = render_page(make_page(migrated_project(tmp_path)))
    assert "<img src=x" not in text
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "&lt;img src=x onerror=" in text
    assert "\\u202e" in text


FILTER = """
(() => {
  const [state, group] = document.querySelectorAll('.diff-bar select');
  const visible = (what) => [...document.querySelectorAll(what)].filter((one) => one.offsetParent !== null);
  const count = () => [visible('.diff-comment').length, visible('.diff-file').length];
  const change = (select, value) => { select.value = value; select.dispatchEvent(new Event('change')); };
  const answers = {all: count(), bars: document.querySelectorAll('.diff-bar').length};
  change(state, 'manual review');
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
    assert set(answers["left"]) == {"manual review"}
    assert answers["said"].startswith(f"{len(answers['left'])} of {answers['all'][0]} findings")
    assert set(answers["rule"]) == {"tf1.dataset_drop_remainder"}
    assert answers["files"] == 2
    assert answers["again"] == answers["all"]
    assert answers["folded"] == 0


STACKED = """
(() => {
  const row = document.querySelector('tr.diff-changed');
  const [old, now] = ['.diff-old', '.diff-new'].map((side) => row.querySelector(side).getBoundingClientRect());
  const same = document.querySelector('tr.diff-same');
  const boxes = [...document.querySelectorAll('.diff-scroll, .scroll')];
  return {
    page: document.documentElement.scrollWidth,
    stacked: old.bottom <= now.top + 1 && Math.abs(old.left - now.left) < 1,
    beside: old.right <= now.left + 1 && Math.abs(old.top - now.top) < 1,
    once: [...same.cells].filter((cell) => cell.getClientRects().length).length,
    sideways: boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).length,
    cards: [...document.querySelectorAll('.stacks thead')].every((head) => getComputedStyle(head).display === 'none'),
  };
})()
"""


@pytest.mark.browser
@needs_browser
def test_the_diff_stacks_on_a_phone_and_nothing_scrolls_sideways(report: Path) -> None:
    phone = open_page(report, width=390, script=STACKED)
    assert phone.console == []
    assert phone.answer == {
        "page": 390,
        "stacked": True,
        "beside": False,
        "once": 2,
        "sideways": 0,
        "cards": True,
    }
    desk = open_page(report, width=1200, script=STACKED)
    assert (desk.answer["beside"], desk.answer["page"], desk.answer["sideways"]) == (True, 1200, 0)


@pytest.mark.browser
@needs_browser
def test_cards_on_a_phone_sort_by_a_list(report: Path) -> None:
    script = """
    const select = document.querySelector(".sort-by select");
    const order = (value) => {
      select.value = value;
      select.dispatchEvent(new Event("change"));
      const table = select.closest("figure").querySelector("table");
      return [...table.tBodies[0].rows].map((row) => row.cells[1].textContent);
    };
    [order("1 ascending"), order("1 descending"), order("-1 none")]
    """
    up, down, given = open_page(report, width=390, script=script).answer
    assert up == sorted(up) == down[::-1]
    assert sorted(given) == up


@pytest.mark.browser
@needs_browser
def test_the_page_can_be_read_without_scripts_and_fits_a_narrow_window(report: Path) -> None:
    plain = open_page(report, with_scripts=False)
    assert "drop_remainder" in plain.dom
    narrow = open_page(report, width=400, script="document.documentElement.scrollWidth")
    assert narrow.answer <= 400
    assert narrow.console == []
