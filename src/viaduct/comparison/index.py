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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from viaduct.comparison.tensor_statistics import keep_exact
from viaduct.errors import BadData
from viaduct.json_records import Damaged, decode_record, load_object, require_type

INDEX_FILE = "index.json"
FORMAT = "viaduct dump"
VERSION = 1
HINT = "Was the copy cut short? Copy the folder again, or dump again."
MAX_BYTES = 256 << 20  # more than an index of a million tensors has
Number = Annotated[int, Ge(0)]  # an index, a count, or a number of bytes


class Statistics(dict[str, float]):
    """Statistics of a tensor by name. In JSON, NaN and infinities are texts."""

    @classmethod
    def decode_json(cls, value: Any) -> Statistics:
        require_type(value, dict, "statistics")
        try:
            return cls((name, keep_exact(number)) for name, number in value.items())
        except (TypeError, ValueError, OverflowError):
            raise Damaged(f"statistics is {str(value)[:60]}; it must hold numbers") from None


@dataclass
class Entry:
    """One tensor. The capture fills in dtype, shape, file and fault; the writer bytes, crc32 and statistics.

    If only statistics are dumped, the capture computes them and the entry has no file.
    """

    op: str
    type: str
    role: str
    index: Number
    order: Number
    call: Number = 0
    parameter: str = ""
    dtype: str = ""
    shape: tuple[Number, ...] = ()
    file: str | None = None
    bytes: Number = 0
    crc32: Number = 0
    statistics: Statistics = field(default_factory=Statistics)
    fault: str = ""


@dataclass(frozen=True)
class Index:
    """Index of one step and rank."""

    step: Number
    rank: Number
    ranks: Number
    settings: Mapping[str, str]
    edges: Mapping[str, tuple[str, ...]]
    tensors: Sequence[Entry]


def write_index(folder: Path, index: Index) -> None:
    """Write an index with one tensor a line, for reading and grep."""
    head = {"format": FORMAT, "version": VERSION, "step": index.step, "rank": index.rank, "ranks": index.ranks}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines.append(f' "settings": {json.dumps(dict(index.settings))}')
    edges = [f"  {json.dumps(op)}: {json.dumps(list(producers))}" for op, producers in index.edges.items()]
    lines.append(' "edges": {\n' + ",\n".join(edges) + "\n }" if edges else ' "edges": {}')
    rows = ["  " + json.dumps(to_record(entry), allow_nan=False) for entry in index.tensors]
    lines.append(' "tensors": [\n' + ",\n".join(rows) + "\n ]" if rows else ' "tensors": []')
    (folder / INDEX_FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def to_record(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON fields; empty texts are left out."""
    record = dict(vars(entry), shape=list(entry.shape))
    record["statistics"] = {name: encode_float(value) for name, value in entry.statistics.items()}
    return {name: value for name, value in record.items() if value != "" or name in ("op", "type")}


def encode_float(value: float) -> float | str:
    """Return a float, or a text for NaN and infinities, which JSON cannot hold."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Inf" if value > 0 else "-Inf"


def read_index(path: Path) -> Index:
    """Read an index; raise BadData if it is damaged or has another version of the format."""
    try:
        record = load_object(path, MAX_BYTES)
        if record.get("format") != FORMAT:
            raise BadData(f"{path} is not the index of a dump: its format is {record.get('format')!r}.")
        if record.get("version") != VERSION:
            raise BadData(
                f"{path} has version {record.get('version')!r} of the dump format; this viaduct reads {VERSION}.",
                "Dump again with this version, or compare with the one that made it.",
            )
        index: Index = decode_record(Index, record)
        return index
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from None
    except Damaged as reason:
        raise BadData(f"{path} is damaged: {reason}.", HINT) from None
