"""Reads dump directories of an Ascend NPU, converted to .npy.

    {time}/{device}/{model}/{model id}/{step}/                              the path may be any of these levels
      {type}.{operator}.{task}[.{stream}].{time}[.more numbers].output.0.npy
      {type}.{operator}.{task}[.{stream}].{time}                            raw file of the device: not readable here
      {number}[.npy] and mapping.csv                                        for names of 255 characters and more

A device is read as a rank. Of several runs the newest is read, of several models the largest; the notes name the
others. Raw files can only be read with CANN: they become tensors with a fault.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from viaduct.comparison.readers.listing import (
    Listing,
    join_some,
    list_files,
    list_refused_tensors,
    make_natural_key,
    read_header_of,
    resolve_inside,
)
from viaduct.comparison.records import StoredDump, StoredTensor
from viaduct.comparison.storage import SUFFIXES
from viaduct.errors import BadData

KIND = "npu"
MAPPING = "mapping.csv"
MAX_MAPPING_BYTES = 256 << 20
RAW = (
    "a raw dump file, which only CANN can read; convert it first: "
    "python3 msaccucmp.py convert -d FILE_OR_FOLDER -out OUT -t npy"
)

# Names of converted files: role, number, perhaps shape and layout.
_CONVERTED = re.compile(r"(.+)\.(input|output)\.(\d{1,6})((?:\.[A-Za-z0-9_]+){0,2})\.npy", re.DOTALL)
# Names of files that older tools converted: only the number of an output.
_NUMBERED = re.compile(r"(.+\.\d{13,255}(?:\.\d+){0,4})\.(\d{1,4})\.npy", re.DOTALL)
_TAIL = re.compile(r"(?:\.\d+){2,}$")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_LAYOUT = re.compile(r"N[A-Z0-9]{1,7}|HWCN|FRACTAL_[A-Z0-9_]+|CHWN")
MAX_DIGITS = 255  # of a number in a name; one in mapping.csv may be longer than int() accepts
MIN_TIME_DIGITS = 13  # a time in microseconds has 16; other numbers are far shorter


class FileName(NamedTuple):
    """Parts of a file's name. How many numbers `text` ends with is known only from all names of a folder."""

    text: str  # type.operator.numbers: Conv2D.conv1.3.1607502000000000
    role: Literal["input", "output"]
    number: int  # of the input or output
    layout: str  # "" if the name states none
    raw: bool  # a file of the device that was not converted


class OperatorCall(NamedTuple):
    """A call of an operator, as a file's name states it."""

    op_type: str
    op: str
    task: int
    time: int


class FolderIdentity(NamedTuple):
    """Position of a folder in {time}/{device}/{model}/{model id}/{step}, as far as the path states it."""

    run: str = ""
    device: int = 0
    model: str = ""
    step: int = 0


@dataclass
class DumpFile:
    """One file of the dump, which may be unreadable."""

    identity: FolderIdentity
    path: Path
    name: FileName
    call: OperatorCall


def can_read(path: Path) -> bool:
    """Return True if files beside a mapping.csv have numbers as names, or most tensor files have names of NPU dumps."""
    listing = list_files(path)
    matches = [split_name(Path(name).name) is not None for name in listing.files]
    has_mapping = any(MAPPING in names and any(map(_is_number, names)) for names in listing.folders.values())
    return has_mapping or (any(matches) and 2 * sum(matches) > _count_tensor_files(listing))


def _is_number(name: str) -> bool:
    return name.partition(".")[0].isdecimal()


def _count_tensor_files(listing: Listing) -> int:
    """Count the tensor files, without those named by a number: they may be files of an NPU that lost mapping.csv."""
    return sum(name.endswith(SUFFIXES) and not _is_number(Path(name).name) for name in listing.files)


def read(path: Path) -> StoredDump:
    listing = list_files(path)
    notes = list(listing.notes)
    files: list[DumpFile] = []
    unnamed: list[Path] = []
    for folder, names in listing.folders.items():
        folder_files, folder_unnamed = _read_folder(listing.root, folder, names, notes)
        files += folder_files
        unnamed += folder_unnamed
    files = _select_newest(files, notes)
    tensors = _make_tensors(_drop_converted_raw_files(files), notes)
    refused = [_make_unnamed(file, len(tensors)) for file in unnamed if file.suffix == ".npy"]
    refused += list_refused_tensors(listing, (".npy",), len(tensors) + 1)
    if unnamed:
        names = [str(file.relative_to(listing.root)) for file in unnamed]
        notes.append(f"not named as NPU dumps are: {join_some(names)}")
    if not tensors and not refused:
        raise BadData(f"{str(path)!r} holds no tensors of an NPU dump.", *notes)
    return StoredDump(path, KIND, tuple(tensors + refused), notes=tuple(notes), settings=_make_settings(files))


def _read_folder(root: Path, folder: str, names: list[str], notes: list[str]) -> tuple[list[DumpFile], list[Path]]:
    """Return the folder's files with names of NPU dumps, and the paths of the others."""
    mapping = _read_mapping(root / folder, notes) if MAPPING in names else {}
    identity = identify_folder(root, folder)
    split: list[tuple[Path, FileName]] = []
    unnamed: list[Path] = []
    for name in names:
        file_name = split_name(_find_original_name(name, mapping))
        path = resolve_inside(root / folder, name)
        if file_name is not None and path is not None:
            split.append((path, file_name))
        elif name != MAPPING:
            unnamed.append(root / folder / name)
    before_time = count_before_time(name.text for _, name in split)
    return [DumpFile(identity, path, name, parse_call(name.text, before_time)) for path, name in split], unnamed


def split_name(name: str) -> FileName | None:
    """Return the parts of a file's name; None if it is not a name of an NPU dump."""
    if match := _CONVERTED.fullmatch(name):
        layout = next((part for part in match[4].split(".") if _LAYOUT.fullmatch(part)), "")
        role: Literal["input", "output"] = "input" if match[2] == "input" else "output"
        file_name = FileName(match[1], role, int(match[3]), layout, raw=False)
    elif match := _NUMBERED.fullmatch(name):
        file_name = FileName(match[1], "output", int(match[2]), "", raw=False)
    elif not name.endswith((".npy", ".npz", ".pt", ".json", ".csv", ".txt", ".safetensors", ".bin")):
        file_name = FileName(name, "output", 0, "", raw=True)
    else:
        return None
    return file_name if _is_operator_name(file_name.text) else None


def _is_operator_name(text: str) -> bool:
    """Return True for type.operator.numbers if one number is a time or the type begins with a capital, as GE's do.

    Other dotted names, such as layer.conv.0.1, have neither.
    """
    parts = text.split(".")
    if len(parts) < 4 or not _TYPE.fullmatch(parts[0]) or not _TAIL.search(text):
        return False
    if any(part.isdecimal() and len(part) > MAX_DIGITS for part in parts):
        return False
    time = find_time_part(parts)
    return time > _first_number(parts) and (parts[0][0].isupper() or len(parts[time]) >= MIN_TIME_DIGITS)


def count_before_time(texts: Iterable[str]) -> int:
    """Return how many numbers stand before the time: one (task) or two (task, stream).

    An operator's own name may end in numbers, so the smallest count within a folder is the right one.
    """
    counts = [find_time_part(text.split(".")) - _first_number(text.split(".")) for text in texts]
    return min(2, max(1, min(counts, default=2)))


def _first_number(parts: list[str]) -> int:
    """Return the index of the first number after type and operator."""
    start = len(parts)
    while start > 2 and parts[start - 1].isdecimal():
        start -= 1
    return start


def find_time_part(parts: list[str]) -> int:
    """Return the index of the time: the last long number."""
    long_numbers = [part for part in range(_first_number(parts), len(parts)) if len(parts[part]) >= MIN_TIME_DIGITS]
    return long_numbers[-1] if long_numbers else len(parts) - 1


def parse_call(text: str, before_time: int) -> OperatorCall:
    """Return the call of a file's name; `before_time`: how many numbers stand before the time."""
    parts = text.split(".")
    time = find_time_part(parts)
    task = max(time - before_time, 2)
    op = ".".join(parts[1:task])
    return OperatorCall(parts[0], op, int(parts[task]) if task < time else 0, int(parts[time]))


def _find_original_name(name: str, mapping: dict[str, str]) -> str:
    """Return the original name of a file that is named by a number, with the suffix that conversion appended."""
    number, dot, suffix = name.partition(".")
    if not number.isdecimal():
        return name
    original = mapping.get(name) or mapping.get(number)
    if original is None:
        return name
    if original.endswith(".npy") or not suffix:
        return original
    return f"{original}.output.0.npy" if suffix == "npy" else f"{original}{dot}{suffix}"


def _read_mapping(folder: Path, notes: list[str]) -> dict[str, str]:
    """Return the original name for each number in mapping.csv."""
    path = resolve_inside(folder, MAPPING)
    try:
        if path is None or path.stat().st_size > MAX_MAPPING_BYTES:
            notes.append(f"{MAPPING} leads out of its folder or is too large, and was left out")
            return {}
        text = path.read_text("utf-8-sig", errors="replace").replace("\0", "")
        lines = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
    except (OSError, csv.Error) as error:
        notes.append(f"{MAPPING} cannot be read: {error}")
        return {}
    rows = [row for row in lines if len(row) >= 2 and row[0].strip() and "\ufffd" not in "".join(row)]
    if len(rows) < len(lines):
        lost = len(lines) - len(rows)
        notes.append(f"{MAPPING}: {lost} of {len(lines)} lines are damaged, not of the form number,name; left out")
    if invalid := [row[1].strip() for row in rows if "/" in row[1] or "\\" in row[1]]:
        notes.append(f"{MAPPING} has names that no dump file can have: {join_some(invalid)}")
    if repeated := [number for number, count in Counter(row[0].strip() for row in rows).items() if count > 1]:
        notes.append(f"{MAPPING} has more than one name for {join_some(repeated)}; the last is used")
    return {row[0].strip(): row[1].strip() for row in rows}


def identify_folder(root: Path, folder: str) -> FolderIdentity:
    """Return run, device, model and step from the names of the folder and its parents."""
    parts = [part for part in (*root.absolute().parts, *folder.split("/")) if part]
    step, model_id, model, device, run = (*reversed(parts[-5:]), "", "", "", "", "")[:5]
    if not step.isdecimal() or len(step) >= 9:  # a longer number is a time
        return FolderIdentity()
    if not model_id.isdecimal():
        return FolderIdentity(step=int(step))
    if not device.isdecimal() or len(device) > 4:
        return FolderIdentity(model=f"{model}/{model_id}", step=int(step))
    return FolderIdentity(run if run.isdecimal() else "", int(device), f"{model}/{model_id}", int(step))


def _select_newest(files: list[DumpFile], notes: list[str]) -> list[DumpFile]:
    """Return the files of the newest run and the largest model: two models may use one name for two operators."""
    if len(runs := sorted({file.identity.run for file in files})) > 1:
        notes.append(f"of {len(runs)} runs the newest, {runs[-1]}, was read; left out: {join_some(runs[:-1])}")
        files = [file for file in files if file.identity.run == runs[-1]]
    sizes = Counter(file.identity.model for file in files)
    if len(sizes) > 1:
        largest = max(sizes, key=lambda model: (sizes[model], model))
        others = [f"{model} ({count} files)" for model, count in sizes.items() if model != largest]
        notes.append(
            f"of {len(sizes)} models the largest, {largest} ({sizes[largest]} files), was read; left out: "
            f"{join_some(others)}. To compare another model, give its folder"
        )
        files = [file for file in files if file.identity.model == largest]
    return files


def _drop_converted_raw_files(files: list[DumpFile]) -> list[DumpFile]:
    """Return the files without raw ones that were also converted."""
    converted = {(file.identity, file.name.text) for file in files if not file.name.raw}
    return [file for file in files if not file.name.raw or (file.identity, file.name.text) not in converted]


def _make_tensors(files: list[DumpFile], notes: list[str]) -> list[StoredTensor]:
    """Return the tensors in execution order; a second file of the same tensor is another call."""
    tensors: list[StoredTensor] = []
    by_step: dict[tuple[int, int], list[DumpFile]] = defaultdict(list)
    for file in files:
        by_step[file.identity.step, file.identity.device].append(file)
    for _, members in sorted(by_step.items()):
        distinct = {file.call for file in members}
        calls_by_time = sorted(distinct, key=lambda call: (call.time, call.task, make_natural_key(call.op)))
        order = {call: number for number, call in enumerate(calls_by_time)}
        calls = _number_calls(order)
        members.sort(key=lambda file: (order[file.call], file.name.role, file.name.number))
        tensors += [_make_tensor(file, order[file.call], calls[file.call]) for file in members]
    raw = [file.path.name for file in files if file.name.raw]
    if raw:
        notes.append(f"{len(raw)} files are {RAW}. They are: {join_some(raw)}")
    return tensors


def _number_calls(order: dict[OperatorCall, int]) -> dict[OperatorCall, int]:
    """Return each call's number among the calls of its operator, from 0."""
    count: Counter[str] = Counter()
    numbers = {}
    for call in order:
        numbers[call] = count[call.op]
        count[call.op] += 1
    return numbers


def _make_tensor(file: DumpFile, order: int, call: int) -> StoredTensor:
    name, identity, op = file.name, file.identity, file.call.op
    role, step, rank = name.role, identity.step, identity.device
    tensor = StoredTensor(op, file.call.op_type, role, name.number, order, step, rank, call=call)
    if name.raw:
        return replace(tensor, fault=f"{file.path.name} is {RAW}")
    return read_header_of(replace(tensor, path=file.path, layout=name.layout))


def _make_unnamed(path: Path, order: int) -> StoredTensor:
    """Return a tensor with a fault for a .npy file whose name is not understood."""
    why = " and no mapping.csv beside it names it" if path.stem.isdecimal() else ""
    fault = f"{path.name} is not named as NPU dumps are{why}"
    return StoredTensor(path.stem, order=order, fault=fault)


def _make_settings(files: list[DumpFile]) -> dict[str, str]:
    identity = files[0].identity if files else FolderIdentity()
    settings = {"device": "npu", "model": identity.model, "run": identity.run}
    return {name: value for name, value in settings.items() if value}
