"""Arguments of `viaduct train`, checked and combined with the recipe without importing torch."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from viaduct.comparison.dump_options import DumpOptions
from viaduct.comparison.naming import parse_patterns, parse_steps
from viaduct.errors import BadValue
from viaduct.terminal import print_note
from viaduct.verbs._recipe_changes import merge_changes, resolve_recipe
from viaduct.verbs._recipe_flags import FLAGS

if TYPE_CHECKING:
    from viaduct.profiling.options import ProfilingOptions, Window
    from viaduct.recipes import Init, LoadedRecipe
    from viaduct.training.request import TrainingRequest
    from viaduct.tuning.location import Location

# Flag of a value for each rank -> flag of the total, and its field in the recipe.
PER_RANK = {"batch_per_rank": ("batch", "data.global_batch"), "lr_per_rank": ("lr", "optimizer.lr")}


@dataclass(frozen=True)
class Arguments:
    """The checked command line of `viaduct train`, with its recipe; the fields are those of a `TrainingRequest`."""

    loaded: LoadedRecipe
    run: Path
    data: Path | None
    device: str
    resume: Literal["auto", "never", "must"]
    command: str
    dump: DumpOptions | None
    watch: int | None = None  # port of the live page; 0: any free one; None: no page
    profile: tuple[Window | None, ProfilingOptions] | None = None
    bank: Location | None = None

    def make_request(self) -> TrainingRequest:
        """Return the request for the training session; imports torch."""
        from viaduct.training.profile_callback import ProfileRequest
        from viaduct.training.request import TrainingRequest
        from viaduct.training.rundir import RunDir

        profile = ProfileRequest(*self.profile, self.loaded.name, self.command) if self.profile else None
        return TrainingRequest(**{**vars(self), "run": RunDir(self.run), "profile": profile})


def count_ranks(ranks: int | None) -> int:
    """Return the number of ranks of the job: the launcher's WORLD_SIZE in a rank, else the value of --ranks, or 1."""
    world_size = os.environ.get("WORLD_SIZE", "") if "RANK" in os.environ else ""
    return int(world_size) if world_size.isdecimal() else ranks or 1


def read_arguments(options: dict[str, Any], ranks: int) -> Arguments:
    """Check the parameters of `train.main` and combine them with the recipe and the stored values of a resumed run."""
    options = apply_per_rank(options, ranks)
    from viaduct.data.synthetic import get_stored_data_path
    from viaduct.recipes._classes import match_classes

    flags = {name: (flag.path, format_value(options[name])) for name, flag in FLAGS.items()}
    changes = merge_changes(flags, options["settings"])
    changed_fields = {path for path, _ in changes}
    recipe_name = options["recipe"] or choose_recipe(options)
    loaded, stored = resolve_recipe(recipe_name, options["run"], changes)
    run = options["run"] or Path("runs") / name_run(loaded.name, options["model"])
    data = options["data"] or get_stored_data_path(stored)
    if not stored:  # the recipe of a resumed run already has its number of classes
        loaded, note = match_classes(loaded, data, changed_fields)
        if note:
            print_note(note)
    check_init(loaded.recipe.init, changed_fields, run)
    return Arguments(
        loaded=loaded,
        run=run,
        data=data,
        device=stored.get("device", "auto") if options["device"] == "auto" else options["device"],
        resume=options["resume"],
        command=stored.get("command") or shlex.join(["viaduct", *sys.argv[1:]]),
        dump=read_dump_options(options),
        watch=choose_watch_port(options["watch"], options["watch_port"], loaded.recipe.evaluation.eval_only),
        profile=choose_profile(options["profile"]),
        bank=choose_bank(options["bank"]),
    )


def apply_per_rank(options: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Replace --batch-per-rank and --lr-per-rank by --batch and --lr, multiplied by the number of ranks.

    A resumed run keeps its global batch and learning rate, whatever these flags and the number of ranks are.
    """
    options = dict(options)
    stored = read_stored_recipe(options["run"]) if options["resume"] != "never" else {}
    for flag, (total_flag, path) in PER_RANK.items():
        value, total = options.pop(flag), options[total_flag]
        if value is None:
            continue
        name = "--" + flag.replace("_", "-")
        if total is not None:
            raise BadValue(f"{name} {value:g} and --{total_flag} {total} contradict each other.", "Give one of them.")
        if not value > 0:
            raise BadValue(f"{name} is {value:g}; it must be above 0.")
        part, field = path.split(".")
        stored_value = stored.get(part, {}).get(field)
        if stored_value is not None and stored_value != value * ranks:
            print_note(
                f"{name} {value:g} on {ranks} ranks: the run was begun with {path} {stored_value:g} and keeps it."
            )
        options[total_flag] = str(value * ranks if stored_value is None else stored_value)
    return options


def read_stored_recipe(run: Path | None) -> dict[str, Any]:
    """Return the recipe fields stored in an existing run; empty if there is no run, or if it cannot be read."""
    from viaduct.errors import ViaductError
    from viaduct.training.rundir import RunDir

    try:
        return dict(RunDir(run).read_recipe_json()["recipe"]) if run is not None and run.is_dir() else {}
    except (ViaductError, KeyError, TypeError, ValueError):
        return {}  # opening the run for training reports the error


def choose_recipe(options: dict[str, Any]) -> str:
    """Return the default recipe for `--model` without a recipe; empty without --model, or if --run is an old run."""
    run = options["run"]
    if not options["model"] or (run is not None and (run / "recipe.json").is_file()):
        return ""
    recipe = "finetune" if options["init"] else "imagenet_modern"
    print_note(f"Training {options['model']} with the recipe {recipe}; `viaduct train RECIPE --model …` takes another.")
    return recipe


def name_run(recipe: str, model: str | None) -> str:
    """Return the default name of a run's directory: the recipe, and the network if --model was given."""
    if not model:
        return recipe
    return f"{recipe}_{re.sub('[^A-Za-z0-9_.-]', '_', model)}"


def choose_bank(bank: Path | None) -> Location | None:
    """Return the bank given by --bank or TUNE_BANK_PATH, or the user's default bank if it exists; None: use no bank."""
    from viaduct.tuning.bank import BadBank
    from viaduct.tuning.location import NO_BANK, locate_bank

    if bank == NO_BANK:
        return None
    location = locate_bank(bank)
    if location.origin == "default" and not location.path.is_dir():
        return None
    if location.path.exists() and not location.path.is_dir():
        raise BadBank(f"the bank {str(location.path)!r} is a file.", "Name its folder: --bank DIR; none uses no bank.")
    if not location.path.is_dir():
        raise BadBank(
            f"there is no bank {str(location.path)!r}.", f"`viaduct tune run RECIPE --bank {location.path}` makes one."
        )
    return location


def choose_profile(steps: str | None) -> tuple[Window | None, ProfilingOptions] | None:
    """Return the steps and options of --profile, PROFILING_MODE and PROFILING_OPTIONS; None: do not profile."""
    from viaduct.profiling.options import ProfilingOptions, parse_window, read_environment

    options = read_environment(os.environ)
    window = None if steps is None else parse_window(steps)
    return None if window is None and options is None else (window, options or ProfilingOptions())


def choose_watch_port(watch: bool, port: int | None, eval_only: bool) -> int | None:
    """Return the port of the live page; 0: any free one; None: no page."""
    if not watch:
        if port is not None:
            raise BadValue(f"--watch-port {port} needs --watch.", f"Give both: --watch --watch-port {port}")
        return None
    if eval_only:
        raise BadValue("--watch and --eval-only: an evaluation takes no steps to watch.", "Leave --watch out.")
    return port or 0


def read_dump_options(options: dict[str, Any]) -> DumpOptions | None:
    """Return the values of the --dump flags; None without --dump-steps. Raises BadValue for contradictions."""
    given = {field.name: options[f"dump_{field.name}"] for field in dataclasses.fields(DumpOptions)}
    if given["steps"] is None:
        if DumpOptions(**{**given, "steps": DumpOptions.steps}) != DumpOptions():
            raise BadValue(
                "--dump-mode, -only, -level and -statistics-only need --dump-steps.", "For example --dump-steps 0"
            )
        return None
    dump = DumpOptions(**given)
    parse_steps(dump.steps, "--dump-steps")
    parse_patterns(dump.only)
    return dump


def format_value(value: str | bool | Path | None) -> str | None:
    """Return a flag's value in the form of `--set`: 1 for a switch, an absolute path; None if it was not given."""
    if isinstance(value, bool):
        return "1" if value else None
    return str(value.resolve()) if isinstance(value, Path) else value


def check_init(init: Init, changed_fields: set[str], run: Path) -> None:
    """Refuse flags that need --init, and a run that would start from its own weights; warn of a useless --freeze."""
    for path, flag in (("init.exclude", "--init-exclude"), ("init.schedule", "--init-schedule")):
        if path in changed_fields and not init.source:
            raise BadValue(f"{flag} without --init: there are no weights to begin with.", "Say which: --init PATH.")
    if init.source and Path(init.source).resolve() == run.resolve():
        raise BadValue(
            f"--init {init.source} is the run itself.",
            f"`viaduct train --run {run}` continues a run; one that begins with its weights needs another --run.",
        )
    if "init.freeze" in changed_fields and init.freeze.strip() and not init.source:
        print_note(f"Warning: --freeze {init.freeze!r} without --init: what is frozen keeps its random first values.")
