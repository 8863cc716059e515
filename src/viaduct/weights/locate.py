"""Location of a TensorFlow checkpoint: its prefix, and the text file `checkpoint` that names the latest one.

The prefix is the common part of the names of a checkpoint's files: `model.ckpt-5` for `model.ckpt-5.index`. The file
`checkpoint` may contain a path of another machine, or any other path, so only checkpoints in its own folder are opened.
"""

from __future__ import annotations

import re
from pathlib import Path

from viaduct.atomic_files import write_file
from viaduct.data.notices import join_first
from viaduct.errors import BadData
from viaduct.weights.table import MAGIC

LATEST, INDEX = "checkpoint", ".index"
ENDINGS = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")  # of a checkpoint's files
# Lines of the `checkpoint` file: a key and a path in quotes, in which \ escapes the next character.
NAMED_PATH = re.compile(
    r'^\s*(all_model_checkpoint_paths|model_checkpoint_path):\s*"((?:[^"\\\n]|\\.)*)"', re.MULTILINE
)
SAFETENSORS = ".safetensors"
FILE_ENDINGS = (".pth", ".pt", ".bin", SAFETENSORS)  # of other kinds of weights
MAX_TEXT_BYTES = 1 << 20  # of the `checkpoint` file


def is_tf_checkpoint(path: Path) -> bool:
    """Return True if there is a TensorFlow checkpoint at a path."""
    try:
        find_prefix(path)
    except BadData:
        return False
    return True


def find_prefix(path: Path) -> Path:
    """Return the prefix of a checkpoint, given its folder, the prefix, or one of its files; raise `BadData` if none."""
    if path.is_dir():
        return find_prefix_in(path)
    prefix = path.with_name(ENDINGS.sub("", path.name)) if path.name else path
    if has_index(prefix):
        return prefix
    if path.is_file():
        raise BadData(
            f"{path} is not a TensorFlow V2 checkpoint: {prefix}{INDEX} is not there.", *suggest_instead(path)
        )
    raise explain_nothing_at(path, f"there is no checkpoint {path}: {prefix}{INDEX} is not there.")


def explain_nothing_at(path: Path, message: str) -> BadData:
    """Return the error for a path without a file; for some endings a message about these replaces `message`."""
    if path.suffix in FILE_ENDINGS:
        message = f"there is no file {path}."
    elif path.suffix == ".ckpt":
        message = f"there is no file {path}, and no TensorFlow checkpoint of that name ({path}{INDEX})."
    return BadData(message, *list_others(path.parent))


def suggest_instead(file: Path) -> tuple[str, ...]:
    """Return a hint about a file that is not part of a V2 checkpoint; empty if there is none."""
    start, end = read_ends(file)
    if end == MAGIC:
        return ("It is a V1 checkpoint, a single file, which cannot be read; TensorFlow's Saver writes V2.",)
    if start.startswith(b"PK"):
        return ("If torch.save wrote it, rename it to end in .pth.",)
    if file.suffix == SAFETENSORS:
        return ("A safetensors file needs no import: `viaduct weights show` and `viaduct train --init` accept it.",)
    if start.endswith(b"{") and len(start) == 9:  # eight bytes with the header's length, then the header in JSON
        return (f"If it is a safetensors file, rename it to end in {SAFETENSORS}.",)
    return ()


def read_ends(file: Path) -> tuple[bytes, bytes]:
    """Return the first nine and the last bytes of a file; empty if it cannot be read."""
    try:
        with file.open("rb") as opened:
            start = opened.read(9)
            opened.seek(max(0, file.stat().st_size - len(MAGIC)))
            return start, opened.read()
    except OSError:
        return b"", b""


def find_prefix_in(folder: Path) -> Path:
    """Return the prefix in the folder's `checkpoint` file or, without that file, the only prefix in the folder."""
    if (folder / LATEST).is_file():
        return read_latest(folder)
    prefixes = list_prefixes(folder)
    if len(prefixes) == 1:
        return prefixes[0]
    if not prefixes:
        raise BadData(f"{folder} holds no TensorFlow checkpoint: no file ends in {INDEX}.", *suggest_run_export(folder))
    names = join_first([prefix.name for prefix in prefixes])
    raise BadData(f"{folder} holds {len(prefixes)} checkpoints and no file 'checkpoint'.", f"Choose one: {names}.")


def suggest_run_export(folder: Path) -> tuple[str, ...]:
    """Return a hint if the folder is a run of viaduct or a checkpoint of one."""
    if not (folder / "recipe.json").is_file() and not (folder / "manifest.json").is_file():
        return ()
    return (f"It is a run: `viaduct weights export {folder} --format safetensors` makes one file of its weights.",)


def read_latest(folder: Path) -> Path:
    """Return the prefix in the `checkpoint` file; raise `BadData` if it is not in this folder."""
    file = folder / LATEST
    text = file.read_bytes()[:MAX_TEXT_BYTES].decode("utf-8", "replace")
    written = next((path for kind, path in NAMED_PATH.findall(text) if kind == "model_checkpoint_path"), None)
    if written is None:
        raise BadData(f"{file} does not say which checkpoint is the latest.", *list_others(folder))
    written = unescape(written)
    if "\0" in written or not Path(written).name:
        raise BadData(f"{file} names {written!r}, which is no checkpoint.", *list_others(folder))
    for prefix in (folder / written, folder / Path(written).name):
        if prefix.resolve().is_relative_to(folder.resolve()) and has_index(prefix):
            return prefix
    raise BadData(f"{file} names {written!r}, which is not in this folder.", *list_others(folder))


def has_index(prefix: Path) -> bool:
    """Return True if a prefix has an index file."""
    try:
        return bool(prefix.name) and prefix.with_name(prefix.name + INDEX).is_file()
    except (OSError, ValueError):  # an impossible file name
        return False


def list_prefixes(folder: Path) -> list[Path]:
    return sorted(path.with_name(path.name.removesuffix(INDEX)) for path in folder.glob("*" + INDEX) if path.is_file())


def list_others(folder: Path) -> tuple[str, ...]:
    """Return a hint that lists the checkpoints in the folder."""
    prefixes = list_prefixes(folder) if folder.is_dir() else []
    return (f"There is: {join_first([str(prefix) for prefix in prefixes])}.",) if prefixes else ()


def record_latest(prefix: Path) -> None:
    """Write the folder's `checkpoint` file, with this prefix as the latest; earlier checkpoints remain listed."""
    file = prefix.parent / LATEST
    text = file.read_bytes()[:MAX_TEXT_BYTES].decode("utf-8", "replace") if file.is_file() else ""
    listed = [path for kind, path in NAMED_PATH.findall(text) if kind == "all_model_checkpoint_paths"]
    latest = escape_quotes(prefix.name)
    still_there = [path for path in listed if path != latest and has_index(prefix.parent / Path(unescape(path)).name)]
    lines = [f'model_checkpoint_path: "{latest}"']
    lines += [f'all_model_checkpoint_paths: "{path}"' for path in [*still_there, latest]]
    write_file(file, ("\n".join(lines) + "\n").encode())


def unescape(path: str) -> str:
    """Return a path as it was before `escape_quotes`."""
    return re.sub(r"\\(.)", r"\1", path)


def escape_quotes(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
