"""Projects as people lay them out, whose migrated copies are mutated and rewritten (`projects/`)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project
from viaduct.migration.writing import write_out

PROJECTS = Path(__file__).with_name("projects")
STEPS = 40  # more than any of them takes: they run to their own end


@dataclass(frozen=True)
class Base:
    """A project and how it is run."""

    name: str
    entry: str = "train.py"
    pythonpath: str = ""
    ranks: int = 1
    framework: str = "torch"

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": self.pythonpath} if self.pythonpath else {}

    @property
    def words(self) -> list[str]:
        """Arguments of `viaduct carry` in the project's folder."""
        return [".", "--entry", self.entry, "--steps", str(STEPS), "--ranks", str(self.ranks), "--timeout", "100"]

    def copy_to(self, folder: Path) -> None:
        shutil.copytree(PROJECTS / self.name, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def migrate_to(self, folder: Path) -> None:
        """Write what the rules make of it, with the files that are no Python."""
        options = Options(to="npu", entry=self.entry, distributed=self.ranks > 1)
        write_out(migrate_project(PROJECTS / self.name, options), folder, {})


BASES = (
    Base("plain"),
    Base("pythonpath", pythonpath="lib"),
    Base("package"),
    Base("vision", "main.py"),
    Base("amp"),
    Base("ddp", ranks=2),
    Base("hand", "main.py"),
    Base("averaged"),
    Base("sampler"),
    Base("gan"),
    Base("resumed"),
    Base("text", "run.py"),
    Base("transformer"),
    Base("metrics"),
    Base("session", framework="tensorflow"),
)
