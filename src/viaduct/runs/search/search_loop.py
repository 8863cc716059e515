"""Search loop: draw parameters, start trials, read their evaluations, stop weak trials.

Trials run in separate processes, up to `parallel` at a time. Every result is written at once to Optuna's study, a
database, so that a killed search loses only the steps of running trials since their last checkpoints.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from viaduct.runs.search.results import (
    PAST_RUN,
    TrialResult,
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

End = Literal["done", "interrupted", "timeout", "failing"]  # failing: MAX_EQUAL_FAILURES was reached
MAX_EQUAL_FAILURES = 3  # the search ends if its first trials fail this many times, all for the same reason
DIVERGED = "the loss became"  # first words of the reason of a trial whose loss became NaN or infinite


@dataclass(frozen=True)
class Plan:
    """Options of a search. A later search may continue the study with other options."""

    trials: int  # number of trials of the study, including those of earlier searches, without past runs
    parallel: int = 1
    sampler: SamplerName = "tpe"
    pruner: PrunerName = "none"
    evaluations: int = 1  # evaluations of a trial, including the last one
    seed: int = 0  # of the sampler
    training_seed: int = 1  # of the recipe: the same in all trials
    timeout_s: float | None = None
    first: dict[str, Value] | None = None  # values of the first trial; None: they are drawn
    poll_s: float = 0.25  # seconds between two readings of the trials' files


@dataclass
class RunningTrial:
    """Trial whose end has not been recorded yet."""

    number: int
    slot: int  # part of the machine (cores or a card), from 0 to `parallel` - 1
    trial: Trial
    process: TrainProcess
    started_at: float = field(default_factory=time.monotonic)  # in this search; an earlier one may have begun the trial
    pruning_reason: str = ""  # why the pruner stopped the trial; empty: it did not
    reported: int = 0  # number of evaluations that were passed to the study


@dataclass
class SearchLoop:
    """Search loop of one study."""

    study: Study
    space: Space
    metric: str
    launcher: TrainLauncher
    plan: Plan
    print_line: Callable[[str], None]  # prints a line of progress
    is_interrupted: Callable[[], bool] = lambda: False
    must_kill: Callable[[], bool] = lambda: False  # True: kill running trials without a last checkpoint
    running: list[RunningTrial] = field(default_factory=list)
    unfinished: list[tuple[int, FrozenTrial]] = field(default_factory=list)  # trials of an earlier search to resume
    failures: list[str] = field(default_factory=list)  # reasons of the failed trials of this search
    started_at: float = field(default_factory=time.monotonic)

    def run(self) -> End:
        """Run the search and return the reason of its end. The next search resumes interrupted trials."""
        self.unfinished = self.find_unfinished()
        while True:
            end = self.find_end()
            if end:
                return self.stop_all(end)
            while len(self.running) < self.plan.parallel and self.start_next():
                pass
            if not self.running:
                return "done"
            self.check_trials()
            time.sleep(self.plan.poll_s if self.running else 0)

    def list_own_trials(self) -> list[FrozenTrial]:
        """Return the trials without the past runs. The index of a trial in this list is its number."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if PAST_RUN not in trial.user_attrs]

    def find_unfinished(self) -> list[tuple[int, FrozenTrial]]:
        """Return the trials of an earlier search that have not ended."""
        from optuna.trial import TrialState

        trials = enumerate(self.list_own_trials())
        return [(number, trial) for number, trial in trials if trial.state == TrialState.RUNNING]

    def restore_trial(self, trial: FrozenTrial, number: int) -> Trial:
        """Return a trial of an earlier search as an Optuna trial that accepts reports."""
        import optuna

        self.study.sampler = make_sampler(self.plan.sampler, self.plan.seed, number, self.plan.trials)
        return optuna.trial.Trial(self.study, trial._trial_id)

    def find_end(self) -> End | None:
        """Return the reason to end the search before all trials are done; None if there is none."""
        if self.is_interrupted():
            return "interrupted"
        if self.plan.timeout_s is not None and time.monotonic() - self.started_at >= self.plan.timeout_s:
            return "timeout"
        return "failing" if self.has_only_equal_failures() else None

    def start_next(self) -> bool:
        """Resume an unfinished trial or start the next one; return False if no trial remains."""
        if self.unfinished:
            number, trial = self.unfinished.pop(0)
            self.print_line(f"trial {number + 1}/{self.plan.trials}: resumed; it was cut off.")
            self.start_trial(number, self.restore_trial(trial, number))
            return True
        next_number = self.enqueue_next()
        if next_number is None:
            return False
        self.study.sampler = make_sampler(self.plan.sampler, self.plan.seed, next_number, self.plan.trials)
        self.start_trial(next_number, self.study.ask())
        return True

    def enqueue_next(self) -> int | None:
        """Return the number of the next trial, None after the last one.

        If the values of the trial are fixed (a combination of a grid, or `plan.first`), the study gets them here.
        """
        from optuna.trial import TrialState

        trials = self.list_own_trials()
        for number, trial in enumerate(trials):
            if trial.state == TrialState.WAITING:
                return number
        if len(trials) >= self.plan.trials:
            return None
        if self.plan.sampler == "grid":
            tried = [trial.params for trial in trials]
            point = next((point for point in self.space.list_combinations() if point not in tried), None)
            if point is None:
                return None
            self.study.enqueue_trial(point)
        elif not trials and self.plan.first is not None:
            self.study.enqueue_trial(self.plan.first)
        return len(trials)

    def start_trial(self, number: int, trial: Trial) -> None:
        """Start or resume the process of a trial, with the parameters that it has or that are drawn for it."""
        values = {dimension.path: dimension.suggest(trial) for dimension in self.space.dimensions}
        slot = min(set(range(self.plan.parallel)) - {entry.slot for entry in self.running})
        process = self.launcher.start(number, self.space.make_settings(values), slot)
        reported = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        self.running.append(RunningTrial(number, slot, trial, process, reported=len(reported)))

    def check_trials(self) -> None:
        """Report new evaluations of running trials, stop weak trials, and record trials that have ended."""
        for entry in list(self.running):
            code = entry.process.poll()
            self.report_evaluations(entry, ended=code is not None)
            if code is not None:
                self.finish_trial(entry, code)
                self.running.remove(entry)

    def report_evaluations(self, entry: RunningTrial, ended: bool) -> None:
        """Pass new evaluations to the study; after any but the last evaluation, the pruner may stop the trial."""
        evaluations = entry.process.list_evaluations()
        for index, evaluation in enumerate(evaluations[entry.reported :], start=entry.reported + 1):
            entry.trial.report(evaluation.value, index)
            entry.reported = index
            may_prune = not ended and not entry.pruning_reason and index < self.plan.evaluations
            if may_prune and self.is_weak(entry.trial):
                entry.pruning_reason = self.describe_pruning(evaluation, index)
                entry.process.stop()

    def describe_pruning(self, evaluation: Evaluation, index: int) -> str:
        """Return the reason of a pruned trial: pruner, step and value."""
        value = format_value(evaluation.value, self.metric)
        return (
            f"stopped by {self.plan.pruner} after step {evaluation.step:,} at {self.metric} {value}, "
            f"evaluation {index} of {self.plan.evaluations}"
        )

    def is_weak(self, trial: Trial) -> bool:
        """Return True if the pruner would stop a trial after the evaluations that were reported."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features of Optuna 4
            self.study.pruner = make_pruner(self.plan.pruner, self.plan.evaluations)
            return trial.should_prune()

    def finish_trial(self, entry: RunningTrial, code: int) -> None:
        """Record a trial that ended with this exit code in the study and in its run, and print a line of progress."""
        from optuna.trial import TrialState

        trial, process = entry.trial, entry.process
        seconds = time.monotonic() - entry.started_at
        trial.set_user_attr("seconds", round(seconds, 2))
        value, images = process.read_final() if code == 0 else (None, None)
        if value is not None:
            trial.set_user_attr("images", images)
            trial.set_user_attr("seed", self.plan.training_seed)
            self.study.tell(trial, value)
        elif entry.pruning_reason:
            trial.set_user_attr("reason", entry.pruning_reason)
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.failures.append(process.find_failure_reason())
            trial.set_user_attr("reason", self.failures[-1])
            self.study.tell(trial, state=TrialState.FAIL)
        results = read_results(self.study, self.space)
        result = next(result for result in results if result.number == entry.number)
        process.write_outcome(result.state, result.value, result.reason)
        self.print_line(self.describe_trial(entry.number, result, results))

    def describe_trial(self, number: int, result: TrialResult, results: list[TrialResult]) -> str:
        """Return the line of progress about an ended trial."""
        outcome = f"{self.metric} {format_value(result.value, self.metric)}"
        if result.state == "pruned":
            outcome = f"stopped early at {outcome}"
        elif result.state == "failed":
            outcome = f"failed: {result.reason}"
        ranked = rank_results(results, self.study.direction.name.lower())
        best = f"; best {format_value(ranked[0].value, self.metric)}, {ranked[0].name}" if ranked else ""
        duration = f" in {result.seconds:.0f} s" if result.seconds is not None else ""
        return f"trial {number + 1}/{self.plan.trials}: {describe_values(result.values)}: {outcome}{duration}{best}"

    def has_only_equal_failures(self) -> bool:
        """Return True if no trial finished or was pruned, and at least MAX_EQUAL_FAILURES failed, all for one reason.

        Reasons that differ only in numbers count as one. If that reason is a loss that diverged, the search continues:
        other values may train.
        """
        from optuna.trial import TrialState

        states = {trial.state for trial in self.list_own_trials()}
        if len(self.failures) < MAX_EQUAL_FAILURES or states & {TrialState.COMPLETE, TrialState.PRUNED}:
            return False
        reasons = {fold_numbers(reason) for reason in self.failures}
        return len(reasons) == 1 and not self.failures[0].startswith(DIVERGED)

    def stop_all(self, end: End) -> End:
        """Ask the running trials to write a checkpoint, and wait until they end, or kill them; return `end`."""
        for entry in self.running:
            entry.process.stop()
        while self.running:
            for entry in list(self.running):
                if self.must_kill():
                    entry.process.kill()
                code = entry.process.poll()
                if code is None:
                    continue
                self.report_evaluations(entry, ended=True)
                if code == 0 or entry.pruning_reason:  # finished, or stopped by the pruner
                    self.finish_trial(entry, code)
                self.running.remove(entry)
            time.sleep(self.plan.poll_s if self.running else 0)
        return end
