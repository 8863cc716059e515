"""Profiles a few steps of a recipe in a temporary run (`viaduct profile run RECIPE`).

    plan = Plan(skip=5, timed=20, recorded=5)
    profile = profile_recipe(RecipeJob(load("resnet50_imagenet"), Path("prof"), plan, device="cuda"))

Nothing is evaluated or saved meanwhile. Each of several ranks is a process (`python -m viaduct.training.profiled FILE`)
that writes OUT/rank_N; rank 0 merges these into OUT.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from viaduct import devices
from viaduct.cluster.launch import check_rank_count, run_local
from viaduct.data.records import Records
from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadRun, ViaductError
from viaduct.profiling.collector import Plan
from viaduct.profiling.folder import read_profile
from viaduct.profiling.record import Profile
from viaduct.recipes import Checkpoint, Evaluation, LoadedRecipe, Recipe, load
from viaduct.recipes._fields import override_fields
from viaduct.training.distributed import join_ranks
from viaduct.training.images import check_path, load_images
from viaduct.training.interrupt import Interrupt
from viaduct.training.limits import explain_limits
from viaduct.training.loop import Training
from viaduct.training.networks import apply_source_settings
from viaduct.training.output_streams import print_line
from viaduct.training.profile_callback import ProfileRequest, Profiling, write_profiles_on_error
from viaduct.training.rundir import RunDir

CPU_BATCH = 8  # images of each rank on the CPU, unless the user sets the batch, because larger steps take too long
MANY_STEPS = 10**9  # more than any profile takes
NOISE_RATE = 1e-6  # on noise the recipe's own learning rate may diverge, and computing with NaN can be slow
SINK_WARMUP = 6  # steps to skip in a run with sinks, so that the profiled ones are replays of a captured step
BATCH_FIELD = "data.global_batch"


@dataclass(frozen=True)
class RecipeJob:
    """A recipe whose steps are measured, with the options; it can be sent to another process as JSON."""

    loaded: LoadedRecipe
    out: Path  # folder of the profile
    plan: Plan  # numbers of steps to skip, to time and to record
    device: str = "auto"
    data: Path | None = None  # may be `synthetic`; None for recipes that need no --data
    settings: Sequence[tuple[str, str]] = ()  # changed fields of the recipe, as path and text
    command: str = ""  # shown in the profile

    def encode(self) -> str:
        """Return the job as JSON, for another process."""
        fields = {
            **vars(self),
            "loaded": str(self.loaded.file or self.loaded.name),
            "out": str(self.out.resolve()),
            "plan": asdict(self.plan),
            "data": None if self.data is None else str(self.data),
        }
        return json.dumps(fields)

    @classmethod
    def decode(cls, text: str) -> RecipeJob:
        fields = json.loads(text)
        fields |= {"loaded": load(fields["loaded"]), "out": Path(fields["out"]), "plan": Plan(**fields["plan"])}
        data = None if fields["data"] is None else Path(fields["data"])
        return cls(**fields | {"data": data, "settings": [(path, value) for path, value in fields["settings"]]})

    def change_recipe(self) -> Recipe:
        """Return the recipe with the settings applied."""
        return apply_source_settings(override_fields(self.loaded.recipe, self.settings), keep_size=True)


def profile_recipe(job: RecipeJob, ranks: int = 1) -> Profile:
    """Take the planned steps, write the profile's folder without advice and page, and return the profile."""
    check_path(job.change_recipe().data, job.data)  # raises before anything is started
    if ranks > 1:
        start_ranks(job, ranks)
    else:
        profile_here(job)
    return read_profile(job.out)


def start_ranks(job: RecipeJob, ranks: int) -> None:
    """Take the steps in several processes on this machine."""
    check_rank_count(ranks)
    devices.check_ranks(job.device, ranks)
    with tempfile.TemporaryDirectory(prefix="viaduct-profile-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(job.encode())
        code = run_local(["python", "-m", "viaduct.training.profiled", str(path)], ranks, max_restarts=0)
    if code:
        message = f"the ranks ended with exit code {code}: there is no profile of all of them."
        raise BadRun(message, f"What they had collected is in {job.out}.")


def profile_here(job: RecipeJob) -> None:
    """Take the steps in this process, which may be one of several ranks."""
    with join_ranks(job.device, job.loaded.recipe.parallel.hang_seconds) as group:
        device, torch_device = devices.pick(job.device, group.local_rank)
        recipe, notes = prepare_recipe(job, torch_device.type, group.ranks)
        images = load_images(recipe.data, job.data)
        request = ProfileRequest(None, source=job.loaded.name, command=job.command, notes=tuple(notes))
        profiling = Profiling(request, job.out, job.plan)
        with tempfile.TemporaryDirectory(prefix="viaduct-profile-") as folder, Interrupt(quiet=True) as interrupt:
            run = RunDir(Path(folder))
            with explain_limits(run, recipe):
                callbacks = [profiling, *recipe.callbacks]
                training = Training(recipe, run, images, device, torch_device, callbacks, interrupt.get_signal, group)
                if training.sink is not None:
                    profiling.plan = replace(job.plan, skip=max(job.plan.skip, SINK_WARMUP))
                training.run_state.broadcast(training.run.checkpoints)
                take_steps(training, profiling)


def take_steps(training: Training, profiling: Profiling) -> None:
    """Take steps until the profile is written or the run is stopped; write what was collected, even after an error."""
    with training.train_batches, training.validation, write_profiles_on_error([profiling], training):
        training.emit("start")
        batches = training.begin_training()
        while not profiling.written and not training.progress.stop_reason and not training.is_interrupted():
            training.advance(batches)
        training.agreement.finish_exchange()
        if profiling.collector is None:
            raise BadRun("stopped before the first step: there is nothing to profile.")
        if not profiling.written:
            profiling.write(training, f"interrupted after step {training.step}")
    for line in profiling.lines:
        training.print_note(line)


def prepare_recipe(job: RecipeJob, device_type: str, ranks: int) -> tuple[Recipe, list[str]]:
    """Return the job's recipe with endless training, without evaluations and checkpoints, and notes of other changes.

    `device_type` is torch's name, such as "cuda".
    """
    recipe, notes = job.change_recipe(), []
    changes: dict[str, Any] = {
        "steps": MANY_STEPS,
        "evaluation": Evaluation(every_epochs=0),
        "checkpoint": Checkpoint(every_minutes=0),
    }
    if job.data == SYNTHETIC:
        source = recipe.data
        changes["data"] = Records(source.global_batch, source.size, classes=source.classes, eval_batch=1)
        if hasattr(recipe.optimizer, "lr"):
            changes["optimizer"] = replace(recipe.optimizer, lr=NOISE_RATE)  # type: ignore[type-var]
        notes.append("The images are noise that is made on the device: loading of images was not measured.")
    recipe = replace(recipe, **changes)
    max_batch = CPU_BATCH * ranks
    if device_type == "cpu" and BATCH_FIELD not in dict(job.settings) and recipe.data.global_batch > max_batch:
        notes.append(f"The batch is {max_batch} in place of the recipe's {recipe.data.global_batch}: this is a CPU.")
        recipe = replace(recipe, data=replace(recipe.data, global_batch=max_batch), accumulate=1)
    return recipe, notes


def main() -> None:
    """Run one rank; print its ViaductError as the command line does, and exit with the error's code."""
    try:
        profile_here(RecipeJob.decode(Path(sys.argv[1]).read_text()))
    except ViaductError as error:
        if not error.is_silent:
            print_line(f"viaduct profile: {error}", sys.stderr)
        sys.stderr.flush()
        os._exit(error.exit_code)  # without waiting for the other ranks, which may be gone


if __name__ == "__main__":
    main()
