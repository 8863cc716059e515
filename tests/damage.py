"""Random damage to run directories and index files, such as a full disk, an incomplete copy or an editor leaves."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILES = ("recipe.json", "metrics.jsonl", "summary.json", "checkpoints/step-1/manifest.json")
OTHERS = (".reached", "checkpoints/step-1/state.pt", "checkpoints/step-1/model.safetensors", "model.safetensors")
# There are no plausible sizes of arrays among them: allocating them would test the memory.
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, -1, 1.5, -0.0, 1e308, 2**62, 2**63, -(2**63), 10**30, 10**400, float("inf")),
    *("", "x", "x" * 1000, "\0", "\n\x1b[2J", "../..", "/etc/passwd", "nan", "0", "synthetic", "é\ud800", "²", "auto"),
    *([], {}, [[]], [1, 2], ["a"], {"is": "Sgd"}, {"is": "Recipe"}, {"is": []}, {"callable": "x"}, {"is": None}),
    *([[[[]]]] * 1, {"a": {"b": {"c": 1}}}),
]
NAMES = (
    "step-²",
    "step-1e9",
    "step-٣",
    "step-99999999999999999999",
    "step--1",
    "step-007",
    "step-",
    "step-1.tmp",
    "step-5",
)
TEXTS: list[bytes] = [
    *(b"", b"null", b"[]", b"1", b'"text"', b"{", b"{}", b"NaN", b"[" * 100_000, b'{"a":' * 5000, b"\xff\xfe{}"),
    *(b"\x00" * 64, b'{"kind": "log"}', b"[" * 900 + b"]" * 900, b'{"recipe": ' + b"[" * 400 + b"]" * 400 + b"}"),
    *(b"\xef\xbb\xbf{}", b"1" * 5000, b'{"steps": 1e999}', b'{"name": "\\ud800"}'),
]


def damage_run(run: Path, rng: random.Random) -> str:
    """Damage a run directory; return a description of the damage."""
    kinds: list[Callable[[Path, random.Random], str]] = [change_value] * 10
    kinds += [change_bytes] * 4 + [replace_text] * 3 + [replace_file] * 2 + [add_folder] * 2
    return "; ".join(rng.choice(kinds)(run, rng) for _ in range(rng.choice((1, 1, 1, 2, 3))))


def change_value(run: Path, rng: random.Random) -> str:
    """Replace or remove one value of a JSON file, at any depth."""
    file = run / rng.choice(FILES)
    if not file.is_file():
        return "nothing"
    text = file.read_text(errors="replace")
    lines = text.splitlines() if file.suffix == ".jsonl" else [text]
    number = rng.randrange(len(lines)) if lines else 0
    try:
        record = json.loads(lines[number])
    except (ValueError, IndexError, RecursionError):
        return "nothing"
    done = change_inside(record, rng)
    if done is None:
        record, done = rng.choice(VALUES), "all of it"
    lines[number] = json.dumps(record)
    file.write_text("\n".join(lines) + "\n")
    return f"{file.name}: {done}"


def change_inside(record: Any, rng: random.Random) -> str | None:
    """Change a value at random in a record; return what was changed, None if the record has no values."""
    if not isinstance(record, dict | list) or not record:
        return None
    key: Any = rng.choice(list(record)) if isinstance(record, dict) else rng.randrange(len(record))
    if isinstance(record[key], dict | list) and rng.random() < 0.8:
        deeper = change_inside(record[key], rng)
        if deeper is not None:
            return f"{key}.{deeper}"
    if rng.random() < 0.2:
        del record[key]
        return f"{key} removed"
    record[key] = rng.choice(VALUES)
    return f"{key} = {str(record[key])[:60]!r}"


def change_bytes(run: Path, rng: random.Random) -> str:
    file = run / rng.choice(FILES + OTHERS)
    return f"{file.name}: {scramble(file, rng)}" if file.is_file() else "nothing"


def scramble(file: Path, rng: random.Random) -> str:
    content = bytearray(file.read_bytes())
    if not content or rng.random() < 0.3:
        file.write_bytes(content[: rng.randrange(len(content) + 1)])
        return "cut off"
    for _ in range(rng.choice((1, 1, 4, 40))):
        offset = rng.randrange(len(content))
        if rng.random() < 0.7:
            content[offset] = rng.randrange(256)
        else:
            content[offset:offset] = rng.randbytes(rng.randrange(1, 9))
    file.write_bytes(content)
    return "other bytes"


def replace_text(run: Path, rng: random.Random) -> str:
    file, text = run / rng.choice(FILES), rng.choice(TEXTS)
    if file.is_file():
        file.write_bytes(text)
    return f"{file.name}: {text[:30]!r}"


def replace_file(run: Path, rng: random.Random) -> str:
    """Replace a file by nothing, a folder, a pipe, a link or a device."""
    return replace_path(run / rng.choice(FILES + OTHERS), rng)


def replace_path(file: Path, rng: random.Random) -> str:
    if file.is_file() or file.is_symlink():
        file.unlink()
    kind = rng.choice(("nothing", "a folder", "a pipe", "a link to itself", "a link to nothing", "a device"))
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        if kind == "a folder":
            file.mkdir()
        elif kind == "a pipe":
            os.mkfifo(file)
        elif kind.startswith("a link"):
            file.symlink_to(file.name if kind.endswith("itself") else "nowhere")
        elif kind == "a device":
            file.symlink_to("/dev/zero")
    return f"{file.name}: {kind}"


def add_folder(run: Path, rng: random.Random) -> str:
    name = rng.choice(NAMES)
    target = run / "checkpoints" / name
    if target.exists() or not (run / "checkpoints" / "step-1").is_dir():
        return "nothing"
    if rng.random() < 0.5:
        shutil.copytree(run / "checkpoints" / "step-1", target, symlinks=True, ignore=ignore_special_files)
    elif rng.random() < 0.8:
        target.mkdir()
    else:
        target.touch()
    return name


def ignore_special_files(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not os.path.isfile(os.path.join(folder, name))]


def damage_index(file: Path, rng: random.Random) -> str:
    """Damage an index file beside records; return a description of the damage."""
    kind = rng.choice(("bytes", "bytes", "header", "header", "table", "instead", "text"))
    if kind == "bytes":
        return scramble(file, rng)
    if kind == "header":
        content = file.read_bytes()
        header = content[10:128].replace(*rng.choice(HEADERS))
        file.write_bytes(content[:10] + header + content[128:])
        return f"header {header[:70]!r}"
    if kind == "table":
        shape = rng.choice(((3, 5), (2, 5), (3, 1), (3, 0), (0, 0), (5,), (3, 5, 1)))
        dtype = rng.choice(("<i8", ">i8", "<f8", "<i4", "O", "S8", "<c16", "<M8[ns]"))
        with file.open("wb") as opened:
            np.save(opened, np.full(shape, rng.choice((0, 1, 7))).astype(dtype))
        return f"{dtype} of {shape}"
    if kind == "instead":
        return replace_path(file, rng)
    text = rng.choice(TEXTS)
    file.write_bytes(text)
    return f"text {text[:20]!r}"


HEADERS = [
    (b"(3, ", b"(9, "),
    (b"'<i8'", b"'|O'"),
    (b"'<i8'", b"[[[["),
    (b"False", b"exit("),
    (b"False", b"((((("),
    (b"'descr'", b"'\xff\xfe\xff\xfe\xff'"),
    (b"'shape': (3", b"'shape': (3,3"),
    (b"}", b"'''"),
    (b"{", b"{" * 40),
    (b"(3, ", b"(-3,"),
    (b"'descr'", b"\\'desc"),
    (b" ", b"("),
]
