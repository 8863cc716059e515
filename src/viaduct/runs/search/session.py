"""A search from its options (SearchRequest) to its result (SearchOutcome), with a recipe file for the best trial.

A study is the folder of a search; a later search in the same folder continues it.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.errors import UnknownName, ViaductError
from viaduct.recipes import LoadedRecipe, Recipe
from viaduct.run_files import SCORE_TYPES
from viaduct.runs.search.best_recipe import apply_settings, write_recipe
from viaduct.runs.search.past_runs import Criteria, PastRun, add_past_runs, gather_past_runs
from viaduct.runs.search.results import (
    TrialResult,
    Verdict,
    describe_values,
    fold_numbers,
    format_value,
    judge_results,
    read_results,
)
from viaduct.runs.search.sampling import MIN_EVALUATIONS, PrunerName, SamplerName, count_evaluations
from viaduct.runs.search.search_loop import End, Plan, SearchLoop
from viaduct.runs.search.space import Space, Value, parse_space
from viaduct.runs.search.study_folder import Definition, StudyFolder
from viaduct.runs.search.trial_process import TrainLauncher, divide_machine, list_set_flags
from viaduct.signals import collect_signals

if TYPE_CHECKING:
    from optuna import Study

PrintLine = Callable[[str], None]  # prints a line of progress
EVALUATION_FIELD = "evaluation.every_epochs"


@dataclass(frozen=True)
class SearchRequest:
    """Options of a search."""

    loaded: LoadedRecipe  # the recipe before `settings` are applied
    argument: str  # name or file of the recipe on the command line
    settings: dict[str, str]  # fields set in all trials: --set, --epochs, --steps
    space: Sequence[str]  # texts of --space
    data: Path | None
    device: str
    folder: Path
    trials: int
    parallel: int
    sampler: SamplerName
    pruner: PrunerName
    metric: str
    seed: int
    timeout_s: float | None
    past: Path | None  # folder of --from, with past runs

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with `settings`, which every trial has as far as --space does not change it."""
        return apply_settings(self.loaded.recipe, self.settings)


@dataclass(frozen=True)
class DataFacts:
    """Facts about the data, read before the first trial."""

    images: dict[str, Any]  # number of the images and checksum of their labels, by split, as in recipe.json
    train_images: int  # number of training images


@dataclass(frozen=True)
class SearchOutcome:
    """Result of a search."""

    request: SearchRequest
    space: Space
    study: Study
    results: list[TrialResult]
    verdict: Verdict | None  # None: no trial was trained to its end
    recipe_file: Path | None  # recipe of the best trial; None without a verdict
    command: str  # command that trains it; empty without a verdict
    end: End
    signal: int = 0  # signal that ended the search; 0: none


def search(request: SearchRequest, read_facts: Callable[[], DataFacts], print_line: PrintLine) -> SearchOutcome:
    """Run a search and return the outcome. `read_facts` is called after the options have been checked."""
    check_metric(request)
    space = parse_space(request.recipe, request.space, [*request.settings])
    if request.sampler == "grid" and (count := len(space.list_combinations())) > request.trials:
        print_line(f"The grid has {count} combinations; --trials {request.trials} takes the first of them.")
    facts = read_facts()
    settings, evaluations = plan_evaluations(request, facts, print_line)
    environments, sharing_note = divide_machine(request.device, request.parallel)
    past_runs = find_past_runs(request, settings, facts, space, print_line)
    folder = StudyFolder(request.folder)
    definition = make_definition(request, settings)
    with folder.lock():
        folder.write_definition(definition)
        study = folder.open_study(definition)
        add_past_runs(study, past_runs, space)
        if sharing_note:
            print_line(sharing_note)
        flags = [*list_data_flags(request), *list_set_flags(settings)]
        launcher = TrainLauncher(folder, request.argument, request.metric, flags, environments)
        first, note = choose_first_trial(request, space, study)
        if note:
            print_line(note)
        plan = Plan(
            trials=request.trials,
            parallel=request.parallel,
            sampler=request.sampler,
            pruner=request.pruner,
            evaluations=evaluations,
            seed=request.seed,
            training_seed=request.recipe.seed,
            timeout_s=request.timeout_s,
            first=first,
        )
        with collect_stop_signals(print_line) as received:
            end = SearchLoop(
                study,
                space,
                request.metric,
                launcher,
                plan,
                print_line,
                is_interrupted=lambda: bool(received),
                must_kill=lambda: len(received) > 1,
            ).run()
        return conclude_search(request, space, study, end, received[0] if received else 0)


def check_metric(request: SearchRequest) -> None:
    """Raise UnknownName for a metric that the recipe does not report."""
    known = [*SCORE_TYPES, *request.loaded.recipe.metrics]
    if request.metric not in known:
        raise UnknownName("metric", request.metric, known)


def plan_evaluations(request: SearchRequest, facts: DataFacts, print_line: PrintLine) -> tuple[dict[str, str], int]:
    """Return the settings of all trials, and the number of evaluations of a trial.

    With a pruner, a trial is evaluated at least MIN_EVALUATIONS times, unless it has fewer steps or --set decides.
    """
    recipe = request.recipe
    steps_per_epoch = max(1, facts.train_images // recipe.data.global_batch)
    epochs = recipe.steps / steps_per_epoch if recipe.steps else recipe.epochs
    every = recipe.evaluation.every_epochs
    count = count_evaluations(epochs, every)
    if request.pruner == "none" or EVALUATION_FIELD in request.settings or count >= MIN_EVALUATIONS:
        return request.settings, count
    every = max(epochs / MIN_EVALUATIONS, 1 / steps_per_epoch)
    print_line(
        f"Trials are evaluated every {every:.3g} epochs, so that weak ones can be stopped early; "
        "--prune none leaves the recipe's own."
    )
    return {**request.settings, EVALUATION_FIELD: repr(every)}, count_evaluations(epochs, every)


def make_definition(request: SearchRequest, settings: dict[str, str]) -> Definition:
    """Return what a later search in the same folder must have in common with this one."""
    file = request.loaded.file
    return Definition(
        recipe=request.loaded.name if file is None else str(file),
        data=str(request.data.resolve()) if request.data is not None else None,
        space=tuple(sorted(request.space)),
        metric=request.metric,
        settings=tuple(sorted(f"{path}={text}" for path, text in settings.items() if path != EVALUATION_FIELD)),
        recipe_sha256=hashlib.sha256(file.read_bytes()).hexdigest() if file is not None else "",
    )


def list_data_flags(request: SearchRequest) -> list[str]:
    data = ["--data", str(request.data)] if request.data is not None else []
    return [*data, "--device", request.device]


def find_past_runs(
    request: SearchRequest, settings: dict[str, str], facts: DataFacts, space: Space, print_line: PrintLine
) -> list[PastRun]:
    """Return the runs of --from that are observations of this search, and print their number."""
    if request.past is None:
        return []
    recipe = apply_settings(request.loaded.recipe, settings)
    criteria = Criteria(request.loaded.name, recipe, facts.images, request.metric)
    past_runs = gather_past_runs(request.past, criteria, space, request.folder)
    for line in past_runs.describe(request.past):
        print_line(line)
    return past_runs.accepted


def choose_first_trial(request: SearchRequest, space: Space, study: Study) -> tuple[dict[str, Value] | None, str]:
    """Return the values of the study's first trial: the recipe's own if they are in the space, and were not tried.

    Otherwise return None: the values are drawn. The text explains a first trial that does not have the recipe's own
    values; it is empty if it has them, or if an earlier search began the study.
    """
    results = read_results(study, space)
    is_new = all(result.number is None for result in results)
    recipe_values = space.find_values(request.recipe)
    if isinstance(recipe_values, str):  # the path of a field
        note = f"No trial has the recipe's own values: its {recipe_values} is not in the space."
        return None, note if is_new else ""
    note = ""
    if is_new and request.sampler == "grid" and space.list_combinations()[0] != recipe_values:
        note = "The first trial is the first combination of the grid, not the recipe's own values."
    return None if recipe_values in [result.values for result in results] else recipe_values, note


@contextmanager
def collect_stop_signals(print_line: PrintLine) -> Iterator[list[int]]:
    """Yield a list that collects signals such as Ctrl-C; print a line when the first arrives."""
    lines = ["\nEnding: running trials write a checkpoint; a second Ctrl-C kills them. The same command continues."]
    with collect_signals(lambda number: print_line(lines.pop()) if lines else None) as received:  # only the first time
        yield received


def conclude_search(request: SearchRequest, space: Space, study: Study, end: End, signal: int) -> SearchOutcome:
    """Write the recipe of the best trial, and return the outcome; raise ViaductError if all trials have failed."""
    results = read_results(study, space)
    raise_if_all_failed(results, end)
    verdict = judge_results(results, request.metric, study.direction.name.lower())
    if verdict is None:
        return SearchOutcome(request, space, study, results, None, None, "", end, signal)
    file = request.folder / f"{Path(request.loaded.name).stem}_best.py"
    shortened = ("epochs", "steps", EVALUATION_FIELD)  # the best recipe has its own length, not that of the trials
    settings = {path: text for path, text in request.settings.items() if path not in shortened}
    recipe = apply_settings(request.loaded.recipe, {**settings, **space.make_settings(verdict.best.values)})
    value = format_value(verdict.best.value, request.metric)
    headline = f"{request.loaded.name} with the values of {verdict.best.name} of a search: {request.metric} {value}."
    write_recipe(file, request.loaded, recipe, headline)
    command = ["viaduct", "train", str(file), *list_data_flags(request)]
    return SearchOutcome(request, space, study, results, verdict, file, shlex.join(command), end, signal)


def raise_if_all_failed(results: Sequence[TrialResult], end: End) -> None:
    """Raise ViaductError with the reasons if all ended trials failed and the search was not cut short."""
    ended = [result for result in results if result.number is not None and result.state != "unfinished"]
    failed = [result for result in ended if result.state == "failed"]
    if end not in ("done", "failing") or not failed or len(failed) < len(ended):
        return
    stopped = " No further trial was started." if end == "failing" else ""
    if len(failed) == 1 or end == "failing":
        subject = f"the first {len(failed)} trials failed" if len(failed) > 1 else "the trial failed"
        raise ViaductError(f"{subject}: {failed[0].reason}.{stopped}")
    first_by_reason: dict[str, TrialResult] = {}
    for result in failed:
        first_by_reason.setdefault(fold_numbers(result.reason), result)
    examples = list(first_by_reason.values())[:5]
    raise ViaductError(
        f"all {len(failed)} trials failed.",
        *(f"{result.reason} ({describe_values(result.values)})" for result in examples),
    )
