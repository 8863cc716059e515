"""Conduct a search: draw parameters, start trials, read their evaluations, stop the weak ones (see `conduct`).

One process does this, with up to `parallel` trials in processes of their own. Every result is written to the study's
database at once, so that a killed search loses only what its running trials have trained since their last checkpoints.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from viaduct.runs.search.results import (
    PAST,
    describe_values,
    fold_numbers,
    format_value,
    rank_results,
    read_results,
)
from viaduct.runs.search.sampling import PrunerName, SamplerName, make_pruner, make_sampler
from viaduct.runs.search.space import Space, Value
from viaduct.runs.search.trial_process import Evaluation, TrainLauncher, TrainProcess

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

End = Literal["done", "interrupted", "timeout", "failing"]
MAX_EQUAL_FAILURES = 3
"""First trials that fail for the same reason, after which the others are not tried."""
DIVERGED = "the loss became"
"""Beginning of the reason of a trial whose loss became NaN or infinite."""


@dataclass(frozen=True)
class Plan:
    """How a study is searched; another search may continue it with another plan."""

    trials: int
    """All trials of the study, those of earlier searches included; past runs are not counted."""
    parallel: int = 1
    sampler: SamplerName = "tpe"
    pruner: PrunerName = "none"
    evaluations: int = 1
    """Evaluations of a trial, the last one included."""
    seed: int = 0
    timeout_s: float | None = None
    first: dict[str, Value] | None = None
    """Values of the first trial, those of the recipe; None: they are drawn like the others."""
    poll_s: float = 0.25


@dataclass
class Active:
    """A trial that is being trained."""

    number: int
    slot: int
    trial: Trial
    run: TrainProcess
    began: float = field(default_factory=time.monotonic)
    pruned: bool = False
    pruned_because: str = ""
    reported: int = 0
    """Evaluations that were passed to the study."""


@dataclass
class Conductor:
    """Searches a study to the number of trials that a plan asks for."""

    study: Study
    space: Space
    metric: str
    launcher: TrainLauncher
    plan: Plan
    say: Callable[[str], None]
    """Prints a line of progress."""
    is_interrupted: Callable[[], bool] = lambda: False
    is_hurried: Callable[[], bool] = lambda: False
    """True: running trials are killed when the search ends, without a last checkpoint."""
    active: list[Active] = field(default_factory=list)
    unfinished: list[tuple[int, FrozenTrial]] = field(default_factory=list)
    """Trials of an earlier search that are resumed before others are started."""
    failures: list[str] = field(default_factory=list)
    """Reasons why trials of this search have failed; failures of an earlier search do not count."""
    began: float = field(default_factory=time.monotonic)

    def conduct(self) -> End:
        """Search, and return why the search has ended. Trials that were cut off are resumed by the next search."""
        self.unfinished = self.find_unfinished()
        while True:
            end = self.should_end()
            if end:
                return self.stop_all(end)
            while len(self.active) < self.plan.parallel and self.start_next():
                pass
            if not self.active:
                return "done"
            self.watch()
            time.sleep(self.plan.poll_s if self.active else 0)

    def own_trials(self) -> list[FrozenTrial]:
        """Return the trials without the past runs; the index of a trial is its number."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if PAST not in trial.user_attrs]

    def find_unfinished(self) -> list[tuple[int, FrozenTrial]]:
        """Return the trials that an earlier search had started and not ended."""
        from optuna.trial import TrialState

        numbered = enumerate(self.own_trials())
        return [(number, trial) for number, trial in numbered if trial.state == TrialState.RUNNING]

    def attach(self, trial: FrozenTrial, number: int) -> Trial:
        """Return a trial of an earlier search as an Optuna trial that takes reports."""
        import optuna

        self.study.sampler = make_sampler(self.plan.sampler, self.plan.seed, number, self.plan.trials)
        return optuna.trial.Trial(self.study, trial._trial_id)

    def should_end(self) -> End | None:
        if self.is_interrupted():
            return "interrupted"
        if self.plan.timeout_s is not None and time.monotonic() - self.began >= self.plan.timeout_s:
            return "timeout"
        return "failing" if self.fails_always() else None

    def start_next(self) -> bool:
        """Resume a trial, or draw the parameters of the next one and start it; return False if no trial remains."""
        if self.unfinished:
            number, trial = self.unfinished.pop(0)
            self.say(f"trial {number + 1}/{self.plan.trials}: resumed; it was cut off.")
            self.start(number, self.attach(trial, number))
            return True
        next_number = self.next_number()
        if next_number is None:
            return False
        self.study.sampler = make_sampler(self.plan.sampler, self.plan.seed, next_number, self.plan.trials)
        self.start(next_number, self.study.ask())
        return True

    def next_number(self) -> int | None:
        """Return the number of the next trial, None after the last; values of a grid or of `first` are enqueued."""
        from optuna.trial import TrialState

        own = self.own_trials()
        for number, trial in enumerate(own):
            if trial.state == TrialState.WAITING:
                return number
        if len(own) >= self.plan.trials:
            return None
        if self.plan.sampler == "grid":
            tried = [trial.params for trial in own]
            point = next((point for point in self.space.grid() if point not in tried), None)
            if point is None:
                return None
            self.study.enqueue_trial(point)
        elif not own and self.plan.first is not None:
            self.study.enqueue_trial(self.plan.first)
        return len(own)

    def start(self, number: int, trial: Trial) -> None:
        values = {dimension.path: dimension.suggest(trial) for dimension in self.space.dimensions}
        slot = min(set(range(self.plan.parallel)) - {active.slot for active in self.active})
        run = self.launcher.start(number, self.space.settings(values), slot)
        reported = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        self.active.append(Active(number, slot, trial, run, reported=len(reported)))

    def watch(self) -> None:
        """Report new evaluations of the running trials, stop the weak ones, and record those that have ended."""
        for active in list(self.active):
            code = active.run.poll()
            self.report(active, ended=code is not None)
            if code is not None:
                self.finish(active, code)
                self.active.remove(active)

    def report(self, active: Active, ended: bool) -> None:
        """Pass new evaluations to the study; after each of them but the last the pruner may stop the trial."""
        evaluations = active.run.evaluations()
        for index, evaluation in enumerate(evaluations[active.reported :], start=active.reported + 1):
            active.trial.report(evaluation.value, index)
            active.reported = index
            if not ended and not active.pruned and index < self.plan.evaluations and self.is_weak(active.trial):
                active.pruned = True
                active.pruned_because = self.describe_pruning(evaluation, index)
                active.run.stop()

    def describe_pruning(self, evaluation: Evaluation, index: int) -> str:
        """Return at which step a trial is stopped, by which pruner and at which value."""
        value = format_value(evaluation.value, self.metric)
        return (
            f"stopped by {self.plan.pruner} after step {evaluation.step:,} at {self.metric} {value}, "
            f"evaluation {index} of {self.plan.evaluations}"
        )

    def is_weak(self, trial: Trial) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features of Optuna 4
            self.study.pruner = make_pruner(self.plan.pruner, self.plan.evaluations)
            return trial.should_prune()

    def finish(self, active: Active, code: int) -> None:
        """Record how a trial has ended in the study and in its run, and print a line of progress."""
        from optuna.trial import TrialState

        trial, run = active.trial, active.run
        seconds = time.monotonic() - active.began
        trial.set_user_attr("seconds", round(seconds, 2))
        value = run.final() if code == 0 else None
        if value is not None:
            trial.set_user_attr("images", run.images())
            self.study.tell(trial, value)
        elif active.pruned:
            trial.set_user_attr("reason", active.pruned_because)
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.failures.append(run.reason())
            trial.set_user_attr("reason", self.failures[-1])
            self.study.tell(trial, state=TrialState.FAIL)
        result = next(result for result in read_results(self.study, self.space) if result.number == active.number)
        run.mark(result.state, result.value, result.reason)
        self.say(self.describe(active.number))

    def describe(self, number: int) -> str:
        """Return the line of progress about a trial that has ended."""
        results = read_results(self.study, self.space)
        result = next(result for result in results if result.number == number)
        outcome = f"{self.metric} {format_value(result.value, self.metric)}"
        if result.state == "pruned":
            outcome = f"stopped early at {outcome}"
        elif result.state == "failed":
            outcome = f"failed: {result.reason}"
        ranked = rank_results(results, self.study.direction.name.lower())
        best = f"; best {format_value(ranked[0].value, self.metric)}, {ranked[0].name}" if ranked else ""
        took = f" in {result.seconds:.0f} s" if result.seconds is not None else ""
        return f"trial {number + 1}/{self.plan.trials}: {describe_values(result.values)}: {outcome}{took}{best}"

    def fails_always(self) -> bool:
        """Return True if no trial of the study has succeeded and at least MAX_EQUAL_FAILURES failed for one reason.

        A loss that diverged is no such reason: other values may train.
        """
        from optuna.trial import TrialState

        states = {trial.state for trial in self.own_trials()}
        if len(self.failures) < MAX_EQUAL_FAILURES or states & {TrialState.COMPLETE, TrialState.PRUNED}:
            return False
        reasons = {fold_numbers(reason) for reason in self.failures}
        return len(reasons) == 1 and not self.failures[0].startswith(DIVERGED)

    def stop_all(self, end: End) -> End:
        """Ask the running trials to write a checkpoint and wait for them, or kill them if `is_hurried`.

        Return `end`.
        """
        for active in self.active:
            active.run.stop()
        while self.active:
            for active in list(self.active):
                if self.is_hurried():
                    active.run.kill()
                code = active.run.poll()
                if code is None:
                    continue
                self.report(active, ended=True)
                if code == 0 or active.pruned:  # it had finished, or the pruner had stopped it
                    self.finish(active, code)
                self.active.remove(active)
            time.sleep(self.plan.poll_s if self.active else 0)
        return end
