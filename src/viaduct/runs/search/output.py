"""Final output of a search: the table of trials, the verdict, the page."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from viaduct.errors import ViaductError
from viaduct.runs.search.results import TrialResult, describe_verdict, format_setting, format_value, rank_results

if TYPE_CHECKING:
    from optuna import Study

    from viaduct.runs.search.session import SearchOutcome

MIN_TRIALS = 10  # finished trials, including past runs; with fewer, the importance is not given, as it would be random


def print_outcome(outcome: SearchOutcome) -> None:
    """Print trials, the parameters' importance, verdict and the command that trains the best trial; write the page.

    If no trial was trained to its end, print only how the search ended.
    """
    if outcome.verdict is None:
        print(describe_end(outcome), file=sys.stderr)
        return
    print_trials(outcome)
    print()
    importance = measure_importance(outcome.study)
    if importance:
        listed = ", ".join(f"{path} {100 * share:.0f} %" for path, share in importance.items())
        print(f"Importance (PED-ANOVA): {listed}")
    elif len(outcome.space.dimensions) > 1:
        print(f"Importance: not given: {explain_missing_importance(outcome.results)}.")
    for line in describe_verdict(outcome.verdict, outcome.request.metric):
        print(line)
    print(f"Its recipe: {outcome.recipe_file}")
    print(f"Train it at full length: {outcome.command}")
    write_report(outcome, importance)
    if outcome.end != "done":
        print(describe_end(outcome), file=sys.stderr)


def describe_end(outcome: SearchOutcome) -> str:
    """Return how many trials have ended, and why the search ended."""
    states = [result.state for result in outcome.results if result.number is not None]  # past runs have no number
    ended = sum(state != "unfinished" for state in states)
    if outcome.end == "done":
        return (
            f"No trial was trained to its end, so there is no best one: {states.count('pruned')} of {ended} were "
            "stopped early. --prune none and a higher --trials train further trials to their end."
        )
    reason = {"timeout": "The time is over", "interrupted": "Interrupted"}.get(outcome.end, "Ended")
    return f"{reason}: {ended} of {outcome.request.trials} trials have ended; the same command continues the search."


def write_report(outcome: SearchOutcome, importance: dict[str, float] | None) -> None:
    from viaduct.runs.search.report import write_search_report

    path = outcome.request.folder / "report.html"
    try:
        write_search_report(path, outcome, importance)
    except OSError as error:
        raise ViaductError(f"{path} cannot be written: {error.strerror}.") from None
    print(f"Report: {path}")


def order_results(outcome: SearchOutcome) -> list[TrialResult]:
    """Return the results: those trained to their end, the best first, then the others."""
    ranked = rank_results(outcome.results, outcome.study.direction.name.lower())
    return [*ranked, *(result for result in outcome.results if not result.is_measured)]


def print_trials(outcome: SearchOutcome) -> None:
    from rich.table import Table

    from viaduct.terminal import make_number_columns, print_table

    metric, paths = outcome.request.metric, outcome.space.paths
    table = Table("trial", *make_number_columns(*paths, metric), "state", box=None, pad_edge=False)
    for result in order_results(outcome):
        values = [format_setting(result.values[path]) if path in result.values else "-" for path in paths]
        has_reason = result.reason and result.state != "pruned"  # the reason of a pruned trial is too long
        state = f"{result.state}: {result.reason}" if has_reason else result.state
        table.add_row(result.name, *values, format_value(result.value, metric), state)
    print_table(table)


def measure_importance(study: Study) -> dict[str, float] | None:
    """Return how much each hyper-parameter decides whether a trial is among the best; None if it cannot be measured.

    PED-ANOVA (Watanabe, Bansal, Hutter 2023) compares the distribution of a parameter in the best tenth of the trials
    with its distribution in all trials. The largest comes first, and the sum is 1.
    """
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(finished) < MIN_TRIALS or len({trial.value for trial in finished}) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        importance = optuna.importance.get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return importance if sum(importance.values()) > 0 else None


def explain_missing_importance(results: Sequence[TrialResult]) -> str:
    """Explain why these trials show no importance."""
    finished = sum(result.is_measured for result in results)
    if finished < MIN_TRIALS:
        return f"{finished} finished {'trial' if finished == 1 else 'trials'}; {MIN_TRIALS} are needed"
    return "no parameter separates the best trials from the others"
