"""Tables of a tuning bank and of a tuning run, for the terminal, and the same data for --json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.tuning.bank import BankContents, Entry, Verdict, describe_choice
from viaduct.tuning.fingerprint import Fingerprint
from viaduct.tuning.signature import MAX_OTHER_LOAD

if TYPE_CHECKING:
    from rich.table import Table

    from viaduct.tuning.tuner import Outcome


@dataclass
class TuneReport:
    """Result of a tuning run."""

    bank_path: Path
    fingerprint: Fingerprint  # device and software of the measurements
    step_us: float = 0.0  # time of a step before operators were searched
    outcomes: list[Outcome] = field(default_factory=list)
    verdict: Verdict | None = None
    lines: list[str] = field(default_factory=list)  # further conclusions, which are printed first
    result_file: Path | None = None
    measurements: int = 0
    reused: int = 0  # number of measurements that were taken from the journal of an interrupted search
    other_load: float = 0.0  # share of the processors that other programs used during measurements: the median
    seconds: float = 0.0
    signal: int = 0  # number of the signal that interrupted the run; 0: none


def describe_state(entry: Entry) -> str:
    """Return "installed" for an entry that training uses, else the reason why training does not use it."""
    if entry.installed:
        return "installed"
    if entry.is_default:
        return "no better variant found"
    return entry.note or "not installed: no verdict of a whole step yet"


def make_bank_table(stored: BankContents) -> Table:
    """Return the table of a bank's entries, the largest gain first."""
    from rich.table import Table

    from viaduct.terminal import make_number_columns

    figures = make_number_columns("default µs", "best µs", "gain", "spread")
    table = Table("operator", "shapes", *figures, "choice", "state", box=None, pad_edge=False)
    for entry in sorted(stored.entries.values(), key=lambda entry: -entry.gain):
        times = f"{entry.default_us:,.0f}", f"{entry.best_us:,.0f}", f"{entry.gain:.2f}x", f"{entry.spread:.1%}"
        signature = entry.signature
        choice = describe_choice(entry.choice, entry.default)
        table.add_row(signature.kind, signature.shapes, *times, choice, describe_state(entry))
    return table


def list_verdicts(stored: BankContents) -> Iterable[str]:
    """Yield a line for each recipe's step that was measured with the bank's choices."""
    for verdict in stored.verdicts.values():
        # `step` is a key with a readable part: "… shown=READABLE PART recipe=…"
        shown = verdict.step.partition("shown=")[2].partition(" recipe=")[0] or verdict.step
        yield f"{shown}: {verdict.describe_times()}, {verdict.gain:.2f}x{'' if verdict.is_gain else ': no gain'}"


def encode_banks(banks: Iterable[BankContents]) -> list[dict[str, Any]]:
    """Return the data of `tune show --json`."""
    return [
        {
            "fingerprint": asdict(stored.fingerprint),
            "entries": [
                {**entry.encode(), "gain": entry.gain, "state": describe_state(entry)}
                for entry in stored.entries.values()
            ],
            "verdicts": [asdict(verdict) for verdict in stored.verdicts.values()],
        }
        for stored in banks
    ]


def make_outcome_table(outcomes: Sequence[Outcome], step_us: float) -> Table:
    """Return the table of operators with their times, choices and results."""
    from rich.table import Table

    from viaduct.terminal import make_number_columns

    figures = make_number_columns("calls", "share", "default µs", "best µs", "gain")
    table = Table("operator", "shapes", *figures, "choice", "what happened", box=None, pad_edge=False)
    for outcome in outcomes:
        entry, operator = outcome.entry, outcome.operator
        share = f"{outcome.share_of_step(step_us):.1%}" if outcome.default_us else "-"
        if entry is None:
            cells = [f"{outcome.default_us:,.0f}" if outcome.default_us else "-", "-", "-", "default"]
        else:
            times = f"{entry.default_us:,.0f}", f"{entry.best_us:,.0f}", f"{entry.gain:.2f}x"
            cells = [*times, describe_choice(entry.choice, entry.default)]
        signature = operator.signature
        table.add_row(signature.kind, signature.shapes, str(operator.count), share, *cells, outcome.describe())
    return table


def list_conclusions(report: TuneReport) -> list[str]:
    """Return the lines below the table: `report.lines`, the verdict, defaults, failures, measurements and files."""
    lines = [*report.lines]
    if verdict := report.verdict:
        result = ". The choices are installed." if verdict.is_gain else ": no gain, none is installed."
        times = f"{verdict.describe_times()}, {verdict.gain:.3f}x ({verdict.turns} turns)"
        lines.append(f"Whole step: {times}{result}")
    defaults = [outcome for outcome in report.outcomes if outcome.entry is not None and outcome.entry.is_default]
    if defaults:
        names = ", ".join(dict.fromkeys(outcome.operator.signature.kind for outcome in defaults))
        lines.append(
            f'Stored as "no better variant found", not searched again: {len(defaults)} operators ({names}); '
            "the environment variable REPEAT_TUNE=True searches again."
        )
    for outcome in report.outcomes:
        for row in outcome.search_result.failed if outcome.search_result is not None else ():
            choice = describe_choice(row.configuration, outcome.operator.space.default)
            lines.append(f"Discarded {choice}: {row.reason}")
    if report.other_load > MAX_OTHER_LOAD:
        lines.append(
            f"Other programs used {report.other_load:.0%} of the processors while operators were measured; "
            "on a quiet machine REPEAT_TUNE=True may find more."
        )
    again = f", {report.reused} taken over from an interrupted search" if report.reused else ""
    lines.append(f"{report.measurements} measurements in {report.seconds:.0f} s{again}. Bank: {report.bank_path}")
    if report.result_file is not None:
        lines.append(f"Result file: {report.result_file}")
    return lines


def encode_outcomes(report: TuneReport) -> dict[str, Any]:
    """Return the data of `tune run --json`."""
    return {
        "fingerprint": asdict(report.fingerprint),
        "step_us": report.step_us,
        "operators": [
            {
                "signature": outcome.operator.signature.encode(),
                "names": list(outcome.operator.names),
                "count": outcome.operator.count,
                "share": outcome.share_of_step(report.step_us),
                "default_us": outcome.default_us,
                "entry": outcome.entry.encode() if outcome.entry else None,
                "status": asdict(outcome.status),
                "outcome": outcome.describe(),
            }
            for outcome in report.outcomes
        ],
        "verdict": asdict(report.verdict) if report.verdict else None,
        "measurements": report.measurements,
        "replayed": report.reused,
        "other_programs": report.other_load,
        "seconds": report.seconds,
        "interrupted_by": report.signal or None,
        "result_file": str(report.result_file) if report.result_file else None,
    }
