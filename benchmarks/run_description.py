"""Record of a measurement for docs/results/: figures with command, commit, machine and date."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from viaduct.devices.base import Device
from viaduct.training.summary import describe_machine, read_commit


def write_record(
    path: Path, device: Device, title: str, rows: list[dict[str, str]], samples: Any = None, note: str = ""
) -> None:
    """Write a record: `rows` are the table in docs/results.md, `samples` the single measurements."""
    record = {
        "kind": "benchmark",
        "title": title,
        **describe_run(device),
        **({"note": note} if note else {}),
        "columns": list(rows[0]),
        "rows": rows,
        **({"samples": samples} if samples is not None else {}),
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def describe_run(device: Device) -> dict[str, Any]:
    """Return command, commit, machine and date of a measurement."""
    return {
        "command": spell_command(sys.argv),
        "commit": read_commit(),
        "machine": describe_machine(device),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
    }


def spell_command(arguments: list[str]) -> str:
    """Return the command without --out and without paths of this machine."""
    script, *flags = arguments
    if "--out" in flags:
        position = flags.index("--out")
        del flags[position : position + 2]
    flags = [Path(flag).name if flag.startswith("/") else flag for flag in flags if not flag.startswith("--out=")]
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *flags])
