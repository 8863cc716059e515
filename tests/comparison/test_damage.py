"""Files with bytes changed, cut, doubled: an error with a name, or a fault of one tensor, and never a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from comparison.foreign_dumps import as_json, as_text, fused_network, numbers, tensor_entry
from viaduct.comparison.align import align
from viaduct.comparison.graph import read_graph
from viaduct.comparison.readers import read
from viaduct.comparison.rules import read_rules
from viaduct.comparison.storage import open_tensor
from viaduct.errors import ViaductError

TIMES = 60
NASTY = [b"{", b"}", b"[", b"]", b'"', b"null", b"-1", b"1e400", b"9" * 20, b"true", b"NaN", b"\\", b"\0", b"../"]


def whole(folder: Path) -> dict[str, bytes]:
    ops, _ = fused_network()
    np.save(folder / "a.npy", numbers(3, 4))
    np.savez(folder / "a.npz", x=numbers(3, 4), y=numbers(2))
    np.savez_compressed(folder / "packed.npz", x=numbers(3, 4))
    save_file({"x": numbers(3, 4)}, folder / "a.safetensors")
    torch.save(torch.zeros(3, 4), folder / "a.pt")
    entries = [tensor_entry(numbers(2), "x.pt"), [tensor_entry(numbers(2), None)]]
    (folder / "dump.json").write_text(json.dumps({"data": {"Module.a.B.forward.0": {"output": entries}}}))
    (folder / "mapping.csv").write_text("111,Conv2D.a.1.2.1607502000000000.output.0.npy\n")
    (folder / "rules.json").write_text('{"map": {"a{n}": "b{n}", "c": "d"}, "ignore": ["x*"], "step_offset": 1}')
    (folder / "graph.txt").write_text(as_text(ops))
    (folder / "graph.json").write_text(json.dumps(as_json(ops)))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        offset = rng.randrange(len(made) + 1)
        match rng.randrange(4):
            case 0:
                made[offset : offset + 1] = bytes([rng.randrange(256)])
            case 1:
                del made[offset : offset + rng.randrange(1, 40)]
            case 2:
                start = rng.randrange(len(made) + 1)
                made[offset:offset] = made[start : start + rng.randrange(1, 60)]
            case _:
                made[offset : offset + 1] = rng.choice(NASTY)
    return bytes(made)


def use_dump(path: Path) -> None:
    if path.name == "mapping.csv":
        np.save(path.parent / "111.npy", numbers(2))
    side = read(path.parent)
    for tensor in side.tensors:
        with suppress(ViaductError):
            open_tensor(tensor)
    align(side, side)


USES: dict[str, Callable[[Path], object]] = {
    "graph.txt": read_graph,
    "graph.json": read_graph,
    "rules.json": read_rules,
}


@pytest.mark.parametrize(
    "name",
    ["a.npy", "a.npz", "packed.npz", "a.safetensors", "a.pt", "dump.json", "mapping.csv", "rules.json", "graph.txt",
     "graph.json"],
)  # fmt: skip
def test_no_damage_ends_in_a_traceback(tmp_path: Path, name: str) -> None:
    (tmp_path / "whole").mkdir()
    data, rng = whole(tmp_path / "whole")[name], random.Random(name)
    for number in range(TIMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_bytes(damage_bytes(data, rng))
        with suppress(ViaductError):
            USES.get(name, use_dump)(folder / name)
