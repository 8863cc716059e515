"""Addresses of data, as reference scripts write them: file:///cache/records means /cache/records."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

FILE = "file:"


def read_address(path: Path | None) -> Path | None:
    """Return the path that a file: address means; any other path as it is."""
    text = str(path)
    if path is None or not text.startswith(f"{FILE}/"):
        return path
    return Path("/" + unquote(text.removeprefix(FILE).lstrip("/")))
