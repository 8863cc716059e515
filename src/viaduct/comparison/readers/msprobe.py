"""Reads the dumps of msprobe's PrecisionDebugger for PyTorch and MindSpore.

    {dump}/step{n}/rank{r}/dump.json, construct.json, dump_tensor_data/*.pt     the path may be any of these levels

Modules are named by their path (`layer1.0.conv1`), calls of functions by kind, name and number (`Functional.relu.3`).
Tensors within lists and keyword arguments are numbered in the order of dump.json. Their files are read from the folder
beside it, whatever path it states. A dump does not say which operator feeds which: an input with the shape and
statistics of an earlier output is assumed to be that output.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from viaduct.comparison.readers.listing import join_some, list_files, load_json, resolve_inside
from viaduct.comparison.records import Role, StoredDump, StoredTensor
from viaduct.comparison.tensor_statistics import keep_exact
from viaduct.errors import BadData, ViaductError

KIND = "msprobe"
DUMP, CONSTRUCT, TENSORS = "dump.json", "construct.json", "dump_tensor_data"
MAX_DEPTH = 16  # of nested lists in a call's arguments
MAX_MODULE_DEPTH = 64
MAX_TENSORS = 2_000_000
STATISTICS = {"Max": "max", "Min": "min", "Mean": "mean", "Norm": "norm"}
DTYPES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}

_STEP = re.compile(r"step(\d{1,12})")
_RANK = re.compile(r"rank(\d{0,6})")
_PROCESS = re.compile(r"proc(\d+)")
_MODULE = re.compile(r"(?:Module|Cell)\.(.+)\.([^.]+)\.(forward|backward)(?:\.(\d{1,12}))?", re.DOTALL)
_ROOT = re.compile(r"(?:Module|Cell)\.([^.]+)\.(forward|backward)(?:\.(\d{1,12}))?")
_GRADIENTS = re.compile(r"(?:Module|Cell)\.(?:(.+)\.)?([^.]+)\.parameters_grad(?:\.(\d{1,12}))?", re.DOTALL)
_FUNCTION = re.compile(r"([A-Za-z]\w*)\.(.+)\.(\d+)\.(forward|backward)", re.DOTALL)
# Key within an entry of dump.json -> role of its tensors, for entries of the forward and of the backward pass.
FORWARD: dict[str, Role] = {
    "input_args": "input", "input_kwargs": "input", "input": "input", "output": "output", "parameters": "parameter",
}  # fmt: skip
BACKWARD: dict[str, Role] = {
    "input": "grad_output", "grad_output": "grad_output", "output": "grad_input", "grad_input": "grad_input",
}  # fmt: skip


class EntryName(NamedTuple):
    """Name of an entry of dump.json in parts: Module.layer1.0.conv1.Conv2d.forward.0."""

    op: str  # layer1.0.conv1
    op_type: str  # Conv2d
    call: int  # number of the call of a module; the number of a function's call is part of `op`
    direction: str  # forward, backward, gradients (of parameters)


@dataclass
class DumpReader:
    """State while one dump.json is read."""

    folder: Path
    step: int
    rank: int
    tensors: list[StoredTensor] = field(default_factory=list)
    present: set[str] | None = None  # names in the folder of tensors; None: there is no such folder
    unknown_entries: list[str] = field(default_factory=list)  # names that are not understood
    counts: dict[tuple[str, int, Role], int] = field(default_factory=dict)  # tensors so far, by operator, call and role


def can_read(path: Path) -> bool:
    """Return True if the path is or holds a dump.json of msprobe."""
    return next(find_dumps(path), None) is not None


def find_dumps(path: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield every dump.json with its step and rank. Processes without a rank are numbered in order."""
    candidates = [path] if path.name == DUMP else [path / name for name in _list_candidates(path)]
    processes: dict[int, int] = {}
    for candidate in candidates:
        if not candidate.is_file():
            continue
        names = candidate.absolute().parts[-3:-1]
        step = next((int(match[1]) for name in names if (match := _STEP.fullmatch(name))), 0)
        rank = next((int(match[1] or 0) for name in names if (match := _RANK.fullmatch(name))), None)
        if rank is None and any(_PROCESS.fullmatch(name) for name in names):
            rank = processes.get(step, 0)
            processes[step] = rank + 1
        yield candidate, step, rank or 0


def _list_candidates(path: Path) -> list[str]:
    """Return the relative paths of dump.json: in the folder itself, or else in its step, rank and process folders."""
    if not path.is_dir():
        return []
    if (path / DUMP).is_file():
        return [DUMP]
    below = [name.split("/") for name in list_files(path).files if name.endswith(f"/{DUMP}")]
    return ["/".join(parts) for parts in below if all(map(_is_folder_name, parts[:-1]))]


def _is_folder_name(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_STEP, _RANK, _PROCESS))


def read(path: Path) -> StoredDump:
    """Read all steps and ranks of a dump."""
    notes: list[str] = []
    damaged: list[StoredTensor] = []
    dump_readers: list[DumpReader] = []
    settings: dict[str, str] = {}
    edges: dict[str, dict[str, None]] = {}
    for dump_path, step, rank in find_dumps(path):
        reader = DumpReader(dump_path.parent, step, rank)
        try:
            _read_dump(reader, dump_path, settings, notes)
        except ViaductError as error:
            notes.append(f"{dump_path.parent.name}: {error.message}")
            damaged.append(_make_refused(reader, DUMP, error.message))
            continue
        dump_readers.append(reader)
        for op, producers in _find_edges(reader, _read_parents(dump_path.parent, notes)).items():
            edges.setdefault(op, {}).update(producers)
    if not dump_readers:
        raise BadData(f"{str(path)!r} holds no dump of msprobe that can be read.", *notes)
    tensors = (*(tensor for reader in dump_readers for tensor in reader.tensors), *damaged)
    return StoredDump(
        path, KIND, tensors, {op: tuple(producers) for op, producers in edges.items()}, tuple(notes), settings
    )


def _read_dump(reader: DumpReader, dump_path: Path, settings: dict[str, str], notes: list[str]) -> None:
    record = load_json(dump_path)
    data = record.get("data") if isinstance(record, dict) else None
    if not isinstance(data, dict):
        raise BadData(f"{DUMP} has no 'data': it is not a dump of msprobe, or was not finished.")
    for name in ("task", "level", "framework"):
        settings.setdefault(name, str(record.get(name, ""))[:100])
    folder = reader.folder / TENSORS
    if folder.is_dir() and not folder.is_symlink():
        reader.present = {entry.name for entry in folder.iterdir()}
    for order, (name, entry) in enumerate(data.items()):
        _read_entry(reader, name, entry, order)
    if reader.unknown_entries:
        notes.append(f"{reader.folder.name}: entries not understood: {join_some(reader.unknown_entries)}")


def parse_entry_name(name: str) -> EntryName | None:
    """Return operator, type, call and direction of an entry's name; None if it is not understood."""
    if match := _GRADIENTS.fullmatch(name):
        return EntryName(match[1] or match[2], match[2], int(match[3] or 0), "gradients")
    if match := _MODULE.fullmatch(name):
        return EntryName(match[1], match[2], int(match[4] or 0), match[3])
    if match := _ROOT.fullmatch(name):
        return EntryName(match[1], match[1], int(match[3] or 0), match[2])
    if match := _FUNCTION.fullmatch(name):
        return EntryName(f"{match[1]}.{match[2]}.{match[3]}", match[2], 0, match[4])
    return None


def _read_entry(reader: DumpReader, name: str, entry: Any, order: int) -> None:
    entry_name = parse_entry_name(name)
    if entry_name is None or not isinstance(entry, dict):
        reader.unknown_entries.append(name)
        why = f"{DUMP} has an entry {name!r} that is not understood"
        reader.tensors.append(_make_refused(reader, name, why, order))
        return
    if entry_name.direction == "gradients":
        for parameter, values in entry.items():
            _add(reader, entry_name, "gradient", values, order, parameter)
        return
    roles = BACKWARD if entry_name.direction == "backward" else FORWARD
    for key, values in entry.items():
        if key == "parameters" and isinstance(values, dict):
            for parameter, tensor in values.items():
                _add(reader, entry_name, "parameter", tensor, order, parameter)
        elif key in roles:
            _add(reader, entry_name, roles[key], values, order)


def _make_refused(reader: DumpReader, op: str, why: str, order: int = 0) -> StoredTensor:
    """Return a tensor with a fault that stands for an entry, or a whole dump.json, that could not be read."""
    return StoredTensor(op, order=order, step=reader.step, rank=reader.rank, fault=why)


def _add(reader: DumpReader, entry_name: EntryName, role: Role, values: Any, order: int, parameter: str = "") -> None:
    for entry in _iterate_tensors(values, MAX_DEPTH):
        # The gradients of all entries of a module are numbered together.
        key = (entry_name.op, entry_name.call if entry_name.direction != "gradients" else -1, role)
        index = reader.counts.get(key, 0)
        reader.counts[key] = index + 1
        if len(reader.tensors) >= MAX_TENSORS:
            raise BadData(f"{DUMP} lists more than {MAX_TENSORS:,} tensors.")
        reader.tensors.append(_make_tensor(reader, entry_name, role, index, entry, order, parameter))


def _iterate_tensors(values: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the records of tensors within lists and keyword arguments, in the order of the file."""
    if isinstance(values, (list, dict)) and values and not depth:
        yield {}  # nested too deeply: a tensor without a shape, which is refused
    elif isinstance(values, list):
        for item in values:
            yield from _iterate_tensors(item, depth - 1)
    elif isinstance(values, dict):
        if ("shape" in values and "dtype" in values) or "Tensor" in str(values.get("type", "")):
            yield values
        elif "type" not in values:
            for item in values.values():
                yield from _iterate_tensors(item, depth - 1)


def _make_tensor(
    reader: DumpReader, entry_name: EntryName, role: Role, index: int, entry: dict[str, Any], order: int, parameter: str
) -> StoredTensor:  # fmt: skip
    path, fault = _find_file(reader, entry.get("data_name"))
    statistics = _read_statistics(entry)
    shape, dtype = entry.get("shape"), _normalise_dtype(entry.get("dtype", ""))
    if not isinstance(shape, list) or not all(type(dim) is int and 0 <= dim < 1 << 62 for dim in shape):
        shape, fault = [], f"{DUMP} gives it {'no shape' if shape is None else f'the shape {str(shape)[:60]}'}"
    if path is None and not fault and statistics is None:
        fault = f"{DUMP} has neither a file nor statistics of it"
    return StoredTensor(
        entry_name.op, entry_name.op_type, role, index, order, reader.step, reader.rank, dtype, tuple(shape),
        None if fault else path, call=entry_name.call, statistics=statistics, fault=fault, parameter=parameter,
    )  # fmt: skip


def _find_file(reader: DumpReader, name: Any) -> tuple[Path | None, str]:
    """Return the tensor's file, or None and the reason; the reason is empty if only statistics were dumped."""
    if name in (None, "", "-1", -1):
        return None, ""
    if reader.present is None:
        return None, f"the folder {TENSORS} is missing beside {DUMP}"
    path = resolve_inside(reader.folder / TENSORS, name)
    if path is None:
        return None, f"{DUMP} names {str(name)[:100]!r}, which lies outside its folder"
    return (path, "") if name in reader.present else (None, f"{name} is missing")


def _read_statistics(entry: Mapping[str, Any]) -> dict[str, float] | None:
    values = {name: value for key, name in STATISTICS.items() if (value := _parse_number(entry.get(key))) is not None}
    return values or None


def _parse_number(value: Any) -> float | None:
    if isinstance(value, str) and value.strip().lower() not in ("nan", "inf", "-inf", "+inf"):
        return None
    try:
        return None if value is None else keep_exact(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _normalise_dtype(name: Any) -> str:
    dtype = str(name).rsplit(".", 1)[-1].lower()[:40]
    return DTYPES.get(dtype, dtype)


def _read_parents(folder: Path, notes: list[str]) -> dict[str, str]:
    """Return the module that encloses each operator, from construct.json if it exists."""
    path = resolve_inside(folder, CONSTRUCT)
    if path is None or not path.is_file():
        return {}
    try:
        record = load_json(path)
    except ViaductError as error:
        notes.append(f"{folder.name}: {error.message}")
        return {}
    pairs = record.items() if isinstance(record, dict) else ()
    calls = ((parse_entry_name(name), parse_entry_name(parent)) for name, parent in pairs if isinstance(parent, str))
    return {child.op: parent.op for child, parent in calls if child and parent and child.op != parent.op}


def _find_edges(reader: DumpReader, parents: Mapping[str, str]) -> dict[str, dict[str, None]]:
    """Return operator -> the operators that feed it: those with an earlier output of the same fingerprint as its input.

    If nested modules have the same output, the innermost counts. `parents`: operator -> the module that encloses it.
    """
    producers: dict[tuple[Any, ...], list[str]] = {}
    edges: dict[str, dict[str, None]] = {}
    for tensor in reader.tensors:
        fingerprint = _make_fingerprint(tensor)
        if fingerprint is None or tensor.role not in ("input", "output"):
            continue
        if tensor.role == "output":
            producers.setdefault(fingerprint, []).append(tensor.op)
            continue
        earlier = producers.get(fingerprint, ())
        makers = [op for op in earlier if op != tensor.op and not _encloses(op, tensor.op, parents)]
        innermost = [op for op in makers if not any(_encloses(op, other, parents) for other in makers)]
        for maker in (innermost or makers)[:1]:
            edges.setdefault(tensor.op, {})[maker] = None
    return edges


def _make_fingerprint(tensor: StoredTensor) -> tuple[Any, ...] | None:
    """Return shape and statistics; None if they are incomplete or not finite, or if all values are equal."""
    values = tensor.statistics
    if not values or len(values) < 4 or values["max"] == values["min"] or not all(map(math.isfinite, values.values())):
        return None
    return tensor.shape, *values.values()


def _encloses(outer: str, inner: str, parents: Mapping[str, str]) -> bool:
    if outer == inner:
        return False
    enclosing = inner
    for _ in range(MAX_MODULE_DEPTH):  # the parents in the file may form a ring
        if enclosing == outer or enclosing.startswith(outer + "."):
            return True
        enclosing = parents.get(enclosing, "")
    return False
