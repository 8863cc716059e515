"""The page of a run: what it says of a run that was stopped, and in which units."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training.tiny_runs import PER_EPOCH, RECIPE, After, train_recipe
from viaduct.recipes import LoadedRecipe, Recipe, Top1
from viaduct.training.callbacks import Checkpointing, MetricsFile
from viaduct.training.report import write_report
from viaduct.training.rundir import RunDir
from viaduct.training.summary import summarise

STEPS = 2 * PER_EPOCH
FINAL = re.compile(r"finished|complete|final score|as hoped", re.IGNORECASE)


def page_of(folder: Path, recipe: Recipe = RECIPE, stop_at: int = 0, **more: Any) -> str:
    """The report of a run that is interrupted after `stop_at` steps, 0: never."""
    received: list[int] = []
    callbacks = [MetricsFile(), Checkpointing(), After(stop_at, lambda training: received.append(15))]
    run = RunDir(folder)
    done = train_recipe(recipe, run, *callbacks, read_signal=lambda: received[0] if received else 0)
    loaded = LoadedRecipe("tiny", recipe, "Tiny.", None)
    write_report(loaded, done, summarise(loaded, done, "viaduct train tiny"), **more)
    text = run.report.read_text(encoding="utf-8")
    return text[text.index("<body>") : text.index("<script>\n")]


def test_a_run_that_took_every_step_has_nothing_to_say_about_its_end(tmp_path: Path) -> None:
    text = page_of(tmp_path)
    assert "Stopped" not in text
    assert "Ended early" not in text
    assert f">{STEPS} steps, 2.0 epochs, on " in text


@pytest.mark.parametrize("stop_at", [3, PER_EPOCH + 2])
def test_a_stopped_run_says_so_first_and_never_that_it_finished(stop_at: int, tmp_path: Path) -> None:
    text = page_of(tmp_path, replace(RECIPE, expects=Top1(97.0, within=2.0)), stop_at)
    assert f"Stopped after step {stop_at} of {STEPS}." in text
    assert text.index("Stopped after") < text.index('<section id="section-1"')
    assert f"{stop_at} of {STEPS} steps" in text
    assert "Resume</dt><dd>viaduct train " in text
    assert not FINAL.search(text)
    if stop_at > PER_EPOCH:
        assert f"at step {PER_EPOCH}; expected 97 % ± 2 at the end" in text, "not judged before its end"


def test_the_reason_of_a_diverged_run_is_on_its_page(tmp_path: Path) -> None:
    text = page_of(tmp_path, stop_at=3, stopped="the loss became nan at step 4, with learning rate 0.1.")
    assert f"Stopped after step 3 of {STEPS}: the loss became nan at step 4, with learning rate 0.1." in text
    assert 'class="part callout tone-bad"' in text
    assert not FINAL.search(text)


def test_a_run_that_met_its_threshold_ended_early_and_says_why(tmp_path: Path) -> None:
    early = After(3, lambda training: training.request_stop("top-1 50.00 % reached the stop threshold of 40 %"))
    run = RunDir(tmp_path)
    done = train_recipe(RECIPE, run, MetricsFile(), early)
    loaded = LoadedRecipe("tiny", RECIPE, "Tiny.", None)
    write_report(loaded, done, summarise(loaded, done, "viaduct train tiny"))
    text = run.report.read_text(encoding="utf-8")
    assert f"Ended early, after step 3 of {STEPS}: top-1 50.00 % reached the stop threshold of 40 %." in text


def test_a_run_stopped_before_its_first_line_of_log_has_a_page_without_empty_charts(tmp_path: Path) -> None:
    text = page_of(tmp_path, replace(RECIPE, log=replace(RECIPE.log, every_steps=100)), stop_at=1)
    assert "Stopped after step 1" in text
    assert "no data" not in text
    assert "no rows" not in text


def test_shares_are_percent_in_tiles_tables_and_charts(tmp_path: Path) -> None:
    text = page_of(tmp_path)
    cells = re.findall(r'<td class="number"[^>]*>(?:<span>)?([^<]*)<', text)
    assert len([cell for cell in cells if re.fullmatch(r"\d+\.\d\d %", cell)]) == 10  # two evaluations of five shares
    assert ">accuracy (%)</p>" in text
    assert ">top-1</th>" in text
    assert re.search(r'macro F1</span>\s*<span class="value">\d+\.\d\d %', text)


def test_no_fact_of_the_machine_is_there_twice(tmp_path: Path) -> None:
    names = [name.lower() for name in re.findall(r"<dt>([^<]*)</dt>", page_of(tmp_path))]
    assert len(names) == len(set(names)), names
