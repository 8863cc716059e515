"""The page of a carry in a browser, in the widths of a phone and of a desktop."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.carry_scripts import ON_THE_NPU, TORCH, carry_copy, replace_once
from reporting.browser import needs_browser, open_page

pytestmark = [pytest.mark.browser, needs_browser]

LOOK = """
(() => {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((each) => each.textContent.trim());
  const inside = (each) => each.getBoundingClientRect().right <= document.documentElement.clientWidth;
  const names = (list) => [...list.querySelectorAll("dt")].map((name) => name.textContent);
  const lists = [...document.querySelectorAll("dl")].map(names);
  const boxes = [...document.querySelectorAll(".scroll, .diff-scroll")];
  return {
    page: document.documentElement.scrollWidth,
    names: texts(".named-bars dt"),
    amounts: texts(".named-bars .amount").length,
    inside: [...document.querySelectorAll(".named-bars dt, .named-bars .amount, .headline")].every(inside),
    twice: lists.flatMap((list) => list.filter((name, place) => list.indexOf(name) !== place)),
    emptyHeadings: [...document.querySelectorAll("th, h2, h3")].filter((each) => !each.textContent.trim()).length,
    sideways: boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).length,
    scale: texts(".scale-name"),
    labels: [...document.querySelectorAll(".stacks td")].filter((cell) => getComputedStyle(cell).display === "contents")
      .filter((cell) => getComputedStyle(cell, "::before").whiteSpace === "nowrap").length,
  };
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report of a script that was migrated with a wrong epsilon."""
    wrong = replace_once(ON_THE_NPU, "eps=1e-5", "eps=1e-2")
    result = carry_copy(tmp_path_factory.mktemp("carry"), TORCH, wrong, "--steps", "4")
    assert result.code == 1, result.stderr
    return result.out / "report.html"


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1200, False), (1200, True)])
def test_layers_are_named_and_nothing_is_cut_twice_or_empty(page: Path, width: int, dark: bool) -> None:
    visit = open_page(page, width=width, dark=dark, script=LOOK)
    assert (visit.console, visit.requests) == ([], [])
    found = visit.answer
    assert found["page"] == width
    assert "first.weight" in found["names"]
    assert len(found["names"]) == len(set(found["names"])) >= 6
    assert found["amounts"] > len(found["names"])
    assert found["inside"]
    assert found["twice"] == []
    assert found["emptyHeadings"] == 0
    assert found["sideways"] == 0
    assert "log scale" in found["scale"]
    assert found["labels"] == 0, "the name of a column wraps beside its cell"
