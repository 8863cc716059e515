"""A tuning run from the observed step to the verdict, with a worker that measures nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from training import tiny_runs
from tuning.bank_entries import HERE, make_entry
from tuning.in_process import SPACE
from viaduct.errors import BadValue, ViaductError
from viaduct.recipes import LoadedRecipe
from viaduct.training.tuned import TuneReport, TuneRequest, TuningSession, choose_for_training, install, make_job
from viaduct.tuning.bank import Bank, BankContents, Verdict
from viaduct.tuning.location import locate_bank
from viaduct.tuning.signature import Signature
from viaduct.tuning.tuner import Operator, Outcome
from viaduct.tuning.worker_process import WorkerFailed

STEP = Signature.of("threads", recipe="tiny")
JUDGED = {"without_us": 100.0, "with_us": 80.0, "ratio": 0.8, "is_faster": True, "turns": 9, "others": 0.0}


class JudgeWorker:
    """Answers the request for a verdict; counts how often it was asked."""

    def __init__(self, **answer: Any) -> None:
        self.answer, self.asked = {**JUDGED, **answer}, 0

    def send_request(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        self.asked += 1
        if "lost" in self.answer:
            raise WorkerFailed("killed by SIGSEGV")
        return self.answer


def judge(folder: Path, worker: JudgeWorker) -> TuneReport:
    """Judge one better and one default entry of a bank in this folder."""
    request = TuneRequest(LoadedRecipe("tiny", tiny_runs.RECIPE, "", None), locate_bank(folder))
    report = TuneReport(request.location.path, HERE, step_us=100.0)
    session = TuningSession(request, report, worker, "cpu", time.monotonic() + 60, lambda line: None)  # type: ignore[arg-type]
    better, default = make_entry("a"), make_entry("b", choice={"layout": "as_given"})
    for entry in (better, default):
        if entry.signature.key not in Bank(folder).read(HERE).entries:
            Bank(folder).update(HERE, lambda stored, entry=entry: stored.with_entry(entry))
        stored_entry = Bank(folder).read(HERE).entries[entry.signature.key]
        operator = Operator(entry.signature, ("layer",), 1, SPACE)
        report.outcomes.append(Outcome(operator, entry=stored_entry, default_us=100.0))
    session.judge(STEP)
    return report


def read(folder: Path) -> BankContents:
    return Bank(folder).read(HERE)


def test_a_gain_of_the_whole_step_installs_the_choices(tmp_path: Path) -> None:
    report = judge(tmp_path, JudgeWorker())
    assert report.verdict is not None
    assert report.verdict.is_gain
    assert read(tmp_path).entries["conv2d x=a"].installed
    assert not read(tmp_path).entries["conv2d x=b"].installed
    assert choose_for_training(read(tmp_path), STEP.key) == {"conv2d x=a": {"layout": "contiguous"}}
    again = JudgeWorker()
    judge(tmp_path, again)
    assert again.asked == 0, "the same choices are judged once"


@pytest.mark.parametrize("answer", [{"is_faster": False}, {"ratio": 0.995}, {"ratio": 1.4, "is_faster": False}])
def test_without_a_gain_of_the_whole_step_nothing_is_installed(tmp_path: Path, answer: dict[str, Any]) -> None:
    report = judge(tmp_path, JudgeWorker(**answer))
    assert report.verdict is not None
    assert not report.verdict.is_gain
    assert not read(tmp_path).entries["conv2d x=a"].installed
    assert "no gain" in read(tmp_path).entries["conv2d x=a"].note
    assert choose_for_training(read(tmp_path), STEP.key) == {}


@pytest.mark.parametrize("answer", [{"turns": 4}, {"lost": True}])
def test_what_was_not_measured_to_the_end_is_no_verdict(tmp_path: Path, answer: dict[str, Any]) -> None:
    report = judge(tmp_path, JudgeWorker(**answer))
    assert report.verdict is None
    assert any("nothing is installed" in line for line in report.lines)
    assert read(tmp_path).verdicts == {}
    assert judge(tmp_path, JudgeWorker()).verdict is not None


def test_choices_that_another_recipe_gained_by_are_used_unless_this_one_does_not() -> None:
    entry = make_entry("a")
    gained = Verdict("another step", {entry.signature.key: entry.choice}, 10.0, 8.0, 1.25, 9, True)
    stored = install(BankContents(HERE).with_entry(entry), gained)
    assert choose_for_training(stored, "this step") == {entry.signature.key: entry.choice}
    stored = install(stored, Verdict("this step", gained.choices, 10.0, 11.0, 0.9, 9, False))
    assert choose_for_training(stored, "this step") == {}
    assert choose_for_training(stored, "another step") == {entry.signature.key: entry.choice}


def test_a_recipe_without_tunable_operators_is_refused(tmp_path: Path) -> None:
    request = TuneRequest(LoadedRecipe("tiny", tiny_runs.RECIPE, "", None), locate_bank(tmp_path))
    answer = {"operators": [], "step_us": 5.0, "obstacle": None, "batch": 8, "way": "fp32", "threads": STEP.encode()}
    worker: Any = JudgeWorker(**answer)
    report = TuneReport(request.location.path, HERE)
    session = TuningSession(request, report, worker, "cuda", time.monotonic() + 60, lambda line: None)
    with pytest.raises(BadValue, match="tiny has no tunable operators"):
        session.run()
    lost: Any = JudgeWorker(lost=True)
    session = TuningSession(request, report, lost, "cuda", time.monotonic() + 60, lambda line: None)
    with pytest.raises(ViaductError, match="observing a step failed"):
        session.run()


def test_the_recipes_own_batch_is_tuned_and_steps_are_not_captured(tmp_path: Path) -> None:
    request = TuneRequest(LoadedRecipe("tiny", tiny_runs.RECIPE, "", None), locate_bank(tmp_path))
    recipe = make_job(request).change_recipe()
    assert (recipe.data.global_batch, recipe.sink) == (8, 0)
