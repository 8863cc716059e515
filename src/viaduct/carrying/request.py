"""The options of a carry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from viaduct.migration.options import Options
from viaduct.rehearsal.plan import StageName

Launch = Literal["auto", "self", "ranks"]


@dataclass(frozen=True)
class Request:
    """Options of a carry. `source` is a script, or a project's folder with the script in `options.entry`."""

    source: Path
    out: Path
    options: Options
    arguments: tuple[str, ...] = ()
    steps: int = 20
    ranks: int = 1
    seed: int = 7
    limits: str = "error"
    timeout: float | None = 600.0  # seconds of each run
    memory: int | None = None
    fake_data: bool = False
    framework: StageName | None = None
    launch: Launch = "auto"
    step_at: str = ""  # FILE:LINE or a function, where a step ends
    migrated: Path | None = None  # somebody's own migrated copy, in place of ours
    earlier: tuple[Path, ...] = ()  # folders of earlier carries, whose executed edits count
    force: bool = False
    lang: str = "en"
    command: str = ""
    module: str = ""  # as `python -m` is given it; `source` is its file

    @property
    def to(self) -> Literal["npu", "mlu"]:
        """Return the target device."""
        return "mlu" if self.options.to == "mlu" else "npu"
