"""Summary of a rehearsal, made from the files in its record folder, and its description in a few lines.

The exit code is the script's. If that is 0, the exit code is still 1 in three cases: the script met a limit of the card
in mode `error` (even if it caught the exception), a process left no note of its end (`progress.py`), or no training
step was recognised although --steps is not 0.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import valid_signals
from typing import Any

from viaduct import __version__
from viaduct.json_records import decode_record
from viaduct.rehearsal import limits
from viaduct.rehearsal.observe import find_rank_folder
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.progress import gather_notes, read_notes
from viaduct.rehearsal.project import STAND_IN_PACKAGES, make_install_advice
from viaduct.signals import name_signal

VERSIONED_PACKAGES = ("torch", "tensorflow", "tensorflow-cpu", "numpy")  # their versions are in the summary
MISSING_PACKAGE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '([^']+)'")
# A missing file. TensorFlow also raises NotFoundError for a variable that a checkpoint lacks; that is excluded.
MISSING_FILE = re.compile(
    r"FileNotFoundError|NotADirectoryError|No such file or directory|NotFoundError(?![\s\S]*\bKey \S+ not found)"
)

# Follows the sentence "The process ended without a report".
UNREPORTED_END_ADVICE = "os._exit and os.exec leave none. End the script by sys.exit or at its last line."
# What the stand-in does not have; its messages name it or the rehearsal.
STAND_IN_LACKS = re.compile(r"NotImplementedError: [\s\S]*(?:rehears|stand-in)")
OUR_FAULT = "This is a fault of viaduct; please report it."
KILL_HINTS = {137: ": the machine may have run out of memory"}  # by exit code; 137 is 128 + SIGKILL
# By field of Summary: its key in summary.json, if this is another word.
JSON_KEYS = {
    "platform": "on",
    "framework": "stage",
    "stopped_after_steps": "stopped",
    "interrupting_signal": "interrupted",
    "stopped_by_limit": "bound",
    "unreported_end": "silent",
    "met_limits": "limits",
    "written_files": "wrote",
    "changed_originals": "changed",
}


@dataclass(frozen=True)
class ProcessEnd:
    """Exit of the rehearsal's processes."""

    code: int
    interrupting_signal: int = 0  # number of the signal that viaduct received; 0: none
    rank: int | None = None  # the first of several ranks that failed
    stopped_by_limit: str = ""  # "time" if viaduct killed the script because it did not end within its time limit


@dataclass
class Summary:
    """Summary of one rehearsal."""

    command: str
    platform: str
    framework: str
    script: str
    arguments: list[str]
    ranks: int
    seed: int | None
    script_exit_code: int
    exit_code: int = 0
    steps: int = 0
    stopped_after_steps: bool = False  # viaduct stopped the script after the requested number of steps
    failed_rank: int | None = None  # as `ProcessEnd.rank`
    interrupting_signal: int = 0  # as in `ProcessEnd`
    # What stopped the script: the limit on "time" or "memory", or "watch": viaduct could no longer measure these two.
    stopped_by_limit: str = ""
    # A sentence about processes that left no note of their end in the record folder, although the exit code is 0.
    unreported_end: str = ""
    failure: str = ""  # the error at the end of the traceback, perhaps of several lines; or how a rank ended
    seconds: float = 0.0
    peak_bytes: int = 0
    losses: list[list[float]] = field(default_factory=list)  # of rank 0, by step
    met_limits: list[dict[str, Any]] = field(default_factory=list)  # limits of the card that the script met
    # Files that the script wrote; `files.find_written_file` returns their paths in the record folder.
    written_files: list[str] = field(default_factory=list)
    changed_originals: list[str] = field(default_factory=list)  # files of the user that changed behind a mirror's links
    versions: dict[str, str] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        """Return the contents of summary.json."""
        return {JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}

    def save(self, record: str) -> None:
        text = json.dumps(self.as_record(), indent=1, ensure_ascii=False)
        (Path(record) / "summary.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def load_summary(record: str) -> Summary | None:
    """Read a record folder's summary.json; return None if there is none, or if it cannot be read."""
    names = {key: name for name, key in JSON_KEYS.items()}
    try:  # losses may be NaN, which `json_records.load_object` refuses
        values = json.loads((Path(record) / "summary.json").read_text(encoding="utf-8"))
        summary: Summary = decode_record(Summary, {names.get(key, key): value for key, value in values.items()})
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return summary


def make_summary(plan: Plan, end: ProcessEnd, written_files: list[str], changed_originals: list[str]) -> Summary:
    """Make and save the summary of a rehearsal."""
    record = Path(plan.record_folder)
    notes, step_notes = gather_notes(record), read_notes(record, "steps").values()
    first_failure = find_first_failure(notes, end)
    summary = Summary(
        command=plan.command,
        platform=plan.platform,
        framework=plan.framework,
        script=plan.script,
        arguments=list(plan.arguments),
        ranks=plan.ranks,
        seed=plan.seed,
        script_exit_code=end.code,
        steps=max((note["steps"] for note in (*notes, *step_notes)), default=0),
        stopped_after_steps=any(note["stopped"] for note in notes),
        failed_rank=end.rank,
        interrupting_signal=end.interrupting_signal,
        stopped_by_limit=end.stopped_by_limit or first_failure.get("bound", ""),
        unreported_end=describe_unreported_end(plan, notes, end),
        failure=first_failure.get("failure", ""),
        changed_originals=changed_originals,
        seconds=max((note["seconds"] for note in notes), default=0.0),
        peak_bytes=sum(note["peak_bytes"] for note in notes),
        losses=read_losses(plan),
        met_limits=list(read_met_limits(record)),
        written_files=written_files,
        versions=dict(list_versions()),
    )
    summary.exit_code = choose_exit_code(summary, plan)
    summary.save(plan.record_folder)
    return summary


def describe_unreported_end(plan: Plan, notes: list[Mapping[str, Any]], end: ProcessEnd) -> str:
    """Return a sentence about processes that left no note of their end; "" if there are none or the script failed."""
    if end.code or end.interrupting_signal:
        return ""
    unfinished = sorted(note["rank"] for note in notes if note["code"] is None)  # with notes of progress only
    missing = plan.processes_to_start - len(notes)
    if plan.processes_to_start == 1:
        return "the process ended without a report" if unfinished or missing else ""
    names = [f"rank {number}" for number in unfinished]
    names += [f"{missing} of {plan.processes_to_start} ranks"] if missing > 0 else []
    return f"{', '.join(names)} ended without a report" if names else ""


def find_first_failure(notes: list[Mapping[str, Any]], end: ProcessEnd) -> Mapping[str, Any]:
    """Return the note of the rank that failed first, else the first note of a failure, else the first note or {}."""
    if end.rank is None:
        return next((note for note in notes if note["code"] or note["bound"]), notes[0] if notes else {})
    note = next((note for note in notes if note["rank"] == end.rank), {})
    if note.get("failure") or note.get("bound"):
        return note
    return {**note, "failure": f"rank {end.rank} {describe_end(end.code)}"}


def describe_end(code: int) -> str:
    """Return "was ended by SIGKILL" for 128 plus the number of a signal, else "ended with exit code 1"."""
    number = code - 128
    return f"was ended by {name_signal(number)}" if number in valid_signals() else f"ended with exit code {code}"


def choose_exit_code(summary: Summary, plan: Plan) -> int:
    """Return the exit code (see the module's docstring)."""
    if summary.script_exit_code:
        return summary.script_exit_code
    if summary.unreported_end or any(limit["mode"] == "error" for limit in summary.met_limits):
        return 1
    return 1 if summary.steps == 0 and plan.steps != 0 else 0


def read_losses(plan: Plan) -> list[list[float]]:
    """Return the losses of rank 0 by step; an empty list if nothing was observed."""
    path = find_rank_folder(plan.record_folder, 0) / "steps.jsonl"
    if not path.exists():
        return []
    return [json.loads(line)["losses"] for line in path.read_text().splitlines()]


def read_met_limits(record: Path) -> Iterator[dict[str, Any]]:
    """Yield the limits that the script met: each limit once for each line, also if several ranks met it."""
    path = record / "limits.jsonl"
    seen = set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        limit = json.loads(line)
        key = (limit["name"], json.dumps(limit["place"]))
        if key not in seen:
            seen.add(key)
            yield limit


def list_versions() -> Iterator[tuple[str, str]]:
    """Yield the versions of Python, viaduct, and those of VERSIONED_PACKAGES that are installed."""
    yield "python", platform.python_version()
    yield "viaduct", __version__
    for name in VERSIONED_PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def describe_summary(summary: Summary, plan: Plan) -> list[str]:
    """Return the lines that the user sees at the end."""
    lines = [
        f"{describe_steps(summary, plan)}, {summary.seconds:.1f} s, {summary.peak_bytes / 2**20:,.0f} MiB at most, "
        f"{describe_limits(len(summary.met_limits), plan)}, exit code {summary.exit_code}."
    ]
    if len(summary.losses) > 1 and summary.losses[0] and summary.losses[-1]:
        lines.append(f"The loss went from {summary.losses[0][0]:.6g} to {summary.losses[-1][0]:.6g}.")
    lines += [
        f"{format_location(limit)}: {limit['name']} ({limit['mode']}): {limit['change']}"
        for limit in summary.met_limits
    ]
    return lines + advise(summary, plan)


def describe_steps(summary: Summary, plan: Plan) -> str:
    """Return a text such as "12 steps on 2 ranks, stopped there"."""
    if summary.steps == 0:
        return "no step was recognised"
    counted = f"{summary.steps} step{'s' if summary.steps > 1 else ''}"
    ranks = f" on {plan.ranks} ranks" if plan.ranks > 1 else ""
    return f"{counted}{ranks}, stopped there" if summary.stopped_after_steps else counted + ranks


def describe_limits(count: int, plan: Plan) -> str:
    """Return the number of limits that were met, or which were not checked."""
    unchecked = limits.describe_unchecked(plan.limit_modes)
    if unchecked == limits.NOT_CHECKED:
        return "limits not checked"
    return f"{count or 'no'} limit{'s' if count > 1 else ''} met{f' ({unchecked})' if unchecked else ''}"


def format_location(limit: dict[str, Any]) -> str:
    """Return FILE:LINE of the line that met a limit."""
    location = limit["place"]
    return f"{Path(location['file']).name}:{location['line']}" if location else "in an unknown line"


def has_empty_input(summary: Summary) -> bool:
    """Return True if TensorFlow's input ended before the first step, for example because no file matches a pattern."""
    return "OutOfRangeError" in summary.failure and summary.steps == 0


def advise(summary: Summary, plan: Plan) -> list[str]:
    """Return the cause of a failure and advice on what to try next."""
    if summary.interrupting_signal:
        return [f"The rehearsal was interrupted by {name_signal(summary.interrupting_signal)}."]
    if limits.StandInFails.__name__ in summary.failure:
        return [f"The rehearsal failed, not the script: {summary.failure}. {OUR_FAULT}"]
    match = MISSING_PACKAGE.search(summary.failure)
    if match:
        module = match[1]
        package = module.partition(".")[0]
        if package in STAND_IN_PACKAGES:
            return [f"The stand-in has no module {module!r}."]
        return [f"No module {module!r} was found. If {package} is a package: {make_install_advice([package])}"]
    if MISSING_FILE.search(summary.failure) or has_empty_input(summary):
        lines = [f"Data is missing, or another file: {summary.failure}. Arguments after -- are passed to the script."]
        return lines if plan.fake_data else [*lines, "--fake-data makes up records where their shapes are declared."]
    if summary.script_exit_code > 128 and not summary.failure:
        hint = KILL_HINTS.get(summary.script_exit_code, "")
        return [f"The script {describe_end(summary.script_exit_code)}{hint}."]
    if summary.unreported_end:
        return [f"{summary.unreported_end[0].upper()}{summary.unreported_end[1:]}: {UNREPORTED_END_ADVICE}"]
    if summary.stopped_by_limit == "watch":
        return [f"The script was ended, because its time and memory could not be read: {summary.failure}. {OUR_FAULT}"]
    if summary.stopped_by_limit:
        flag = "--timeout" if summary.stopped_by_limit == "time" else "--memory"
        return [f"The script was stopped by the limit on {summary.stopped_by_limit}, {flag}."]
    if STAND_IN_LACKS.match(summary.failure):
        return [f"The rehearsal cannot run this script: {summary.failure}"]
    if summary.failure:
        return [f"The script failed: {summary.failure}"]
    if summary.steps == 0 and plan.steps != 0:
        if plan.step_at:
            return [f"--step-at {plan.step_at} was never completed."]  # the statement was not, or the function
        return [
            "No training step was recognised. Name the line where a step ends with --step-at FILE:LINE, or give "
            "--steps 0 if the script does not train."
        ]
    return []
