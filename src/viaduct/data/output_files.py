"""Output files of a verb: check the path before the work begins, write the result atomically."""

from __future__ import annotations

import os
from pathlib import Path

from viaduct.atomic_files import write_file
from viaduct.data.notices import describe_error
from viaduct.errors import BadData, BadValue


def check_output(out: Path, suffix: str, signature: bytes, kind: str, flag: str = "--out") -> None:
    """Raise `BadValue` if `out` has another suffix, is not in a writable folder, or exists and is of another kind.

    `signature` are the first bytes of a file of the right kind; `kind` names it in messages, such as "a PNG".
    """
    if out.suffix.lower() != suffix:
        raise BadValue(f"{out}: the name of {kind} must end in {suffix}.", f"Try: {flag} {out.name}{suffix}")
    folder = out.parent
    if not folder.is_dir():
        raise BadValue(f"{out} cannot be written: there is no folder {folder}.", "Make it, or name another.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadValue(f"{out} cannot be written: the folder {folder} may not be written to.", "Name another.")
    if out.exists() and not has_signature(out, signature):
        raise BadValue(
            f"{out} is there already and is not {kind}; it stays as it is.", f"Name another file with {flag}."
        )


def has_signature(out: Path, signature: bytes) -> bool:
    """Return True if the file begins with the signature."""
    if not out.is_file():  # reading a pipe would block
        return False
    try:
        with open(out, "rb") as file:
            return file.read(len(signature)) == signature
    except OSError:
        return False


def write_result(out: Path, content: bytes) -> None:
    """Write a result atomically."""
    try:
        write_file(out, content)
    except OSError as error:
        raise BadData(f"{out} cannot be written: {describe_error(error)}.") from None
