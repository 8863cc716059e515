"""Data paths given as file URLs without a host, such as file:///cache/records for /cache/records."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote


def resolve_file_url(path: Path | None) -> Path | None:
    """Return the path of a file: URL; other paths unchanged."""
    if path is None or not str(path).startswith("file:/"):
        return path
    return Path("/" + unquote(str(path).removeprefix("file:").lstrip("/")))
