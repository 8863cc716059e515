"""Reads the record of a rehearsal (a script run on a stand-in device), such as OUT/runs/original of `viaduct carry`.

RECORD/observed/rank-0/losses.npz       "3 0": the first loss of step 3
RECORD/observed/rank-0/forward.npz      of the first step; "00004 layer1.conv": a sample of the output of call 4,
                                        "00000 layer1.conv input 0": a sample of an input of call 0
RECORD/observed/rank-0/gradients.npz    of the first step, by parameter
RECORD/observed/rank-0/weights.npz      at the end, by parameter: a step later than the last loss
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from viaduct.comparison.naming import ROOT_MODULE
from viaduct.comparison.records import Role, StoredDump, StoredTensor
from viaduct.comparison.storage import read_headers
from viaduct.errors import BadData, ViaductError

KIND = "rehearsal"
LOSS = "loss"
FILES = ("losses.npz", "forward.npz", "gradients.npz", "weights.npz")
RANK = re.compile(r"rank-(\d+)")
CALL = re.compile(r"(\d+) ?(.*?) ?(?:input (\d+))?", re.DOTALL)
AFTER_CALLS = 1_000_000  # order of a loss, so that it comes after the calls of modules; gradients come after it

Identity = tuple[str, Role, int, int, int]  # operator, role, index, order and step


def can_read(path: Path) -> bool:
    return bool(find_ranks(path))


def find_ranks(path: Path) -> dict[int, Path]:
    """Return the folders of the ranks that recorded tensors, by rank."""
    folders = (path / "observed").glob("rank-*")
    ranks = {int(match[1]): folder for folder in folders if (match := RANK.fullmatch(folder.name))}
    return {n: folder for n, folder in sorted(ranks.items()) if any((folder / name).is_file() for name in FILES)}


def read(path: Path) -> StoredDump:
    """Read the headers of all tensors that a rehearsal recorded; raise BadData if there are none."""
    dump = read_record(path)
    if not dump.tensors:
        raise BadData(f"{str(path)!r} holds no tensors.", "Perhaps the rehearsal ended before its first step.")
    return dump


def read_record(path: Path) -> StoredDump:
    """Read the headers of all tensors that a rehearsal recorded, if any."""
    tensors = [tensor for number, folder in find_ranks(path).items() for tensor in read_rank(folder, number)]
    return StoredDump(path, KIND, tuple(sorted(tensors, key=lambda tensor: (tensor.step, tensor.order))))


def read_rank(folder: Path, rank: int) -> Iterator[StoredTensor]:
    losses = [*read_file(folder / "losses.npz", rank, identify_loss)]
    last = max((loss.step for loss in losses), default=-1)
    yield from losses
    yield from read_file(folder / "forward.npz", rank, identify_call)
    yield from read_file(folder / "gradients.npz", rank, lambda name: (name, "gradient", 0, AFTER_CALLS + 1, 0))
    yield from read_file(folder / "weights.npz", rank, lambda name: (name, "parameter", 0, 0, last + 1))


def identify_loss(name: str) -> Identity:
    step, _, number = name.partition(" ")
    return LOSS, "output", int(number), AFTER_CALLS, int(step)


def identify_call(name: str) -> Identity:
    match = CALL.fullmatch(name)
    if match is None:
        raise ValueError(name)
    number, module, input_index = match.groups()
    return module or ROOT_MODULE, "output" if input_index is None else "input", int(input_index or 0), int(number), 0


def read_file(path: Path, rank: int, identify: Callable[[str], Identity]) -> Iterator[StoredTensor]:
    """Yield the tensors of one archive, identified by their keys; an unreadable one has a fault.

    `identify` raises ValueError for a key that rehearsals do not write.
    """
    if not path.exists():
        return
    try:
        headers = read_headers(path)
    except ViaductError as error:
        yield StoredTensor(path.stem, rank=rank, fault=error.message)
        return
    calls: Counter[tuple[str, Role, int]] = Counter()
    for name, header in headers.items():
        try:
            op, role, index, order, step = identify(name)
        except ValueError:
            yield StoredTensor(f"{path.stem} {name}", rank=rank, fault=f"{path.name} has an unknown key, {name!r}")
            continue
        call = calls[op, role, index]
        if role in ("input", "output") and op != LOSS:  # a loss is not the call of a module
            calls[op, role, index] += 1
        tensor = StoredTensor(op, role=role, index=index, order=order, step=step, rank=rank)
        if isinstance(header, str):
            yield replace(tensor, fault=header)
        else:
            yield replace(tensor, dtype=header.dtype, shape=header.shape, path=path, member=name, call=call)
