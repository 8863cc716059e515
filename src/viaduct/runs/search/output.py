"""Final output of a search: the table of trials, the verdict, the page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from viaduct.errors import ViaductError
from viaduct.runs.search.importance import explain_missing, measure_importance
from viaduct.runs.search.results import TrialResult, describe_verdict, format_setting, format_value, rank_results

if TYPE_CHECKING:
    from viaduct.runs.search.session import Findings


def print_findings(findings: Findings) -> None:
    """Print the table of trials, importance, verdict and the command that trains the best; write the page.

    If nothing was trained to its end, print only how the search ended.
    """
    if findings.verdict is None:
        print(describe_end(findings), file=sys.stderr)
        return
    print_trials(findings)
    print()
    shares = measure_importance(findings.study)
    if shares:
        listed = ", ".join(f"{path} {100 * share:.0f} %" for path, share in shares.items())
        print(f"Importance (PED-ANOVA): {listed}")
    elif len(findings.space.dimensions) > 1:
        print(f"Importance: not given: {explain_missing(sum(result.is_measured for result in findings.results))}.")
    for line in describe_verdict(findings.verdict, findings.request.metric):
        print(line)
    print(f"Its recipe: {findings.recipe_file}")
    print(f"Train it at full length: {findings.command}")
    write_report(findings, shares)
    if findings.end != "done":
        print(describe_end(findings), file=sys.stderr)


def describe_end(findings: Findings) -> str:
    states = [result.state for result in findings.results if result.number is not None]  # past runs have no number
    ended = sum(state != "unfinished" for state in states)
    if findings.end == "done":
        return (
            f"No trial was trained to its end, so there is no best one: {states.count('pruned')} of {ended} were "
            "stopped early. With --prune none and a higher --trials, further trials are not."
        )
    reason = {"timeout": "The time is over", "interrupted": "Interrupted"}.get(findings.end, "Ended")
    return f"{reason}: {ended} of {findings.request.trials} trials have ended; the same command continues the search."


def write_report(findings: Findings, shares: dict[str, float] | None) -> None:
    from viaduct.runs.search.report import write_search_report

    path = findings.request.folder / "report.html"
    try:
        write_search_report(path, findings, shares)
    except OSError as error:
        raise ViaductError(f"{path} cannot be written: {error.strerror}.") from None
    print(f"Report: {path}")


def order_results(findings: Findings) -> list[TrialResult]:
    """Return the results, the best first; then those that were not trained to their end."""
    ranked = rank_results(findings.results, findings.study.direction.name.lower())
    return [*ranked, *(result for result in findings.results if not result.is_measured)]


def print_trials(findings: Findings) -> None:
    from rich.table import Table

    from viaduct.terminal import figure_columns, print_table

    metric, paths = findings.request.metric, findings.space.paths
    table = Table("trial", *figure_columns(*paths, metric), "state", box=None, pad_edge=False)
    for result in order_results(findings):
        values = [format_setting(result.values[path]) if path in result.values else "-" for path in paths]
        has_reason = result.reason and result.state != "pruned"
        state = f"{result.state}: {result.reason}" if has_reason else result.state
        table.add_row(result.name, *values, format_value(result.value, metric), state)
    print_table(table)
