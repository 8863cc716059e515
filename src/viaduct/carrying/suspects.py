"""Changed lines that may cause a difference, most likely first.

A changed line has a high score if a suspected object was created there or nearby, if a number in the line changed, or
if the line contains a keyword of the difference. In the user's copy (--migrated) a line that the rules would write
differently gets the most points. Lines that only rename the device or backend, or import a vendor's package such as
torch_npu, are left out.
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
VENDOR_IMPORT = re.compile(rf"\s*(?:import|from)\s+(?:{'|'.join((*PLUGINS, *NPU.tensorflow_modules))})\b")
MAX_SUSPECTS = 5
NEAR_LINES = 8  # a changed line at most so many lines away from a suspected one is near it


@dataclass(frozen=True)
class Suspect:
    """A changed line that may cause the difference."""

    file: str
    line: int  # in the migrated file; for a removed line, the line before it
    old: str
    new: str
    why: str
    score: float  # only the order of scores matters

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Change:
    """Removed lines (`old`) and the line that replaced them (`new`). `marked`: the text that differs, of both."""

    line: int
    old: str
    new: str
    marked: str


def find_suspects(sides: Sides, explanation: Explanation) -> list[Suspect]:
    """Return at most MAX_SUSPECTS lines, most likely first, each with at least a quarter of the best score."""
    scored = [suspect for path, rows in sides.diffs.items() for suspect in score_file(sides, path, rows, explanation)]
    scored.sort(key=lambda suspect: -suspect.score)
    best = scored[0].score if scored else 0.0
    return [suspect for suspect in scored[:MAX_SUSPECTS] if suspect.score >= max(1.0, best / 4)]


def score_file(sides: Sides, path: str, rows: list[AlignedLine], explanation: Explanation) -> Iterator[Suspect]:
    """Yield the changed lines of one file with their scores."""
    full_path = str((sides.migrated_root / path).resolve())
    lines = [line for file, line in explanation.suspected_lines if str(Path(file).resolve()) == full_path]
    deviating = sides.deviating_lines.get(path, set())
    for change in iterate_changes(rows):
        if not is_harmless(change):
            score, why = score_change(change, lines, deviating, explanation.keywords)
            yield Suspect(path, change.line, change.old.strip(), change.new.strip(), why, score)


def iterate_changes(rows: list[AlignedLine]) -> Iterator[Change]:
    """Yield changes: changed lines, and removed lines with the first line that was added right after them."""
    last, removed = 1, ""
    for row in rows:
        if removed and row.kind != "removed" and row.kind != "added":
            yield Change(last, removed, "", removed)
            removed = ""
        last = row.new or last
        if row.kind == "removed":
            removed = f"{removed} {row.old_text.strip()}".strip()
        elif row.kind == "added" and (row.new_text + removed).strip():
            yield Change(last, removed, row.new_text, removed + row.new_text)
            removed = ""
        elif row.kind == "changed":
            marked = " ".join(piece.text for piece in (*row.old_pieces, *row.new_pieces) if piece.marked)
            yield Change(last, row.old_text, row.new_text, marked)
    if removed:
        yield Change(last, removed, "", removed)


def is_harmless(change: Change) -> bool:
    """Return True if a change only renames the device or backend, or imports a vendor's package."""
    old, new = (BACKEND.sub("backend", DEVICE.sub("device", text)).strip() for text in (change.old, change.new))
    return old == new or (not change.old and bool(VENDOR_IMPORT.match(change.new)))


def score_change(change: Change, lines: list[int], deviating: set[int], keywords: tuple[str, ...]) -> tuple[float, str]:
    """Return a score and its reasons.

    `lines`: those that created a suspected object. `deviating`: those that the rules would write differently.
    """
    reasons: list[tuple[float, str]] = []
    if change.line in deviating:
        reasons.append((60, "the rules would write it differently"))
    if change.line in lines:
        reasons.append((40, "it created an object that differs or is suspected"))
    elif near := [line for line in lines if abs(line - change.line) <= NEAR_LINES]:
        distance = min(abs(line - change.line) for line in near)
        reasons.append((20 - distance, "an object that differs or is suspected was created nearby"))
    if change.old and NUMBER.findall(change.old) != NUMBER.findall(change.new):
        reasons.append((15, "a number changed"))
    if matching := [keyword for keyword in keywords if keyword in change.marked]:
        reasons.append((10, f"it changes {matching[0]!r}"))
    elif matching := [keyword for keyword in keywords if keyword in change.old + change.new]:
        reasons.append((4, f"it contains {matching[0]!r}"))
    return sum(score for score, _ in reasons), "; ".join(why for _, why in reasons)
