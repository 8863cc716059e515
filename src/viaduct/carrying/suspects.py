"""Changed lines that may cause a difference, most likely first.

A changed line scores by what is known of the difference: an object was created there or nearby with another number, a
number in the line changed, the line contains a keyword of the difference. In the user's copy (--migrated) a line that
the rules would write differently scores most. A line that renames the device or backend alone, or imports the adapter,
is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.cards import BACKENDS, NPU, PLUGINS
from viaduct.carrying.causes import Explanation
from viaduct.carrying.sides import Sides
from viaduct.migration.diffing import AlignedLine

NUMBER = re.compile(r"(?<![\w.])\d+\.?\d*(?:e[-+]?\d+)?", re.IGNORECASE)
DEVICE = re.compile(r"cuda|gpu|npu|mlu", re.IGNORECASE)
BACKEND = re.compile("|".join(BACKENDS.values()))
ADAPTERS = re.compile(rf"\s*(?:import|from)\s+(?:{'|'.join((*PLUGINS, *NPU.tensorflow_modules))})\b")
MAX_SUSPECTS = 5
NEAR_LINES = 8


@dataclass(frozen=True)
class Suspect:
    """A changed line that may cause the difference. `line` is in the migrated file; the one before a removed line."""

    file: str
    line: int
    old: str
    new: str
    why: str
    score: float

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Change:
    """Removed lines and the one that replaced them; `marked` is the part that differs."""

    line: int
    old: str
    new: str
    marked: str


def find_suspects(sides: Sides, found: Explanation) -> list[Suspect]:
    """Return at most MAX_SUSPECTS lines, most likely first, each with at least a quarter of the best score."""
    scored = [suspect for path, rows in sides.files.items() for suspect in score_file(sides, path, rows, found)]
    scored.sort(key=lambda suspect: -suspect.score)
    best = scored[0].score if scored else 0.0
    return [suspect for suspect in scored[:MAX_SUSPECTS] if suspect.score >= max(1.0, best / 4)]


def score_file(sides: Sides, path: str, rows: list[AlignedLine], found: Explanation) -> Iterator[Suspect]:
    """Yield the changed lines of one file with their scores."""
    full = str((sides.folder / path).resolve())
    lines = [line for file, line in found.places if str(Path(file).resolve()) == full]
    deviating = sides.deviating_lines.get(path, set())
    for change in iterate_changes(rows):
        if not is_innocent(change):
            score, why = score_change(change, lines, deviating, found.keywords)
            yield Suspect(path, change.line, change.old.strip(), change.new.strip(), why, score)


def iterate_changes(rows: list[AlignedLine]) -> Iterator[Change]:
    """Yield changes: what was removed with what was added right after it."""
    last, gone = 1, ""
    for row in rows:
        if gone and row.kind != "removed" and row.kind != "added":
            yield Change(last, gone, "", gone)
            gone = ""
        last = row.new or last
        if row.kind == "removed":
            gone = f"{gone} {row.old_text.strip()}".strip()
        elif row.kind == "added" and (row.new_text + gone).strip():
            yield Change(last, gone, row.new_text, gone + row.new_text)
            gone = ""
        elif row.kind == "changed":
            marked = " ".join(piece.text for piece in (*row.left, *row.right) if piece.marked)
            yield Change(last, row.old_text, row.new_text, marked)
    if gone:
        yield Change(last, gone, "", gone)


def is_innocent(change: Change) -> bool:
    """Return True if only the device or backend is renamed, or the adapter is imported."""
    old, new = (BACKEND.sub("backend", DEVICE.sub("device", text)).strip() for text in (change.old, change.new))
    return old == new or (not change.old and bool(ADAPTERS.match(change.new)))


def score_change(change: Change, lines: list[int], deviating: set[int], keywords: tuple[str, ...]) -> tuple[float, str]:
    """Return a score and its reasons. `lines`: where objects were created that differ or whose outputs differ."""
    reasons: list[tuple[float, str]] = []
    if change.line in deviating:
        reasons.append((60, "the rules would write it differently"))
    if change.line in lines:
        reasons.append((40, "what differs was created here"))
    elif near := [line for line in lines if abs(line - change.line) <= NEAR_LINES]:
        reasons.append((20 - min(abs(line - change.line) for line in near), "what differs was created nearby"))
    if change.old and NUMBER.findall(change.old) != NUMBER.findall(change.new):
        reasons.append((15, "a number changed"))
    if matching := [keyword for keyword in keywords if keyword in change.marked]:
        reasons.append((10, f"it is about {matching[0]}"))
    elif matching := [keyword for keyword in keywords if keyword in change.old + change.new]:
        reasons.append((4, f"it is about {matching[0]}"))
    return sum(score for score, _ in reasons), "; ".join(why for _, why in reasons)
