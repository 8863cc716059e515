"""The index of one dumped step: the list of the tensors in its folder.

    DUMP/step_000005/index.json         one rank
    DUMP/step_000005/rank_1/index.json  several
      format, version      "viaduct dump", 1
      step, rank, ranks
      settings             device, precision, tf32, mode, deterministic, seed, versions, commit, script …: texts
      edges                operator -> the operators whose outputs it reads
      tensors              op, type, role, index, order, call, parameter, dtype, shape, file, bytes, crc32, statistics,
                           fault

`file` is a name in the same folder, or null if only statistics were dumped or the tensor could not be stored (`fault`).
Several tensors may share one file. bfloat16 and eight-bit floats are stored as their bits (uint16, uint8). NaN and
infinities are written as texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from viaduct.errors import BadData

INDEX_FILE = "index.json"
FORMAT = "viaduct dump"
VERSION = 1
TEXT_FIELDS = ("op", "type", "role", "parameter", "dtype", "fault")
NUMBER_FIELDS = ("index", "order", "call", "bytes", "crc32")
HINT = "Was the copy cut short? Copy the folder again, or dump again."
MAX_BYTES = 256 << 20  # more than an index of a million tensors has
Value = TypeVar("Value")


@dataclass
class Entry:
    """One tensor. The capture fills in dtype, shape, file and fault; the writer bytes, crc32 and statistics."""

    op: str
    type: str
    role: str
    index: int
    order: int
    call: int = 0
    parameter: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    file: str | None = None
    bytes: int = 0
    crc32: int = 0
    statistics: dict[str, float] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Index:
    """Index of one step and rank."""

    step: int
    rank: int
    ranks: int
    settings: Mapping[str, str]
    edges: Mapping[str, tuple[str, ...]]
    entries: list[Entry]


def write_index(folder: Path, index: Index) -> None:
    """Write an index with one tensor a line, for reading and grep."""
    head = {"format": FORMAT, "version": VERSION, "step": index.step, "rank": index.rank, "ranks": index.ranks}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines.append(f' "settings": {json.dumps(dict(index.settings))}')
    edges = [f"  {json.dumps(op)}: {json.dumps(list(producers))}" for op, producers in index.edges.items()]
    lines.append(' "edges": {\n' + ",\n".join(edges) + "\n }" if edges else ' "edges": {}')
    rows = ["  " + json.dumps(to_record(entry), allow_nan=False) for entry in index.entries]
    lines.append(' "tensors": [\n' + ",\n".join(rows) + "\n ]" if rows else ' "tensors": []')
    (folder / INDEX_FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def to_record(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON fields; empty texts are left out."""
    record = dict(vars(entry), shape=list(entry.shape))
    record["statistics"] = {name: encode_float(value) for name, value in entry.statistics.items()}
    return {name: value for name, value in record.items() if value != "" or name in ("op", "type")}


def encode_float(value: float) -> float | str:
    """Return a float, or a text for NaN and infinities, which JSON cannot hold."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"


def read_index(path: Path) -> Index:
    """Read an index; raise BadData if it is damaged or has another version of the format."""
    record = load_record(path)
    if record.get("format") != FORMAT:
        raise BadData(f"{path} is not the index of a dump: its format is {record.get('format')!r}.")
    if record.get("version") != VERSION:
        raise BadData(
            f"{path} has version {record.get('version')!r} of the dump format; this viaduct reads {VERSION}.",
            "Dump again with this version, or compare with the one that made it.",
        )
    try:
        numbers = {name: require_number(record.get(name), name) for name in ("step", "rank", "ranks")}
    except BadEntry as reason:
        raise BadData(f"{path} is damaged: {reason}.", HINT) from None
    settings, edges, tensors = record.get("settings", {}), record.get("edges", {}), record.get("tensors")
    if not isinstance(settings, dict) or not isinstance(edges, dict) or not isinstance(tensors, list):
        raise BadData(f"{path} is damaged: its settings, edges or tensors are missing or of another type.", HINT)
    return Index(
        **numbers,
        settings={str(name): str(value) for name, value in settings.items()},
        edges={op: tuple(map(str, producers)) for op, producers in edges.items() if isinstance(producers, list)},
        entries=[to_entry(item, number, path) for number, item in enumerate(tensors)],
    )


def load_record(path: Path) -> dict[str, Any]:
    """Load the JSON object of an index."""
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise BadData(f"{path} has {size:,} bytes: too large for an index.")
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadData(f"{path} is damaged: {problem if size else 'it is empty'}.", HINT) from None
    if not isinstance(record, dict):
        raise BadData(f"{path} is not the index of a dump.")
    return record


def to_entry(item: object, number: int, path: Path) -> Entry:
    """Return the entry of tensor `number` in the index at `path`; raise BadData if a field is wrong."""
    try:
        record = require(dict, item, "the entry")
        texts = {name: require(str, record.get(name, ""), name) for name in TEXT_FIELDS}
        numbers = {name: require_number(record.get(name, 0), name) for name in NUMBER_FIELDS}
        shape = tuple(require_number(size, "a size in shape") for size in require(list, record.get("shape"), "shape"))
        named = require(dict, record.get("statistics") or {}, "statistics")
        statistics = {str(name): require_float(value, f"the statistic {name}") for name, value in named.items()}
        file = None if record.get("file") is None else require(str, record["file"], "file")
        values: dict[str, Any] = {**texts, **numbers, "shape": shape, "statistics": statistics, "file": file}
        return Entry(**values)
    except BadEntry as reason:
        raise BadData(f"{path} is damaged: of tensor {number} {reason}.", HINT) from None


class BadEntry(Exception):
    """Invalid field of an index."""


def require(kind: type[Value], value: object, name: str) -> Value:
    """Return the value if it is of that type, else raise BadEntry."""
    if not isinstance(value, kind):
        raise BadEntry(f"{name} is {shorten_json(value)}")
    return value


def require_number(value: object, name: str) -> int:
    """Return the value if it is an int from 0, else raise BadEntry."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadEntry(f"{name} is {shorten_json(value)}")
    return value


def require_float(value: object, name: str) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise BadEntry(f"{name} is {shorten_json(value)}") from None


def shorten_json(value: object) -> str:
    """Return at most 60 characters of a value as JSON."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"
