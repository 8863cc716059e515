"""Reads the record of a rehearsal: the runs of `viaduct carry`, as OUT/runs/original and OUT/runs/migrated.

RECORD/observed/rank-0/losses.npz       "3 0": the first loss of step 3
RECORD/observed/rank-0/forward.npz      "00004 layer1.conv": what a module gave in the first step, thinned
RECORD/observed/rank-0/gradients.npz    of the first step
RECORD/observed/rank-0/weights.npz      at the end: the parameters with which another step would begin
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from viaduct.comparison.naming import ROOT
from viaduct.comparison.storage import read_headers
from viaduct.comparison.tensors import Role, Side, Stored
from viaduct.errors import BadData, ViaductError

KIND = "rehearsal"
LOSS = "loss"
FILES = ("losses.npz", "forward.npz", "gradients.npz", "weights.npz")
RANK = re.compile(r"rank-(\d+)")
CALL = re.compile(r"(\d+) ?(.*?) ?(?:input (\d+))?", re.DOTALL)
BEHIND = 1_000_000  # in the order of execution a loss comes behind every call, gradients behind the loss

Place = tuple[str, Role, int, int, int]  # operator, role, index, order and step
Placing = Callable[[str], Place]


def recognise(path: Path) -> bool:
    """Return True if the path is the record of a rehearsal."""
    return bool(find_ranks(path))


def find_ranks(path: Path) -> dict[int, Path]:
    """Return the folders of the ranks that left something, by their numbers."""
    folders = (path / "observed").glob("rank-*")
    found = {int(match[1]): folder for folder in folders if (match := RANK.fullmatch(folder.name))}
    return {
        number: found[number] for number in sorted(found) if any((found[number] / name).is_file() for name in FILES)
    }


def read(path: Path) -> Side:
    """Read the headers of all tensors that a rehearsal recorded; raise BadData if there are none."""
    found = [tensor for number, folder in find_ranks(path).items() for tensor in read_rank(folder, number)]
    if not found:
        raise BadData(f"{str(path)!r} holds no tensors.", "The rehearsal took no step, or was ended before it could.")
    return Side(path, KIND, tuple(sorted(found, key=lambda tensor: (tensor.step, tensor.order))))


def read_rank(folder: Path, rank: int) -> Iterator[Stored]:
    """Yield the tensors of one rank."""
    losses = [*read_file(folder / "losses.npz", rank, place_loss)]
    last = max((loss.step for loss in losses), default=-1)
    yield from losses
    yield from read_file(folder / "forward.npz", rank, place_call)
    yield from read_file(folder / "gradients.npz", rank, lambda name: (name, "gradient", 0, BEHIND + 1, 0))
    yield from read_file(folder / "weights.npz", rank, lambda name: (name, "parameter", 0, 0, last + 1))


def place_loss(name: str) -> Place:
    """Return the identity of a loss from its key."""
    step, _, number = name.partition(" ")
    return LOSS, "output", int(number), BEHIND, int(step)


def place_call(name: str) -> Place:
    """Return the identity of a module's call from its key."""
    match = CALL.fullmatch(name)
    assert match is not None
    number, module, given = match.groups()
    return module or ROOT, "output" if given is None else "input", int(given or 0), int(number), 0


def read_file(path: Path, rank: int, place: Placing) -> Iterator[Stored]:
    """Yield the tensors of one archive; one that cannot be read says why."""
    if not path.exists():
        return
    try:
        held = read_headers(path)
    except ViaductError as error:
        yield Stored(path.stem, "", "output", 0, 0, 0, rank, "", (), None, fault=error.what)
        return
    calls: Counter[tuple[str, Role, int]] = Counter()
    for name, header in held.items():
        op, role, index, order, step = place(name)
        call = calls[op, role, index]
        calls[op, role, index] += 1 if role in ("input", "output") and op != LOSS else 0
        if isinstance(header, str):
            yield Stored(op, "", role, index, order, step, rank, "", (), None, fault=header)
        else:
            yield Stored(op, "", role, index, order, step, rank, header.dtype, header.shape, path, name, call)
