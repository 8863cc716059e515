"""Reads plain folders of .npy, .npz, .safetensors and .pt files, or one such file.

An operator's name is the file's path without its suffix, followed by the key within the file. `step_5/` and `rank_1/`
anywhere in the path state step and rank. Names such as `conv.output.0`, `conv.input.1` and `conv.weight.gradient` state
the role of a tensor.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from viaduct.comparison.formats import Header, Members
from viaduct.comparison.index import INDEX_FILE, read_index
from viaduct.comparison.readers import viaduct_dump
from viaduct.comparison.readers.listing import find_unread, join_some, list_files, make_natural_key
from viaduct.comparison.records import ROLES, Role, StoredDump, StoredTensor
from viaduct.comparison.storage import SUFFIXES, read_headers
from viaduct.errors import BadData, ViaductError

KIND = "folder"
_STEP = re.compile(r"(?:global)?[_-]?step[_-]?(\d{1,12})", re.IGNORECASE)
_RANK = re.compile(r"rank[_-]?(\d{1,6})", re.IGNORECASE)
_ROLE = re.compile(rf"(.+?)[.:/]({'|'.join(ROLES)})(?:[.:](\d{{1,6}}))?", re.DOTALL)
_PARAMETER = re.compile(r"(.+)\.(weight|bias|running_mean|running_var|num_batches_tracked)", re.DOTALL)


def can_read(path: Path) -> bool:
    """Return True for a tensor file or a folder with tensor files."""
    if not path.is_dir():
        return path.suffix in SUFFIXES
    return any(name.endswith(SUFFIXES) for name in list_files(path).files)


def read(path: Path) -> StoredDump:
    """Read all tensors of a folder, or of one file."""
    if not path.is_dir():
        notes: list[str] = []
        tensors = [_apply_index(tensor, notes) for tensor in _read_tensors(path.parent, path.name, alone=True)]
    else:
        listing = list_files(path)
        names = [name for name in listing.files if name.endswith(SUFFIXES)]
        notes = list(listing.notes)
        if others := [name for name in listing.files if not name.endswith(SUFFIXES)]:
            notes.append(f"left out, since only {', '.join(SUFFIXES)} are read: {join_some(others)}")
        archives = [name for name in names if not name.endswith((".npy", ".pt"))]  # they may hold several tensors
        alone = len(names) == 1 or len(archives) == 1
        tensors = [tensor for name in names for tensor in _read_tensors(path, name, alone)]
        tensors += [_make_refused(name, why) for name, why in find_unread(listing, SUFFIXES).items()]
    if not tensors:
        raise BadData(f"{str(path)!r} holds no tensors.", f"Looked for files ending in {', '.join(SUFFIXES)}.")
    return StoredDump(path, KIND, tuple(_sort_naturally(tensors)), notes=tuple(notes))


def _read_tensors(root: Path, name: str, alone: bool) -> list[StoredTensor]:
    """Return the tensors of one file.

    `alone`: no other file can hold several tensors. Then a key within the file is the tensor's whole name.
    """
    bare, step, rank = _split_path(name)
    path = root / name
    try:
        headers: Members = read_headers(path) or {"": f"{path.name} holds no tensors."}
    except ViaductError as error:
        headers = {"": error.message}
    tensors = []
    for member, header in headers.items():
        full_name = member if alone and member else f"{bare}/{member}" if member else bare
        tensors.append(_make_tensor(path, member, full_name, header, step, rank))
    return tensors


def _apply_index(tensor: StoredTensor, notes: list[str]) -> StoredTensor:
    """Return a tensor with dtype, shape, checksum and type from the index, if its file is part of a viaduct dump."""
    if tensor.path is None or not viaduct_dump.can_read(tensor.path.parent):
        return tensor
    try:
        index = read_index(tensor.path.parent / INDEX_FILE)
    except BadData as error:
        name = tensor.path.name
        notes.append(f"the index of {name} cannot be read, so its type is taken from the file; {error.message}")
        return tensor
    entry = next((entry for entry in index.tensors if entry.file == tensor.path.name), None)
    if entry is None:
        return tensor
    return replace(tensor, dtype=entry.dtype, shape=entry.shape, crc32=entry.crc32, op_type=entry.type)


def _split_path(name: str) -> tuple[str, int, int]:
    """Return the path without its suffix and folders of step and rank, and the step and rank."""
    step, rank, parts = 0, 0, []
    for part in name.removesuffix(Path(name).suffix).split("/"):
        if match := _STEP.fullmatch(part):
            step = int(match[1])
        elif match := _RANK.fullmatch(part):
            rank = int(match[1])
        else:
            parts.append(part)
    return "/".join(parts), step, rank


def _make_tensor(path: Path, member: str, name: str, header: Header | str, step: int, rank: int) -> StoredTensor:
    op, role, index, parameter = parse_name(name)
    tensor = StoredTensor(op, role=role, index=index, step=step, rank=rank, member=member, parameter=parameter)
    if isinstance(header, str):
        return replace(tensor, fault=header)
    return replace(tensor, dtype=header.dtype, shape=header.shape, path=path)


def parse_name(name: str) -> tuple[str, Role, int, str]:
    """Return operator, role, number and parameter of a name such as `conv.output.0` or `conv.weight`.

    A tensor without a role in its name is an output, or a parameter if the name ends as those of PyTorch's parameters.
    """
    if match := _ROLE.fullmatch(name):
        op, role, index = match[1], ROLES[match[2]], int(match[3] or 0)
    else:
        op, role, index = name, ROLES["parameter" if _PARAMETER.fullmatch(name) else "output"], 0
    if role in ("parameter", "gradient", "update") and (match := _PARAMETER.fullmatch(op)):
        return match[1], role, index, match[2]
    return op, role, index, ""


def _make_refused(name: str, why: str) -> StoredTensor:
    bare, step, rank = _split_path(name)
    return _make_tensor(Path(name), "", bare, f"{name}: {why}", step, rank)


def _sort_naturally(tensors: list[StoredTensor]) -> list[StoredTensor]:
    """Return the tensors in natural order of their names, since the order of execution is unknown."""
    order = {op: index for index, op in enumerate(sorted({tensor.op for tensor in tensors}, key=make_natural_key))}
    tensors = sorted(tensors, key=lambda tensor: (tensor.step, tensor.rank, order[tensor.op], tensor.parameter))
    return [replace(tensor, order=order[tensor.op]) for tensor in tensors]
