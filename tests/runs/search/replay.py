"""A search whose trials are looked up in a table of measured runs: seconds instead of hours, the same decisions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna

from viaduct.recipes import load
from viaduct.runs.search.past_runs import PastRun, add_past_runs
from viaduct.runs.search.search_loop import Plan, SearchLoop
from viaduct.runs.search.space import Space, parse_space
from viaduct.runs.search.trial_process import Evaluation

RECORDED = json.loads((Path(__file__).parent / "recorded_trials.json").read_text())
LR, MOMENTUM = "optimizer.lr", "optimizer.momentum"
FIELDS = [f"{LR}=0.001..3:log", f"{MOMENTUM}=0,0.5,0.9,0.95"]


def recorded_space() -> Space:
    return parse_space(load("shapes_taster").recipe, FIELDS)


def look_up(seed: int, settings: Mapping[str, str]) -> list[float]:
    """Return the accuracies of the recorded run whose learning rate is nearest, on a log scale."""
    rows = [row for row in RECORDED["trials"] if row["seed"] == seed and row["momentum"] == float(settings[MOMENTUM])]
    wanted = math.log(float(settings[LR]))
    return list(min(rows, key=lambda row: abs(math.log(row["lr"]) - wanted))["top1"])


@dataclass
class RecordedRun:
    """A trial that has one evaluation more at every reading, as a process has while it trains."""

    values: list[float]
    code: int = 0
    why: str = ""
    shown: int = 0
    stopped: bool = False
    marked: str = ""
    marked_reason: str = ""

    def poll(self) -> int | None:
        self.shown += 1
        if self.code:
            return self.code
        if self.stopped:
            return 143
        return 0 if self.shown >= len(self.values) else None

    def list_evaluations(self) -> list[Evaluation]:
        return [Evaluation(30 * (index + 1), value) for index, value in enumerate(self.values[: self.shown])]

    def read_final(self) -> tuple[float | None, int | None]:
        return self.values[-1], int(RECORDED["validation_images"])

    def find_failure_reason(self) -> str:
        return self.why

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.stopped = True

    def write_outcome(self, state: str, value: float | None, reason: str) -> None:
        self.marked, self.marked_reason = state, reason


@dataclass
class RecordedLauncher:
    """Starts recorded trials; `fails` may return why a trial fails instead."""

    seed: int
    fails: Callable[[int, Mapping[str, str]], str] = lambda number, settings: ""
    started: list[tuple[int, dict[str, str]]] = field(default_factory=list)

    def start(self, number: int, settings: Mapping[str, str], slot: int) -> RecordedRun:
        self.started.append((number, dict(settings)))
        if why := self.fails(number, settings):
            return RecordedRun([], code=2, why=why)
        return RecordedRun(look_up(self.seed, settings))


def make_study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction="maximize", study_name="search")


def make_search_loop(study: optuna.Study, plan: Plan, launcher: Any = None, **more: Any) -> SearchLoop:
    launcher = launcher or RecordedLauncher(seed=1)
    return SearchLoop(study, recorded_space(), "top1", launcher, replace(plan, poll_s=0), lambda line: None, **more)


def past_runs(seed: int, count: int, draw: int) -> list[PastRun]:
    """Return what a random search of another seed has left behind: so many recorded runs."""
    launcher, study = RecordedLauncher(seed=seed), make_study()
    make_search_loop(study, Plan(count, sampler="random", seed=draw), launcher).run()
    space = recorded_space()
    return [
        PastRun(
            Path(f"/past/{draw}/{trial.number}"),
            {path: trial.params[path] for path in space.paths},
            trial.value,
            images=1000,
            seed=seed,
        )
        for trial in study.trials
        if trial.value is not None
    ]


def trials_until(target: float, plan: Plan, past: list[PastRun]) -> int:
    """Return how many new trials a search needs to reach an accuracy; one more than it may have if it does not."""
    study = make_study()
    add_past_runs(study, past, recorded_space())
    launcher = RecordedLauncher(seed=1)
    make_search_loop(study, plan, launcher).run()
    reached = [look_up(1, settings)[-1] >= target for _, settings in launcher.started]
    return reached.index(True) + 1 if True in reached else plan.trials + 1
