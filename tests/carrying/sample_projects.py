"""The projects in `projects/`, in usual layouts; their migrated copies are mutated and rewritten."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project
from viaduct.migration.writing import write_out

PROJECTS = Path(__file__).with_name("projects")
STEPS = 40  # more than any project takes, so each runs to its end


@dataclass(frozen=True)
class SampleProject:
    """A project and its options for `viaduct carry`."""

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
        """Return the arguments of `viaduct carry`, to be run in the project's folder."""
        return [".", "--entry", self.entry, "--steps", str(STEPS), "--ranks", str(self.ranks), "--timeout", "100"]

    def copy_to(self, folder: Path) -> None:
        shutil.copytree(PROJECTS / self.name, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def migrate_to(self, folder: Path) -> None:
        """Write the migrated project, with its other files."""
        options = Options(to="npu", entry=self.entry, distributed=self.ranks > 1)
        write_out(migrate_project(PROJECTS / self.name, options), folder, {})


SAMPLE_PROJECTS = (
    SampleProject("plain"),
    SampleProject("pythonpath", pythonpath="lib"),
    SampleProject("package"),
    SampleProject("vision", "main.py"),
    SampleProject("amp"),
    SampleProject("ddp", ranks=2),
    SampleProject("hand", "main.py"),
    SampleProject("averaged"),
    SampleProject("sampler"),
    SampleProject("gan"),
    SampleProject("resumed"),
    SampleProject("text", "run.py"),
    SampleProject("transformer"),
    SampleProject("metrics"),
    SampleProject("session", framework="tensorflow"),
)
