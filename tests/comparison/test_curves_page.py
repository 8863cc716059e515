"""The page of two loss curves: its scales, its units, and what it calls equal."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from comparison.test_curves import STEPS, falling, write_run
from reporting.browser import needs_browser, open_page
from viaduct.comparison.curves import compare_curves
from viaduct.comparison.curves_page import write_curves_report


def page_of(folder: Path, left: np.ndarray, right: np.ndarray) -> str:
    path = folder / "report.html"
    write_curves_report(path, compare_curves(write_run(folder / "npu", left), write_run(folder / "gpu", right)))
    text = path.read_text(encoding="utf-8")
    return text[text.index("<title>") : text.index("<script>\n")].replace("<wbr>", "")


def test_different_curves_are_not_called_equal(tmp_path: Path) -> None:
    text = page_of(tmp_path, falling(1), falling(2))
    assert "equal" not in text
    assert "<title>npu against gpu: comparison of loss curves</title>" in text
    assert "The loss curves agree within noise over 400 common steps." in text


def test_equal_losses_are_called_equal_and_their_difference_has_no_chart(tmp_path: Path) -> None:
    text = page_of(tmp_path, falling(1), falling(1))
    assert "The logged losses are all equal" in text
    assert "<h3>Difference" not in text
    assert "Size of the difference" not in text


@pytest.mark.parametrize("start", [0, 250])
def test_losses_that_are_nan_on_both_sides_are_neither_equal_nor_never_apart(start: int, tmp_path: Path) -> None:
    left, right = falling(1), falling(1)
    left[start:] = right[start:] = np.nan
    text = page_of(tmp_path, left, right)
    assert "equal" not in text
    assert ">no finite loss" in text
    assert f"{2 * (400 - start):,} values are NaN or infinite" in text


def test_a_loss_that_falls_through_decades_opens_on_a_log_scale(tmp_path: Path) -> None:
    losses = 10.0 ** (-STEPS / 100)
    charts = page_of(tmp_path, losses, losses * (1 + 0.2 * (STEPS > 150))).split("<figure")
    loss, size = (
        next(chart for chart in charts if f"<h3>{title}</h3>" in chart) for title in ("Loss", "Size of the difference")
    )
    assert loss.index("log scale") < loss.index(" hidden>")
    assert "150 values are zero, which a log scale cannot show" in size


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_its_window_and_names_the_log_scale(width: int, tmp_path: Path) -> None:
    losses = 10.0 ** (-STEPS / 100)
    page_of(tmp_path, losses, losses * (1 + 0.2 * (STEPS > 150)))
    script = """
    const scales = [...document.querySelectorAll(".scale-name")].map((each) => each.innerText);
    [document.documentElement.scrollWidth, ...scales]
    """
    visit = open_page(tmp_path / "report.html", width=width, script=script)
    assert (visit.console, visit.requests) == ([], [])
    assert visit.answer == [width, "log scale", "log scale"]


def test_accuracy_is_in_percent(tmp_path: Path) -> None:
    text = page_of(tmp_path, falling(1), falling(2))
    assert ">accuracy (%)</p>" in text
    assert re.search(r'"y":\[50(\.0)?\]', text)
