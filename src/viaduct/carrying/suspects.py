"""The changed lines that a difference may come from, the likeliest first.

A line counts by what is known of the difference: something was made there with another number, it speaks of what the
difference is about, a number in it changed. In somebody's own copy, a line that our rules would not have written so
counts most. A line in which only the device has another name is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.carrying.causes import Explanation
from viaduct.carrying.migrated import Sides
from viaduct.migration.diffing import Row

NUMBER = re.compile(r"(?<![\w.])\d+\.?\d*(?:e[-+]?\d+)?", re.IGNORECASE)
DEVICE = re.compile(r"cuda|gpu|npu|mlu", re.IGNORECASE)
BACKEND = re.compile(r"nccl|hccl|cncl")
ADAPTERS = re.compile(r"\s*(?:import|from)\s+(?:torch_npu|torch_mlu|npu_bridge|hccl)\b")
MOST = 5
NEAR = 8  # lines


@dataclass(frozen=True)
class Suspect:
    """`line` counts in the migrated file; of a line that is gone, the one before it."""

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
    """Lines that went and the one that came in their place; `marked` is what of them differs."""

    line: int
    old: str
    new: str
    marked: str


def suspects(sides: Sides, found: Explanation) -> list[Suspect]:
    scored = [one for path, rows in sides.files.items() for one in of_file(sides, path, rows, found)]
    scored.sort(key=lambda one: -one.score)
    best = scored[0].score if scored else 0.0
    return [one for one in scored[:MOST] if one.score >= max(1.0, best / 4)]


def of_file(sides: Sides, path: str, rows: list[Row], found: Explanation) -> Iterator[Suspect]:
    full = str((sides.folder / path).resolve())
    lines = [line for file, line in found.places if str(Path(file).resolve()) == full]
    unlike = sides.unlike.get(path, set())
    for change in changes(rows):
        if not innocent(change):
            score, why = weighed(change, lines, unlike, found.words)
            yield Suspect(path, change.line, change.old.strip(), change.new.strip(), why, score)


def changes(rows: list[Row]) -> Iterator[Change]:
    """What was removed stands with what was added right behind it."""
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


def innocent(change: Change) -> bool:
    """Only the device or its backend is called otherwise, or the adapter is imported."""
    old, new = (BACKEND.sub("backend", DEVICE.sub("device", text)).strip() for text in (change.old, change.new))
    return old == new or (not change.old and bool(ADAPTERS.match(change.new)))


def weighed(change: Change, lines: list[int], unlike: set[int], words: tuple[str, ...]) -> tuple[float, str]:
    reasons: list[tuple[float, str]] = []
    if change.line in unlike:
        reasons.append((60, "the rules would not write it so"))
    if change.line in lines:
        reasons.append((40, "something was made here with another number"))
    elif near := [one for one in lines if abs(one - change.line) <= NEAR]:
        reasons.append((20 - min(abs(one - change.line) for one in near), "it stands near"))
    if change.old and NUMBER.findall(change.old) != NUMBER.findall(change.new):
        reasons.append((15, "a number changed"))
    if spoken := [word for word in words if word in change.marked]:
        reasons.append((10, f"it is about {spoken[0]}"))
    elif spoken := [word for word in words if word in change.old + change.new]:
        reasons.append((4, f"it is about {spoken[0]}"))
    return sum(score for score, _ in reasons), "; ".join(why for _, why in reasons)
