"""What came of a rehearsal: gathered from the record's notes, told in a few lines, kept as summary.json.

The exit code is the script's own. Where that is 0, it is 1 if a limit was met that is an error (the script may have
caught it, or it was found at the end), and 1 if no training step was taken: then nothing was rehearsed.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from viaduct import __version__
from viaduct.rehearsal.observe import folder_of
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.progress import gathered, read
from viaduct.rehearsal.project import PROVIDED, pip_line

PACKAGES = ("torch", "tensorflow", "tensorflow-cpu", "numpy")
MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '([^']+)'")

SILENT = "os._exit, or another program in its place, leaves none. End the script by sys.exit or at its last line."
OURS = "This is a fault of viaduct; please report it."
KILLED = {137: ": the machine may have run out of memory"}


@dataclass(frozen=True)
class End:
    """How the processes ended, seen from outside."""

    code: int
    interrupted: int = 0  # the signal that came from outside
    rank: int | None = None  # of several the one that failed first
    bound: str = ""  # what has stopped it from outside


@dataclass
class Summary:
    """One rehearsal, as JSON says it."""

    command: str
    on: str
    stage: str
    script: str
    arguments: list[str]
    ranks: int
    seed: int | None
    script_exit_code: int
    exit_code: int = 0
    steps: int = 0
    stopped: bool = False  # after as many steps as were asked for
    failed_rank: int | None = None  # of several the one that failed first
    interrupted: int = 0  # the signal that came from outside
    bound: str = ""  # what has stopped it: "time", "memory", or "watch" where nothing watches them any more
    silent: str = ""  # processes that ended well and left no report
    failure: str = ""  # the last line of its traceback
    seconds: float = 0.0
    peak_bytes: int = 0
    losses: list[list[float]] = field(default_factory=list)  # of rank 0, by step
    limits: list[dict[str, Any]] = field(default_factory=list)
    wrote: list[str] = field(default_factory=list)  # in its own folder
    changed: list[str] = field(default_factory=list)  # of the user's own, behind links
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, record: str) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        (Path(record) / "summary.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def load_summary(record: str) -> Summary | None:
    """Read back what a rehearsal in another process has left; None where it did not come so far."""
    try:
        return Summary(**json.loads((Path(record) / "summary.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def gather(plan: Plan, end: End, wrote: list[str], changed: list[str]) -> Summary:
    record = Path(plan.record)
    ended, steps = gathered(record), read(record, "steps").values()
    blamed = blamed_of(ended, end)
    summary = Summary(
        command=plan.command,
        on=plan.on,
        stage=plan.stage,
        script=plan.script,
        arguments=list(plan.arguments),
        ranks=plan.ranks,
        seed=plan.seed,
        script_exit_code=end.code,
        steps=max((one["steps"] for one in (*ended, *steps)), default=0),
        stopped=any(one["stopped"] for one in ended),
        failed_rank=end.rank,
        interrupted=end.interrupted,
        bound=end.bound or blamed.get("bound", ""),
        silent=find_silent(plan, ended, end),
        failure=blamed.get("failure", ""),
        changed=changed,
        seconds=max((one["seconds"] for one in ended), default=0.0),
        peak_bytes=sum(one["peak_bytes"] for one in ended),
        losses=read_losses(plan),
        limits=list(read_limits(record)),
        wrote=wrote,
        versions=dict(versions()),
    )
    summary.exit_code = judged(summary, plan)
    summary.save(plan.record)
    return summary


def find_silent(plan: Plan, ended: list[Mapping[str, Any]], end: End) -> str:
    """Name what we have started and what left no report though nothing failed: nobody knows how far it came."""
    if end.code or end.interrupted:
        return ""
    without = sorted(note["rank"] for note in ended if note["code"] is None)
    unheard = plan.processes - len(ended)
    if plan.processes == 1:
        return "the process ended without a report" if without or unheard else ""
    names = [f"rank {number}" for number in without] + ([f"{unheard} of {plan.processes} ranks"] if unheard > 0 else [])
    return f"{', '.join(names)} ended without a report" if names else ""


def blamed_of(ended: list[Mapping[str, Any]], end: End) -> Mapping[str, Any]:
    """The process whose end explains the others'. A rank that died without a word is not explained by another's."""
    if end.rank is not None:
        how = f"was ended by {signal_name(end.code - 128)}" if end.code > 128 else f"ended with exit code {end.code}"
        said = next((one for one in ended if one["rank"] == end.rank), {})
        return {**said, "failure": said.get("failure") or ("" if said.get("bound") else f"rank {end.rank} {how}")}
    return next((one for one in ended if one["code"] or one["bound"]), ended[0] if ended else {})


def judged(summary: Summary, plan: Plan) -> int:
    if summary.script_exit_code:
        return summary.script_exit_code
    if summary.silent or any(hit["mode"] == "error" for hit in summary.limits):
        return 1
    return 1 if summary.steps == 0 and plan.steps != 0 else 0


def read_losses(plan: Plan) -> list[list[float]]:
    path = folder_of(plan.record, 0) / "steps.jsonl"
    if not path.exists():
        return []
    return [json.loads(line)["losses"] for line in path.read_text().splitlines()]


def read_limits(record: Path) -> Iterator[dict[str, Any]]:
    """Each (name, line) once, whichever rank met it."""
    path = record / "limits.jsonl"
    seen = set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        hit = json.loads(line)
        key = (hit["name"], json.dumps(hit["place"]))
        if key not in seen:
            seen.add(key)
            yield hit


def versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    yield "viaduct", __version__
    for name in PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def told(summary: Summary, plan: Plan) -> list[str]:
    """For a person, at the end."""
    megabytes = summary.peak_bytes / 2**20
    lines = [
        f"{steps_words(summary, plan)}, {summary.seconds:.1f} s, {megabytes:,.0f} MiB at most, "
        f"{limits_words(summary)}, exit code {summary.exit_code}."
    ]
    if len(summary.losses) > 1 and summary.losses[0] and summary.losses[-1]:
        lines.append(f"The loss went from {summary.losses[0][0]:.6g} to {summary.losses[-1][0]:.6g}.")
    lines += [f"{place_words(hit)}: {hit['name']} ({hit['mode']}): {hit['change']}" for hit in summary.limits]
    return lines + advice(summary, plan)


def steps_words(summary: Summary, plan: Plan) -> str:
    if summary.steps == 0:
        return "no step was taken"
    counted = f"{summary.steps} step{'s' if summary.steps > 1 else ''}"
    ranks = f" on {plan.ranks} ranks" if plan.ranks > 1 else ""
    return f"{counted}{ranks}, stopped there" if summary.stopped else counted + ranks


def limits_words(summary: Summary) -> str:
    count = len(summary.limits)
    return "no limit met" if not count else f"{count} limit{'s' if count > 1 else ''} met"


def place_words(hit: dict[str, Any]) -> str:
    place = hit["place"]
    return f"{Path(place['file']).name}:{place['line']}" if place else "somewhere"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ends_at_once(summary: Summary) -> bool:
    """A pattern that no file matches is no error to TensorFlow: the input is over before it has begun."""
    return "OutOfRangeError" in summary.failure and summary.steps == 0


def advice(summary: Summary, plan: Plan) -> list[str]:
    if summary.interrupted:
        return [f"It was interrupted by {signal_name(summary.interrupted)}."]
    match = MISSING.search(summary.failure)
    if match and match[1].partition(".")[0] in PROVIDED:
        return [f"The stand-in has no module {match[1]!r}."]
    if match:
        return [f"The package {match[1]!r} is missing: {pip_line([match[1].partition('.')[0]])}"]
    if "NotFoundError" in summary.failure or ends_at_once(summary):
        more = "" if plan.fake_data else "; --fake-data makes up records where their shapes are declared"
        return [f"Data is missing: give the script its own after --{more}."]
    if summary.script_exit_code > 128 and not summary.failure:
        return [
            f"It was ended by {signal_name(summary.script_exit_code - 128)}{KILLED.get(summary.script_exit_code, '')}."
        ]
    if summary.silent:
        return [f"{summary.silent[0].upper()}{summary.silent[1:]}: {SILENT}"]
    if summary.bound == "watch":
        return [f"Its time and memory were no longer watched, so it was ended: {summary.failure}. {OURS}"]
    if summary.bound:
        return [
            f"It was stopped by the limit of {summary.bound}: --{'timeout' if summary.bound == 'time' else 'memory'}."
        ]
    if summary.failure:
        return [f"The script failed: {summary.failure}"]
    if summary.steps == 0 and plan.steps != 0 and not summary.bound:
        if plan.step_at:
            return [f"--step-at {plan.step_at} was never executed."]
        return [
            "Nothing of its training was rehearsed: --step-at FILE:LINE names where a step ends; --steps 0 says that "
            "none is expected."
        ]
    return []
