"""Reads a run directory repeatedly while a process trains in it; of files that grow, only the added lines are read.

    reader = RunReader(Path("runs/try1"))
    contents = reader.read()            # logs, evaluations, histograms, images; cheap if nothing has changed
    contents.version                    # another text if one of WATCHED_FILES or the list of images has changed

Needs no torch. The run may not have begun, and the last line of a file may be half written.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viaduct.errors import BadRun
from viaduct.growing_file import GrowingFile
from viaduct.json_records import Damaged, has_fields, parse_object
from viaduct.reporting import Histogram
from viaduct.run_files import RECORD_FIELDS, count_steps, parse_metric, read_count, read_recipe_record

IMAGE_NAME = re.compile(r"step-([0-9]{8,18})\.png", re.ASCII)  # of a sheet of input images in RUN/images
SHOWN_HISTOGRAMS = 8  # steps whose histograms are shown; up to twice as many are held in memory
PER_STEP_FIELDS = {"losses"}  # fields of a log record that have a value for each step; they are not kept in memory
MAX_AXIS_VALUE = 1e300  # the width of a chart's axis overflows if values are larger
HISTOGRAM_FIELDS = {"min": float, "max": float, "counts": list}  # fields of a histogram that are read, and their types
HISTOGRAM_KINDS = ("parameters", "gradients")
MAX_COUNT = 1 << 62  # of values in a bin of a histogram; a larger number is taken for damage
WATCHED_FILES = ("recipe.json", "metrics.jsonl", "histograms.jsonl")


@dataclass(frozen=True)
class StepHistograms:
    """A line of histograms.jsonl."""

    step: int
    kinds: dict[str, dict[str, Histogram]]  # kind (HISTOGRAM_KINDS) -> parameter's name -> histogram


@dataclass(frozen=True)
class RunContents:
    """Contents of a run directory."""

    record: dict[str, Any]  # recipe.json; empty before the run has begun
    logs: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    # Kind (HISTOGRAM_KINDS) -> parameter's name -> a histogram for each step, in order.
    histograms: dict[str, dict[str, list[Histogram]]]
    images: list[str]  # names of the files in RUN/images, the newest last
    version: str  # another text for other contents

    @property
    def name(self) -> str:
        return str(self.record.get("name", ""))

    @property
    def global_batch(self) -> int:
        return read_count(self.record.get("recipe", {}).get("data"), "global_batch")

    @property
    def steps(self) -> int:
        """Steps of the whole run by its recipe; 0 if not known."""
        return count_steps(self.record)


@dataclass
class RunReader:
    """Reads a run directory; not thread-safe."""

    path: Path
    logs: dict[int, dict[str, Any]] = field(default_factory=dict)
    evaluations: dict[int, dict[str, Any]] = field(default_factory=dict)
    histograms: list[StepHistograms] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._metrics_file = GrowingFile(self.path / "metrics.jsonl", self._forget_metrics)
        self._histograms_file = GrowingFile(self.path / "histograms.jsonl", self.histograms.clear)
        self._signature: tuple[Any, ...] | None = None  # of the files that `_contents` was read from
        self._contents: RunContents | None = None

    def read(self) -> RunContents:
        """Return the contents; the same object as before if none of WATCHED_FILES and no image name has changed."""
        images = self._list_images()
        signature = (*(stat_file(self.path / name) for name in WATCHED_FILES), *images)
        if self._contents is None or signature != self._signature:
            for line in self._metrics_file.read_new_lines():
                self._add_metric(line)
            for line in self._histograms_file.read_new_lines():
                self._add_histograms(line)
            try:
                record = read_recipe_record(self.path)
            except (BadRun, OSError):
                record = {}
            self._contents = RunContents(
                record=record,
                logs=list(self.logs.values()),
                evaluations=list(self.evaluations.values()),
                histograms=gather_histograms(pick_evenly(self.histograms, SHOWN_HISTOGRAMS)),
                images=images,
                version=hashlib.sha256(repr(signature).encode()).hexdigest()[:16],
            )
            self._signature = signature
        return self._contents

    def _list_images(self) -> list[str]:
        try:
            names = [name for name in os.listdir(self.path / "images") if IMAGE_NAME.fullmatch(name)]
        except OSError:
            return []
        return sorted(names, key=parse_image_step)

    def _forget_metrics(self) -> None:
        self.logs.clear()
        self.evaluations.clear()

    def _add_metric(self, line: bytes) -> None:
        record = parse_metric(line.decode("utf-8", errors="replace"))
        if record is None or record["kind"] not in ("log", "evaluation"):
            return
        if not has_fields(record, RECORD_FIELDS[record["kind"]]):
            return
        kept = {name: value for name, value in record.items() if name not in PER_STEP_FIELDS}
        records = self.logs if record["kind"] == "log" else self.evaluations
        records.pop(record["step"], None)  # the last record of a step counts
        records[record["step"]] = kept

    def _add_histograms(self, line: bytes) -> None:
        try:
            record = parse_object(line)
        except Damaged:
            return
        step = record.get("step")
        if not isinstance(step, int):
            return
        kinds = {kind: read_histograms(step, record.get(kind)) for kind in HISTOGRAM_KINDS}
        self.histograms[:] = [earlier for earlier in self.histograms if earlier.step < step]
        self.histograms.append(StepHistograms(step, kinds))
        if len(self.histograms) > 2 * SHOWN_HISTOGRAMS:
            self.histograms[:] = [*self.histograms[:-1:2], self.histograms[-1]]  # every second one, and the last


def parse_image_step(name: str) -> int:
    match = IMAGE_NAME.fullmatch(name)
    return int(match[1]) if match else -1


def stat_file(path: Path) -> tuple[int, int, int] | None:
    """Return inode, size and modification time of a file, which change with the file; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def pick_evenly(items: list[Any], limit: int) -> list[Any]:
    """Return at most `limit` of the items, evenly spaced, with the first and the last."""
    if len(items) <= limit:
        return list(items)
    return [items[round(index * (len(items) - 1) / (limit - 1))] for index in range(limit)]


def gather_histograms(steps: list[StepHistograms]) -> dict[str, dict[str, list[Histogram]]]:
    """Return the histograms of some steps by kind and name."""
    gathered: dict[str, dict[str, list[Histogram]]] = {kind: {} for kind in HISTOGRAM_KINDS}
    for step in steps:
        for kind, by_name in gathered.items():
            for name, histogram in step.kinds[kind].items():
                by_name.setdefault(name, []).append(histogram)
    return gathered


def read_histograms(step: int, parts: Any) -> dict[str, Histogram]:
    """Return the histograms of one step by name, without damaged ones."""
    items = parts.items() if isinstance(parts, dict) else ()
    return {name: histogram for name, part in items if (histogram := read_histogram(step, part)) is not None}


def read_histogram(step: int, part: Any) -> Histogram | None:
    """Return the histogram in a record; None if fields are missing or damaged, or its range cannot be drawn."""
    if not isinstance(part, dict) or not has_fields(part, HISTOGRAM_FIELDS):
        return None
    low, high, counts = float(part["min"]), float(part["max"]), part["counts"]
    is_drawable = -MAX_AXIS_VALUE < low <= high < MAX_AXIS_VALUE and len(counts) > 0
    if not is_drawable or not all(type(count) in (int, float) and 0 <= count < MAX_COUNT for count in counts):
        return None
    return Histogram(step, low, high, [int(count) for count in counts])
