"""Paths of data as file URLs, as in the references' scripts: file:///cache/records means /cache/records."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

FILE = "file:"


def resolve_file_url(path: Path | None) -> Path | None:
    """Return the path of a file: URL; other paths unchanged."""
    text = str(path)
    if path is None or not text.startswith(f"{FILE}/"):
        return path
    return Path("/" + unquote(text.removeprefix(FILE).lstrip("/")))
