"""Secret that the machines of a job share.

It is read from VIADUCT_JOB_SECRET or from a file that only its owner may read; if all ranks are on one machine, it is
random. The names of the job's keys in the rendezvous store begin with a digest of the secret, so jobs that share a port
by accident do not touch each other's keys. The secret encrypts nothing and is no login (docs/launch.md).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from viaduct.errors import BadValue
from viaduct.path_errors import refuse_special_file

SECRET_VARIABLE = "VIADUCT_JOB_SECRET"
MIN_CHARACTERS, MAX_CHARACTERS = 16, 1024
MAX_BYTES = 4 * MAX_CHARACTERS + 2  # of the file: up to four bytes for a character in UTF-8, and a line end


def make_secret() -> str:
    return secrets.token_hex(16)


def find_secret(file: Path | None, variables: Mapping[str, str] = os.environ) -> str:
    """Return the secret of `--secret-file`, or else of the variable; empty if there is neither. Raises BadValue."""
    text = read_secret(file) if file is not None else variables.get(SECRET_VARIABLE, "").strip()
    source = f"--secret-file {file}" if file is not None else SECRET_VARIABLE
    if file is not None or text:
        check_secret(text, source)
    return text


def read_secret(file: Path) -> str:
    """Return the stripped content of a file; refuse a file that other users may read or write."""
    try:
        refuse_special_file(file)
        with open(file, "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            content = opened.read(MAX_BYTES)
    except OSError as error:
        raise BadValue(f"--secret-file {file} cannot be read: {error.strerror}.") from None
    if stat.S_ISREG(mode) and mode & 0o077:
        raise BadValue(f"--secret-file {file} may be read by others.", f"Keep it to yourself: chmod 600 {file}")
    return content.decode("utf-8", "replace").strip()


def check_secret(text: str, source: str) -> None:
    """Refuse a secret that is too short, too long or not printable."""
    if not MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS or not text.isprintable():
        expected = f"{MIN_CHARACTERS} to {MAX_CHARACTERS} printable characters"
        got = f"{len(text)}" if text.isprintable() else f"{len(text)}, some of them not printable"
        raise BadValue(
            f"{source}: a job's secret must have {expected}; this one has {got}.",
            "`openssl rand -hex 16` makes one.",
        )


def derive_key_prefix(secret: str, job: str) -> str:
    """Return the prefix of a job's keys in the rendezvous store."""
    # "corner" here and "name" below have no meaning: they make the digest that is shown differ from the prefix.
    return hashlib.sha256(f"viaduct corner\0{job}\0{secret}".encode()).hexdigest()[:32]


def describe_secret(secret: str) -> str:
    """Return `no secret`, or `secret` and a short digest, by which machines see if they have the same one."""
    digest = hashlib.sha256(f"viaduct name\0{secret}".encode()).hexdigest()
    return f"secret {digest[:8]}" if secret else "no secret"
