"""Folder of a search (a study, as Optuna calls it): its definition, the trials, and a lock.

    STUDY/study.json         recipe, data, space, metric, settings; a search that continues the study must have the same
    STUDY/study.sqlite3      the trials, in Optuna's database
    STUDY/trial-000 …        one ordinary run for each trial
    STUDY/logs/              the output of each trial
    STUDY/.study.lock        the process id of the search that holds the lock
    STUDY/report.html, RECIPE_best.py

Only one process at a time can search in a folder. The lock ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from viaduct.atomic_files import write_file
from viaduct.errors import BadRun
from viaduct.run_files import read_json_object
from viaduct.typed_fields import show_value

if TYPE_CHECKING:
    from optuna import Study

DEFINITION, DATABASE, LOCK, LOGS = "study.json", "study.sqlite3", ".study.lock", "logs"
STUDY_NAME = "search"
"""Name of the study in its database. It must not change: Hyperband assigns trials to brackets by a hash of it."""
LOWER_IS_BETTER = ("loss",)  # metrics that are minimised


@dataclass(frozen=True)
class Definition:
    """Properties of a search that must be the same for all searches in a folder."""

    recipe: str
    data: str | None
    space: tuple[str, ...]  # texts of --space
    metric: str
    settings: tuple[str, ...]  # `field=text` of fields set in all trials, such as the length; not how often to evaluate
    recipe_sha256: str = ""  # SHA-256 of the user's recipe file; empty for a built-in recipe

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        return "minimize" if self.metric in LOWER_IS_BETTER else "maximize"


@dataclass(frozen=True)
class StudyFolder:
    """Paths and files of a study."""

    path: Path

    def get_trial_folder(self, number: int) -> Path:
        """Return the run directory of a trial."""
        return self.path / f"trial-{number:03d}"

    def get_log_file(self, number: int) -> Path:
        """Return the file with a trial's output."""
        return self.path / LOGS / f"trial-{number:03d}.txt"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder within the block; remove the folder at the end if no definition was written."""
        try:
            str(self.path.resolve()).encode()
        except UnicodeEncodeError:
            raise BadRun(f"{str(self.path)!r} is not UTF-8, which the path of a database must be.") from None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("a+")
        except OSError as error:
            raise BadRun(f"{str(self.path)!r} cannot be a study's folder: {error.strerror}.") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                other = file.read().strip() or "another"
                raise BadRun(
                    f"{str(self.path)!r} is in use: process {other} is searching there.",
                    "Wait for it to end, or choose another folder with --study. More at once: --parallel N.",
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            try:
                yield
            finally:
                self.remove_if_empty()

    def remove_if_empty(self) -> None:
        """Remove the lock file, and the folder if nothing else is in it, unless a definition was written."""
        if not (self.path / DEFINITION).exists():
            (self.path / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def write_definition(self, definition: Definition) -> None:
        """Write the definition; raise BadRun if the folder has a different one, or has files but no definition."""
        file = self.path / DEFINITION
        if file.exists():
            self.refuse_other_definition(definition)
            return
        others = [path.name for path in self.path.iterdir() if path.name != LOCK]
        if others:
            raise BadRun(
                f"{str(self.path)!r} is not empty and holds no study ({others[0]}).", "Choose another --study."
            )
        write_file(file, (json.dumps({"format": 1, **asdict(definition)}, indent=1) + "\n").encode())

    def refuse_other_definition(self, definition: Definition) -> None:
        """Raise BadRun if the stored definition is different."""
        stored = read_json_object(self.path / DEFINITION)
        for name, value in json.loads(json.dumps(asdict(definition))).items():  # lists instead of tuples
            before = stored.get(name)
            if before != value:
                raise BadRun(
                    f"{str(self.path)!r} holds a study of another {name.replace('_', ' ')}: "
                    f"{show_difference(before, value)}.",
                    "Choose another folder with --study; --trials, --sampler, --prune and --parallel may change.",
                )

    def open_study(self, definition: Definition) -> Study:
        """Return Optuna's study of this folder; raise BadRun if its database cannot be used."""
        import optuna
        from sqlalchemy.engine import URL
        from sqlalchemy.exc import SQLAlchemyError

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        database = self.path / DATABASE
        url = URL.create("sqlite", database=str(database.resolve())).render_as_string(hide_password=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from Optuna's dependencies
                return optuna.create_study(
                    storage=url, study_name=STUDY_NAME, direction=definition.direction, load_if_exists=True
                )
        except (SQLAlchemyError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise BadRun(f"{database} cannot be used: {reason}", "Choose another --study.") from None


def show_difference(before: Any, now: Any) -> str:
    """Describe the difference between the value in the folder and that of this search, lists by their entries."""
    if isinstance(before, list) and isinstance(now, list):
        removed = [entry for entry in before if entry not in now]
        added = [entry for entry in now if entry not in before]
        return f"{', '.join(map(str, removed)) or 'nothing'} there, {', '.join(map(str, added)) or 'nothing'} here"
    return f"{show_value(before)} there, {show_value(now)} here"
