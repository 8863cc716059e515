"""Readers of dumps: one module for each kind of dump (by the tool that wrote it), the same functions in each.

can_read(path) -> bool         by names and first bytes, without opening tensors
read(path)     -> StoredDump   all tensors, from their headers; an unreadable file becomes a tensor with a `fault`
"""

from __future__ import annotations

import shlex
from pathlib import Path

from viaduct.comparison.readers import folder, msprobe, npu, rehearsal, tfdbg, viaduct_dump
from viaduct.comparison.readers.listing import join_some, list_files
from viaduct.comparison.records import StoredDump
from viaduct.errors import BadData

# Dumps with the most distinctive file names come first.
READERS = (viaduct_dump, rehearsal, msprobe, npu, tfdbg, folder)
KINDS = {
    "viaduct": "a dump of viaduct",
    "rehearsal": "the record of a rehearsal, such as a run of carry",
    "msprobe": "a dump of msprobe",
    "npu": "an NPU dump directory",
    "tfdbg": "a folder of tfdbg's .npy files",
    "folder": "a plain folder of tensors",
}
ACCELERATORS = ("npu", "mlu", "cuda", "gpu")


def read(path: Path) -> StoredDump:
    """Read any known dump; raise BadData if there is none."""
    if "\0" in str(path) or not path.exists():
        advice = "Point at a dump directory, or at one .npy, .npz, .safetensors or .pt file."
        raise BadData(f"there is no {str(path)!r}.", advice)
    for reader in READERS:
        if reader.can_read(path):
            dump: StoredDump = reader.read(path)
            return dump
    content = f"It holds: {join_some(list_files(path).files) or 'no file'}."
    raise BadData(
        f"{str(path)!r} holds no dump that can be read.",
        content if path.is_dir() else "It is a file of another kind.",
        f"Known are: {', '.join(KINDS.values())}; files end in .npy, .npz, .safetensors or .pt.",
    )


def describe_swap(left: StoredDump, right: StoredDump) -> str | None:
    """Return a warning if left and right seem to be exchanged, else None."""
    if left.kind == "tfdbg" and right.kind == "npu":
        sides = f"the left side is {KINDS['tfdbg']}, the right one {KINDS['npu']}"
    elif _find_device(left) == "cpu" and _find_device(right) in ACCELERATORS:
        sides = f"the left side was dumped on the cpu, the right one on the {_find_device(right)}"
    else:
        return None
    swapped = shlex.join(["viaduct", "compare", str(right.path), str(left.path)])
    return f"{sides}. The accelerator belongs on the left and the reference on the right: {swapped}"


def _find_device(dump: StoredDump) -> str:
    return dump.settings.get("device", "").lower().split(":")[0].split(" ")[0]
