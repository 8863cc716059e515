"""The directory of a run.

RUN/recipe.json        the resolved recipe, its origin, data, device, code, machine and first weights
RUN/recipe.py          a copy of the recipe file, if it was the user's
RUN/recipe_modules/    copies of the modules that the recipe file imports from its own folder
RUN/labels.json        names of the classes, in the order of the network's outputs
RUN/metrics.jsonl      one record per log line, evaluation, checkpoint, and restart after a lost rank
RUN/log.txt            log lines, and reports about lost ranks
RUN/log.json, event_log.txt     lines of the log formats dll and events
RUN/events.*           losses, accuracies, rates, and with --tensorboard more, for TensorBoard
RUN/histograms.jsonl, images/   with --tensorboard histograms or images
RUN/tracking.json      with --track: the trackers' ids of the run
RUN/dump/, profile/    with --dump or --profile
RUN/checkpoints/       step-N/
RUN/.lock              held, with the process id, while a process trains here
RUN/.reached           the last step done by ranks that a launcher has started; shows which steps a restart repeats
RUN/ending.json        how the last session ended early; missing if it was killed or lost a rank
RUN/report.html        when the run has finished or was stopped
RUN/model.safetensors, summary.json     when the run has finished
RUN/ema.safetensors    averaged weights, when the run has finished, if the recipe has them
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from viaduct.errors import BadRun, BadValue
from viaduct.json_records import finite_or_null
from viaduct.recipes import LoadedRecipe, Recipe, load, load_file, names
from viaduct.recipes._fields import compare_records, from_record, to_record
from viaduct.run_files import STEP_LIMIT, read_metric_lines, read_metrics, read_recipe_record, read_summary
from viaduct.terminal import escape_controls
from viaduct.training.checkpoint import replace_contents
from viaduct.training.networks import find_changed_model_file
from viaduct.training.recipe_copy import RECIPE_FILE, copy_recipe_files, find_changed_files, load_copy, read_checksums

# Fields that may differ when a run is resumed: its length, what is recorded, and how the same steps are computed.
CHANGEABLE_PARTS = ("epochs", "steps", "evaluation", "checkpoint", "log", "callbacks", "metrics", "expects", "sink")
CHANGEABLE_FIELDS = ("parallel.mode", "parallel.bucket_mb", "parallel.find_unused", "parallel.hang_seconds")
LOCK_ATTEMPTS, LOCK_PAUSE_S = 5, 0.02  # how often the lock is tried, and the seconds between two tries
STEP_MARK_FILE, STEP_MARK_BYTES = ".reached", 8  # the file has the number of the step, little-endian


@dataclass(frozen=True)
class RunDir:
    """The directory of one run; the module's docstring lists its files."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def is_begun(self) -> bool:
        return (self.path / "recipe.json").is_file()

    def format_resume_command(self, ranks_flag: str = "") -> str:
        """Return the command that resumes the run; `ranks_flag` is " --ranks N" or empty."""
        return f"viaduct train --run {shlex.quote(str(self.path))}{ranks_flag}"

    def read_recipe_json(self) -> dict[str, Any]:
        """Return the contents of recipe.json, as the last session wrote it when it began."""
        return read_recipe_record(self.path)

    def read_summary(self) -> dict[str, Any] | None:
        """Return summary.json; None if the run has not finished."""
        return read_summary(self.path)

    def load_recipe(self, file: Path | None = None) -> LoadedRecipe:
        """Return the recipe with the run's recorded values.

        Its code comes from `file`, else from the run's copy of a recipe file, else from viaduct's own recipes.
        """
        record = self.read_recipe_json()
        if file is not None:
            base = load_file(file)
        elif record["file"]:
            base = load_copy(self.path, record)
        elif record["name"] in names():
            base = load(record["name"])
        else:
            shown = escape_controls(str(record["name"]))[:80]
            message = f"{self.path / 'recipe.json'} names a recipe that viaduct does not have: {shown!r}."
            raise BadRun(message, "A name in it is never taken for a path. `viaduct train --list` shows the recipes.")
        try:
            recipe = from_record(record["recipe"], base.recipe)
        except BadValue as error:
            raise BadRun(f"{self.path / 'recipe.json'} is damaged: {error.message}", *error.hints) from None
        if not isinstance(recipe, Recipe):
            raise BadRun(f"{self.path / 'recipe.json'} is damaged: its recipe is a {type(recipe).__name__}.")
        return LoadedRecipe(record["name"], recipe, base.docstring, base.file)

    def record_start(self, loaded: LoadedRecipe, record: dict[str, Any], anew: bool = True) -> None:
        """Write recipe.json with `record` and, if the recipe is the user's, the entry "files" about its copies.

        The user's file is copied if the run begins (`anew`) or has no copy; otherwise the entries "file" and "files" of
        the earlier recipe.json are kept.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        copied = self.path / RECIPE_FILE
        if loaded.file is not None and loaded.file != copied.resolve() and (anew or not copied.exists()):
            record = {**record, "files": copy_recipe_files(self.path, loaded.file)}
        elif loaded.file is not None and self.is_begun:
            earlier = self.read_recipe_json()
            record = record | {name: earlier[name] for name in ("file", "files") if name in earlier}
        write_json(self.path / "recipe.json", record)

    def refuse_special_files(self) -> None:
        """Raise BadRun if a file that sessions write in place is a pipe, which would block, a device or a folder."""
        names = ("metrics.jsonl", "histograms.jsonl", "log.txt", "log.json", "event_log.txt", STEP_MARK_FILE)
        for path in (self.path / name for name in names):
            if path.exists() and not path.is_file():
                raise BadRun(f"{path} is not a file, but a folder, a pipe or a device.", "Move it away.")

    def refuse_other_recipe(self, loaded: LoadedRecipe, anew: bool = False) -> None:
        """Raise BadRun if this run is of another recipe or, unless it begins anew, of other values of its fields."""
        record = self.read_recipe_json()
        if record["name"] != loaded.name:
            message = f"{str(self.path)!r} holds a run of {record['name']!r}, not of {loaded.name!r}."
            raise BadRun(message, "Choose another place with --run.")
        if anew:
            return
        resume = self.format_resume_command()
        if loaded.file is not None and loaded.file != (self.path / RECIPE_FILE).resolve():
            for changed_file in find_changed_files(self.path, read_checksums(self.path, record), loaded.file):
                message = f"{changed_file} has changed since {str(self.path)!r} was begun with it."
                raise BadRun(message, f"`{resume}` continues with its own copy; for a new run give another --run.")
        if changed_module := find_changed_model_file(record, loaded.recipe):
            message = f"{changed_module} has changed since {str(self.path)!r} was begun with its network."
            raise BadRun(message, "Restore the file, or give another --run for a new run.")
        recorded = add_new_fields(record["recipe"], loaded.recipe)
        changed = {
            path: values
            for path, values in compare_records(recorded, to_record(loaded.recipe)).items()
            if path.split(".")[0] not in CHANGEABLE_PARTS and path not in CHANGEABLE_FIELDS
        }
        if changed:
            path, (before, now) = next(iter(changed.items()))
            others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise BadRun(
                f"{str(self.path)!r} was begun with {path}={format_value(before)}, not {format_value(now)}{others}.",
                f"`{resume}` continues it as it was begun; for a new run give another --run.",
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this process within the block; the end of the process releases the lock, too."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a+")
        except OSError as error:
            raise BadRun(f"{str(self.path)!r} cannot be a run's directory: {error.strerror}.") from None
        with file as lock:
            try:
                take_lock(lock)
            except OSError:
                lock.seek(0)
                other = lock.read().strip() or "another"
                raise BadRun(f"{str(self.path)!r} is in use: process {other} is training there.") from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            try:
                yield
            finally:
                if not self.is_begun:  # the run was refused, and leaves no directory
                    (self.path / ".lock").unlink(missing_ok=True)
                    with contextlib.suppress(OSError):
                        self.path.rmdir()

    def drop_metrics_after(self, step: int) -> None:
        """Drop unreadable lines of metrics.jsonl, and the records of later steps, which are taken again.

        Records of restarts are kept.
        """
        readable = [(line, record) for line, record in read_metric_lines(self.path) if record is not None]
        remaining = [line for line, record in readable if record["step"] <= step or record["kind"] == "restart"]
        if self.metrics.is_file():
            replace_contents(self.metrics, "".join(line + "\n" for line in remaining).encode())

    def read_records(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of this kind in metrics.jsonl, the last one of each step: some are evaluated twice."""
        return list({record["step"]: record for record in read_metrics(self.path, kind)}.values())

    def read_restarts(self) -> list[dict[str, Any]]:
        """Return a record for each restart after a lost rank, with the first and the last repeated step."""
        return read_metrics(self.path, "restart")

    def read_reached_step(self) -> int:
        """Return the step in RUN/.reached, whether it was saved in a checkpoint or not; 0 if it is not known."""
        file = self.path / STEP_MARK_FILE
        if not file.is_file() or file.stat().st_size != STEP_MARK_BYTES:
            return 0
        step = int.from_bytes(file.read_bytes(), "little")
        return step if step < STEP_LIMIT else 0

    def note_restart(self, step: int, reached: int, ranks: int) -> None:
        """Record that `ranks` ranks repeat the steps from `step` + 1 to `reached`."""
        fields = {"kind": "restart", "step": step, "first": step + 1, "last": reached, "ranks": ranks}
        with self.metrics.open("a") as file:
            file.write(json.dumps(fields | {"time": time.time()}) + "\n")


def take_lock(lock: IO[str]) -> None:
    """Lock a file; raise OSError if another process keeps it locked.

    This is tried several times, because `viaduct runs` locks the file for a moment.
    """
    for _ in range(LOCK_ATTEMPTS - 1):
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOCK_PAUSE_S)
    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def add_new_fields(record: Any, part: Any) -> Any:
    """Return a stored part with the defaults of fields that did not exist when it was stored."""
    if not isinstance(record, dict) or record.get("is") != type(part).__name__:
        return record
    completed = dict(record)
    for entry in dataclasses.fields(part):
        if entry.name in record:
            completed[entry.name] = add_new_fields(record[entry.name], getattr(part, entry.name))
        elif entry.default is not dataclasses.MISSING:
            completed[entry.name] = to_record(entry.default)
        elif entry.default_factory is not dataclasses.MISSING:
            completed[entry.name] = to_record(entry.default_factory())
    return completed


def format_value(value: Any) -> str:
    """Return a recorded value of a field as messages show it: a part or a function by its name."""
    if isinstance(value, dict):
        return str(value.get("callable") or value.get("is"))
    return str(value) if value != "" else "nothing"


def write_json(path: Path, record: Any) -> None:
    replace_contents(path, (json.dumps(finite_or_null(record), indent=1, allow_nan=False) + "\n").encode())
