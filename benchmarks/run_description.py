"""Description of a measurement for the files in docs/results/: command, commit, machine, date."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from viaduct.devices.base import Device
from viaduct.training.summary import describe_machine, read_commit


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
