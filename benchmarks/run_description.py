"""What every file in docs/results/ says of the run that made it: command, commit, machine, date."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from viaduct.devices.base import Device
from viaduct.training.summary import describe_machine, read_commit


def describe_run(device: Device) -> dict[str, Any]:
    """Return the fields that say how to repeat a measurement and where it was made."""
    return {
        "command": spell_command(sys.argv),
        "commit": read_commit(),
        "machine": describe_machine(device),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
    }


def spell_command(arguments: list[str]) -> str:
    """Return the command as anyone would repeat it: without --out, and without folders of this machine."""
    script, *flags = arguments
    if "--out" in flags:
        position = flags.index("--out")
        del flags[position : position + 2]
    flags = [Path(flag).name if flag.startswith("/") else flag for flag in flags if not flag.startswith("--out=")]
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *flags])
