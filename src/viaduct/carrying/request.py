"""The options of a carry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from viaduct.migration.options import Options
from viaduct.rehearsal.plan import FrameworkName

Launch = Literal["auto", "self", "ranks"]


@dataclass(frozen=True)
class Request:
    """Options of a carry. `source` is a script, or a project's folder with the script in `options.entry`."""

    source: Path
    out: Path
    options: Options  # of the migration
    arguments: tuple[str, ...] = ()
    steps: int = 20
    ranks: int = 1
    seed: int = 7
    limits: str = "error"  # mode and switches of --limits: reactions if the script meets a limit of the card
    timeout: float | None = 600.0  # seconds for each run; None: no limit
    memory: int | None = None  # limit of each run in bytes; None: no limit
    fake_data: bool = False
    framework: FrameworkName | None = None
    # Who starts the ranks. "self": the script; "ranks": viaduct; "auto": the script if it has code that starts ranks.
    launch: Launch = "auto"
    step_at: str = ""  # FILE:LINE or a function that ends a step
    migrated: Path | None = None  # the user's migrated copy (--migrated), compared instead of the rules' migration
    earlier: tuple[Path, ...] = ()  # output folders of earlier carries (--earlier), whose executed edits count, too
    force: bool = False
    lang: str = "en"
    command: str = ""
    module: str = ""  # the module's name if it was started as `python -m NAME`; `source` is its file

    @property
    def to(self) -> Literal["npu", "mlu"]:
        return "mlu" if self.options.to == "mlu" else "npu"
