"""Limits of the accelerator (the card): operations that it refuses and the CPU of a rehearsal does not.

A stand-in calls `report_violation(name, …)` where a script goes beyond a documented limit; `name` is a key of
`viaduct.cards.limits.LIMITS`. The script's line is recorded for the summary and printed once, with the card's behaviour
and the change to make. Then `CardRefuses` is raised, as the card would stop the script, unless the limit's mode is
`warn` or `off`. The environment variable `VIADUCT_LIMITS` holds the modes (`error`, or `warn,float64=off`), so that
child processes have them too.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, cast, get_args

from viaduct.cards.limits import LIMITS
from viaduct.errors import BadValue, UnknownName

Mode = Literal["off", "warn", "error"]

# Environment variables; `environment.py` sets them.
LIMITS_VARIABLE = "VIADUCT_LIMITS"
RECORD_VARIABLE = "VIADUCT_REHEARSAL_RECORD"  # the folder of the rehearsal's record
PROJECT_VARIABLE = "VIADUCT_REHEARSAL_PROJECT"  # the script's folder and others of the project, joined as in PATH
LANGUAGE_VARIABLE = "VIADUCT_REHEARSAL_LANG"  # "zh": sentences about limits in Chinese
NOT_CHECKED = "not checked"  # of all limits
_VIADUCT = str(Path(__file__).parents[1]) + os.sep  # folder of the package viaduct


class StandInFails(RuntimeError):
    """Raised in the script where viaduct's own code failed."""


class CardRefuses(RuntimeError):
    """Raised in the script where a card would fail; a RuntimeError, as on a card."""


@contextmanager
def blame_viaduct(*unchanged: type[Exception]) -> Iterator[None]:
    """Turn an exception in the block, or in the decorated function, into StandInFails: it is viaduct's code.

    CardRefuses, the errors `unchanged`, and StopScript, which is no Exception, are raised as they are.
    """
    passed_on: tuple[type[Exception], ...] = (CardRefuses, *unchanged)
    try:
        yield
    except passed_on:
        raise
    except Exception as error:
        raise StandInFails(f"{type(error).__name__}: {error}") from error


class Line(NamedTuple):
    """A line of the user's script."""

    file: str
    line: int

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        folder = next((folder for folder in list_project_folders() if self.file.startswith(folder)), "")
        return f"{self.file.removeprefix(folder)}:{self.line}"


@dataclass(frozen=True)
class Violation:
    """A limit that the script met."""

    name: str
    mode: Mode
    place: Line | None  # the script's line; None if it is unknown
    action: str  # what the script did
    behaviour: str  # what the card would do
    remedy: str  # what to write instead


violations: list[Violation] = []  # limits met in this process; each once for each line of the script


def parse_modes(switches: str) -> tuple[Mode, dict[str, Mode]]:
    """Parse `error` or `warn,float64=off`: return the mode of all limits, and the modes of those that are named.

    Raise BadValue for an unknown mode and UnknownName for an unknown limit.
    """
    default: Mode = "error"
    by_name: dict[str, Mode] = {}
    for switch in filter(None, (part.strip() for part in switches.split(","))):
        name, equals, value = switch.rpartition("=")
        if value not in get_args(Mode):
            raise BadValue(
                f"the mode of a limit is off, warn or error, not {value!r}.", "For example: --limit float64=warn."
            )
        if not equals:
            default = cast(Mode, value)
        elif (limit := name.strip().replace("_", "-")) not in LIMITS:
            raise UnknownName("limit", name, LIMITS)
        else:
            by_name[limit] = cast(Mode, value)
    return default, by_name


def describe_unchecked(modes: str) -> str:
    """Return which limits are not checked with these modes (as for `parse_modes`); "" if all are checked."""
    default, by_name = parse_modes(modes)
    off = [name for name, mode in by_name.items() if mode == "off"]
    on = [name for name in by_name if name not in off]
    if default == "off":
        return f"only {', '.join(on)} {'was' if len(on) == 1 else 'were'} checked" if on else NOT_CHECKED
    return f"not checked: {', '.join(off)}" if off else ""


def find_mode(name: str) -> Mode:
    """Return the mode that the environment variable VIADUCT_LIMITS gives to a limit."""
    default, by_name = parse_modes(os.environ.get(LIMITS_VARIABLE, ""))
    return by_name.get(name, default)


def report_violation(
    name: str,
    case: str = "",
    /,
    *,
    at: tuple[str, int] | None = None,
    fatal: bool = True,
    doubtful: bool = False,
    **fields: Any,
) -> None:
    """Report that the script goes beyond limit `name`; raise CardRefuses if the limit's mode is error.

    `case` is one of the limit's cases, and `fields` fill in the sentences of `viaduct.cards.limits`. `at` is the
    script's file and line if the stack does not show them (an operator of a graph). With `fatal=False` nothing is
    raised, but in mode error the rehearsal's exit code becomes 1; this is for violations that are found at the script's
    end. `doubtful=True` means that the card perhaps accepts what the script does: the report is a warning unless the
    user has set this limit, by its name, to error.
    """
    default, named_modes = parse_modes(os.environ.get(LIMITS_VARIABLE, ""))
    effective = named_modes.get(name, "warn" if doubtful and default == "error" else default)
    if effective == "off":
        return
    fields["title"] = fields.get("device", "").upper()  # sentences have {device} for npu and {title} for NPU
    sentences = LIMITS[name].choose_sentences(case, is_chinese())
    action, behaviour, remedy = (sentence.format(**fields) for sentence in sentences)
    violation = Violation(name, effective, Line(*at) if at else find_users_line(), action, behaviour, remedy)
    if not any((known.name, known.place) == (name, violation.place) for known in violations):
        violations.append(violation)
        append_violation(violation)
        if is_first_report(violation):
            print(format_violation(violation), file=sys.stderr, flush=True)
    if effective == "error" and fatal:
        raise CardRefuses(f"{action} [{name}] {behaviour} {remedy}")


def is_chinese() -> bool:
    """Return True if the sentences about limits are to be in Chinese (--lang zh)."""
    return os.environ.get(LANGUAGE_VARIABLE) == "zh"


def find_users_line() -> Line | None:
    """Return the line of the user's project that is innermost on the stack; None if there is none."""
    frame = next((frame for frame in iterate_frames() if is_users_file(frame.f_code.co_filename)), None)
    return Line(os.path.abspath(frame.f_code.co_filename), frame.f_lineno) if frame else None


def iterate_frames() -> Iterator[FrameType]:
    """Yield the stack's frames, the innermost first."""
    return (frame for frame, _ in traceback.walk_stack(sys._getframe(1)))


def is_users_file(file: str) -> bool:
    """Return True for a file in one of the project's folders that is neither an installed package's nor viaduct's."""
    path = os.path.abspath(file)
    if file.startswith("<") or path.startswith(_VIADUCT) or f"{os.sep}site-packages{os.sep}" in path:
        return False
    return any(path.startswith(folder) for folder in list_project_folders())


def list_project_folders() -> list[str]:
    """Return the folders of the project, each with a slash at its end; by default the folder of the script."""
    folders = os.environ.get(PROJECT_VARIABLE) or os.path.dirname(os.path.abspath(sys.argv[0]))
    return [os.path.join(os.path.abspath(folder), "") for folder in folders.split(os.pathsep)]


def append_violation(violation: Violation) -> None:
    """Append a violation to limits.jsonl if there is a record; short appends of several processes do not mix."""
    folder = os.environ.get(RECORD_VARIABLE)
    if not folder:
        return
    entry = {
        "name": violation.name,
        "mode": violation.mode,
        "place": violation.place._asdict() if violation.place else None,
        "what": violation.action,
        "card": violation.behaviour,
        "change": violation.remedy,
        "text": violation.place.text if violation.place else "",
        "rank": os.environ.get("RANK_ID") or os.environ.get("RANK") or "0",
    }
    with open(Path(folder) / "limits.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def is_first_report(violation: Violation) -> bool:
    """Return True in the first process of the rehearsal that meets this limit in this line.

    Without a record or a line, always return True.
    """
    folder = os.environ.get(RECORD_VARIABLE)
    if not folder or violation.place is None:
        return True
    mark = hashlib.sha1(repr((violation.name, *violation.place)).encode()).hexdigest()
    marks = Path(folder) / "reported"
    marks.mkdir(exist_ok=True)
    try:
        (marks / mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def format_violation(violation: Violation) -> str:
    limit, place = LIMITS[violation.name], violation.place
    lines = [f"viaduct rehearse: limit {violation.name}"]
    if place:
        lines = [f"viaduct rehearse: {place}: limit {violation.name}", f"    {place.line:>5} | {place.text}"]
    labels = ("脚本", "加速卡", "修改", "原因") if is_chinese() else ("script", "card", "change", "why")
    texts = (violation.action, violation.behaviour, violation.remedy, limit.reason[is_chinese()])
    return "\n".join([*lines, *(f"  {label}: {text}" for label, text in zip(labels, texts, strict=True))])


def format_table() -> str:
    """Return the table of limits for docs/rehearse.md, with the fields of sentences in capital letters."""
    rows = []
    for name, limit in LIMITS.items():
        _, _, remedy = limit.choose_sentences("", is_chinese=False)
        remedy = re.sub(r"\{(\w+)\}", lambda field: field[1].upper(), remedy)
        rows.append(f"| `{name}` | {limit.framework} | {limit.reason[0]} | {remedy} |")
    return "\n".join(["| limit | framework | why | what to change |", "| --- | --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(format_table())
