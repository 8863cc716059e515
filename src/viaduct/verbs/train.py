"""viaduct train"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.addresses import read_address
from viaduct.errors import BadValue
from viaduct.terminal import print_note
from viaduct.verbs._grouped_help import GroupedCommand
from viaduct.verbs._recipe_flags import FLAGS, HEADINGS, INSPECTION, RANKS, RUN, SCHEDULE, with_recipe_flags

if TYPE_CHECKING:
    from viaduct.profiling.options import ProfilingOptions, Window
    from viaduct.recipes import Init, Loaded, Recipe
    from viaduct.training.session import Request
    from viaduct.tuning.location import Location

ALIASES = {name: flag.path for name, flag in FLAGS.items()}
"""Flag -> its field of the recipe; `--set` reaches all the others."""
# Flag -> the flag whose value it gives once for each rank, and the field of the recipe.
PER_RANK = {"batch_per_rank": ("batch", "data.global_batch"), "lr_per_rank": ("lr", "optimizer.lr")}


class Command(GroupedCommand):
    """Command with the headings of `train --help`."""

    headings = HEADINGS


RunOption = functools.partial(typer.Option, rich_help_panel=RUN)
ScheduleOption = functools.partial(typer.Option, rich_help_panel=SCHEDULE)
RankOption = functools.partial(typer.Option, rich_help_panel=RANKS)
InspectionOption = functools.partial(typer.Option, rich_help_panel=INSPECTION)


@with_recipe_flags
def main(
    recipe: Annotated[
        str, typer.Argument(help="Name of a recipe (see --list) or your own recipe file; left out: resume --run.")
    ] = "",
    listing: Annotated[bool, RunOption("--list", help="Show the recipes and stop.")] = False,
    as_json: Annotated[bool, RunOption("--json", help="With --list: as JSON.")] = False,
    data: Annotated[Path | None, RunOption(help="Folder of the recipe's data.", callback=read_address)] = None,
    device: Annotated[str, RunOption(help="auto, cpu, cuda, npu, mlu; or one card: cuda:1.")] = "auto",
    run: Annotated[Path | None, RunOption(help="Directory of the run.", show_default="runs/RECIPE")] = None,
    resume: Annotated[
        Literal["auto", "never", "must"], RunOption(help="auto: resume if the run has a checkpoint.")
    ] = "auto",
    settings: Annotated[
        list[str] | None,
        RunOption("--set", help="Change any field of the recipe; may be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    bank: Annotated[
        Path | None,
        RunOption(
            help="Bank of tuned operators (`viaduct tune`); none: use no bank.",
            show_default="TUNE_BANK_PATH, else your own",
            metavar="DIR",
        ),
    ] = None,
    watch: Annotated[bool, RunOption("--watch", help="Serve a live page of the run, on this machine only.")] = False,
    watch_port: Annotated[
        int | None,
        RunOption(min=0, max=65535, help="With --watch: its port.", show_default="any free port", metavar="N"),
    ] = None,
    batch_per_rank: Annotated[
        int | None, ScheduleOption(min=1, help="Batch of each rank; the global batch is this times the ranks.")
    ] = None,
    lr_per_rank: Annotated[
        float | None, ScheduleOption(help="Peak learning rate of one rank; times the ranks.", metavar="RATE")
    ] = None,
    ranks: Annotated[
        int | None, RankOption(help="Number of ranks on this machine, each on its own device.", show_default="1")
    ] = None,
    profile: Annotated[
        str | None, InspectionOption(help="Profile these steps to RUN/profile: 100-120.", metavar="FIRST-LAST")
    ] = None,
    dump_steps: Annotated[
        str | None, InspectionOption(help="Dump what these steps compute to RUN/dump: 0,5,10-12.", metavar="LIST")
    ] = None,
    dump_mode: Annotated[
        Literal["input", "output", "all"], InspectionOption(help="Tensors of each operator that are dumped.")
    ] = "all",
    dump_only: Annotated[
        str | None, InspectionOption(help="Dump only operators with these names: 'layer3.*,head'.", metavar="GLOB,…")
    ] = None,
    dump_level: Annotated[
        Literal["module", "op"], InspectionOption(help="Dump modules, or every aten operator, forward and backward.")
    ] = "module",
    dump_statistics_only: Annotated[
        bool,
        InspectionOption("--dump-statistics-only", help="Dump minimum, maximum, mean, deviation, norm; no tensors."),
    ] = False,
    **fields: Any,
) -> None:
    """Train a recipe, or resume a run that was interrupted.

    Ctrl-C ends after the current step with a checkpoint; the same command, or `viaduct train --run DIR`,
    resumes. A run that has finished is left alone.
    """
    given = {name: value for name, value in locals().items() if name != "fields"} | fields
    if listing:
        return show_recipes(as_json)
    if (given["lr"] or "").strip().lower() == "find":
        return find_rate(given)
    return run_training(read_arguments(given, count_ranks(ranks)), ranks)


def find_rate(given: dict[str, Any]) -> None:
    """Measure which learning rate suits the recipe; no run is begun or continued."""
    if count_ranks(given["ranks"]) > 1:
        raise BadValue("--lr find measures on one rank.", "Leave --ranks out; the rate is that of the global batch.")
    if given["lr_per_rank"] is not None:
        raise BadValue("--lr find and --lr-per-rank contradict each other.", "Give one of them.")
    asked = read_arguments({**given, "lr": None}, 1)
    from viaduct.runs.rate_range import PAGE, suggest_rate, write_range_page, write_text
    from viaduct.training.rate_finder import STEPS, measure_rates

    measured = measure_rates(asked.request(), int(given["steps"] or STEPS))
    suggestion = suggest_rate(measured.rates, measured.losses)
    print(write_text(measured.rates, suggestion))
    if measured.interrupted:
        raise typer.Exit(130)
    page = asked.run / PAGE
    write_range_page(page, asked.loaded.name, measured.rates, measured.losses, suggestion)
    if suggestion.rate is not None:
        print_note(f"Train with it: {rate_flag(asked.loaded.recipe, suggestion.rate)}")
    print_note(f"Curve: {page}")


def rate_flag(recipe: Recipe, rate: float) -> str:
    """Return the flag that makes this the peak rate; one schedule has its peak itself, times the optimizer's rate."""
    if type(recipe.schedule).__name__ == "LarsPolynomial":
        return f"--set schedule.peak={rate:g} --lr 1"
    return f"--lr {rate:g}"


def check_command(words: list[str], ranks: int, here: int, first: bool) -> list[str]:
    """Refuse what `viaduct train` with these words would refuse as so many ranks, `here` of them on this machine;
    what there is to say of a run that has finished already. `first`: is rank 0 here, which looks at the run?"""
    found: list[Arguments] = []

    @functools.wraps(main)
    def note(**given: Any) -> None:
        found.append(read_arguments(given, ranks))

    verb = typer.Typer(add_completion=False, rich_markup_mode=None)
    verb.command("train")(note)
    typer.main.get_command(verb).main(words, prog_name="viaduct train", standalone_mode=False)
    return refuse_together(found[0], ranks, here, first) if found else []  # none: --help, which has been shown


@dataclass(frozen=True)
class Arguments:
    """Values of the command line and the recipe with its changes; needs no torch."""

    loaded: Loaded
    run: Path
    data: Path | None
    device: str
    resume: Literal["auto", "never", "must"]
    command: str
    dump: dict[str, Any] | None
    watch: int | None = None
    profile: tuple[Window | None, ProfilingOptions] | None = None
    bank: Location | None = None

    def request(self) -> Request:
        """Return the request for the training session; imports torch."""
        from viaduct.training.dumping import DumpOptions
        from viaduct.training.profile_callback import ProfileRequest
        from viaduct.training.rundir import RunDir
        from viaduct.training.session import Request

        dump = DumpOptions(**self.dump) if self.dump else None
        run = RunDir(self.run)
        profile = ProfileRequest(*self.profile, self.loaded.name, self.command) if self.profile else None
        place = self.loaded, run, self.data, self.device, self.resume, self.command
        return Request(*place, dump, self.watch, profile, self.bank)


def count_ranks(ranks: int | None) -> int:
    """Return the number of all ranks: as their launcher says in one of them, else as --ranks does."""
    launched = os.environ.get("WORLD_SIZE", "") if "RANK" in os.environ else ""
    return int(launched) if launched.isdecimal() else ranks or 1


def apply_per_rank(given: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Return the flags with --batch-per-rank and --lr-per-rank multiplied by the ranks.

    A run that is continued keeps the batch and the rate that it was begun with, on however many ranks.
    """
    given = dict(given)
    stored = read_stored_recipe(given["run"]) if given["resume"] != "never" else {}
    for flag, (total_flag, path) in PER_RANK.items():
        value = given.pop(flag)
        if value is None:
            continue
        name = "--" + flag.replace("_", "-")
        if given[total_flag] is not None:
            raise BadValue(
                f"{name} {value:g} and --{total_flag} {given[total_flag]} contradict each other.", "Give one of them."
            )
        if not value > 0:
            raise BadValue(f"{name} is {value:g}; it must be above 0.")
        part, field = path.split(".")
        begun = stored.get(part, {}).get(field)
        if begun is not None and begun != value * ranks:
            print_note(f"{name} {value:g}: the run was begun with {path} {begun:g} and keeps it, on {ranks} ranks too.")
        given[total_flag] = str(value * ranks if begun is None else begun)
    return given


def read_stored_recipe(run: Path | None) -> dict[str, Any]:
    """Return what a run that exists has as its recipe; empty where there is none, or it is not readable."""
    from viaduct.errors import ViaductError
    from viaduct.training.rundir import RunDir

    try:
        return dict(RunDir(run).read_recipe()["recipe"]) if run is not None and run.is_dir() else {}
    except (ViaductError, KeyError, TypeError, ValueError):
        return {}  # whoever opens the run says what is wrong with it


def read_arguments(given: dict[str, Any], ranks: int) -> Arguments:
    """Build the request from the parameters of `main`."""
    given = apply_per_rank(given, ranks)
    from viaduct.data.synthetic import stored_data
    from viaduct.recipes._classes import match_classes

    flags = {name: value for name, value in given.items() if name in ALIASES and value not in (None, False)}
    changes = merge_changes(
        {name: (ALIASES[name], format_value(value)) for name, value in flags.items()}, given["settings"]
    )
    dump = read_dump_options(
        given["dump_steps"],
        given["dump_mode"],
        given["dump_only"],
        given["dump_level"],
        given["dump_statistics_only"],
    )
    recipe_name = given["recipe"] or choose_recipe(given)
    loaded, stored = resolve_recipe(recipe_name, given["run"], changes)
    run, device = given["run"] or Path("runs") / name_run(loaded.name, given["model"]), given["device"]
    data = given["data"] or stored_data(stored)
    if not stored:  # a run that is continued has its number of classes
        settings_given = dict(changes)
        shifted = "data.label_shift" in settings_given
        loaded, note = match_classes(loaded, data, "data.classes" in settings_given, shift_given=shifted)
        if note:
            print_note(note)
    check_init(loaded.recipe.init, {path for path, _ in changes}, run)
    return Arguments(
        loaded=loaded,
        run=run,
        data=data,
        device=stored.get("device", device) if device == "auto" else device,
        resume=given["resume"],
        command=stored.get("command") or shlex.join(["viaduct", *sys.argv[1:]]),
        dump=dump,
        watch=choose_watch_port(given["watch"], given["watch_port"], loaded.recipe.evaluation.eval_only),
        profile=choose_profile(given["profile"]),
        bank=choose_bank(given["bank"]),
    )


def choose_recipe(given: dict[str, Any]) -> str:
    """Return the recipe of a network that was named without one; none where a run is continued."""
    run = given["run"]
    if not given["model"] or (run is not None and (run / "recipe.json").is_file()):
        return ""
    recipe = "finetune" if given["init"] else "imagenet_modern"
    print_note(f"Training {given['model']} with the recipe {recipe}; `viaduct train RECIPE --model …` takes another.")
    return recipe


def name_run(recipe: str, model: str | None) -> str:
    """Return the name of a run's directory; a network that was chosen by a flag is part of it."""
    if not model:
        return recipe
    return f"{recipe}_{re.sub('[^A-Za-z0-9_.-]', '_', model)}"


def apply_source(loaded: Loaded, size_given: bool) -> Loaded:
    """Return the recipe with images prepared as the source of its network prepares them, where it asks for that."""
    if getattr(loaded.recipe.data, "preprocess", "") != "source":
        return loaded
    from viaduct.training.networks import apply_source_settings

    keep_size = size_given or loaded.file is not None
    return replace(loaded, recipe=apply_source_settings(loaded.recipe, keep_size=keep_size))


def choose_bank(given: Path | None) -> Location | None:
    """Return the bank that --bank, TUNE_BANK_PATH or the user's own folder name; None: use none."""
    from viaduct.tuning.bank import BadBank
    from viaduct.tuning.location import NONE, locate_bank

    if given == NONE:
        return None
    location = locate_bank(given)
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
    """Return what --profile, or PROFILING_MODE and PROFILING_OPTIONS, ask for; None: no profile."""
    from viaduct.profiling.options import ProfilingOptions, parse_window, read_environment

    options = read_environment(os.environ)
    window = None if steps is None else parse_window(steps)
    return None if window is None and options is None else (window, options or ProfilingOptions())


def choose_watch_port(watch: bool, port: int | None, eval_only: bool) -> int | None:
    """Return the port of the live page, 0: any that is free; None: there is no page."""
    if not watch:
        if port is not None:
            raise BadValue(f"--watch-port {port} needs --watch.", f"Give both: --watch --watch-port {port}")
        return None
    if eval_only:
        raise BadValue("--watch and --eval-only: an evaluation takes no steps to watch.", "Leave --watch out.")
    return port or 0


def read_dump_options(
    steps: str | None, mode: str, only: str | None, level: str, statistics_only: bool
) -> dict[str, Any] | None:
    """Return the options of --dump flags; refuse contradictions."""
    from viaduct.comparison.naming import parse_only, parse_steps

    if steps is None:
        if only is not None or statistics_only or mode != "all" or level != "module":
            raise BadValue(
                "--dump-mode, -only, -level and -statistics-only need --dump-steps.", "Which? --dump-steps 0"
            )
        return None
    parse_steps(steps, "--dump-steps")
    parse_only(only)
    return {"steps": steps, "mode": mode, "only": only, "level": level, "statistics_only": statistics_only}


def format_value(value: str | bool | Path) -> str:
    """Return the text that `--set` would get: 1 for a switch, absolute paths."""
    if isinstance(value, Path):
        return str(value.resolve())
    return "1" if value is True else str(value)


def run_training(asked: Arguments, ranks: int | None) -> None:
    """Train, or start the ranks that do."""
    if ranks is not None and not is_rank(ranks):
        from viaduct.cluster.launch import check_numbers, quiet_import, run_local

        check_numbers(ranks, 0)
        with quiet_import():
            finished = refuse_together(asked, ranks, ranks)
        if finished:
            print_note("\n".join(finished))
            return
        raise typer.Exit(run_local(["train", *get_own_arguments()], ranks))

    # torch is imported from here on: mistakes above are answered at once.
    from viaduct.training.session import run_training

    outcome = run_training(asked.request())
    if not outcome.finished:
        raise typer.Exit(128 + (outcome.signal or 0))


def refuse_together(asked: Arguments, ranks: int, here: int, first: bool = True) -> list[str]:
    """Refuse once, before there are ranks, what every rank would refuse; see `check`."""
    from viaduct import devices
    from viaduct.training.live import check_port
    from viaduct.training.session import describe_finished, refuse_or_find_finished, refuse_ranks

    devices.check_ranks(asked.device, here)
    request = asked.request()
    refuse_ranks(request, ranks)
    if first and refuse_or_find_finished(request):
        return list(describe_finished(request))
    if first and asked.watch is not None:
        check_port(asked.watch)
    return []


def resolve_recipe(recipe: str, run: Path | None, changes: list[tuple[str, str]]) -> tuple[Loaded, dict[str, Any]]:
    """Return the recipe with these changes, and what a resumed run stored about itself."""
    from viaduct.recipes import load
    from viaduct.recipes._fields import override

    if not recipe and run is None:
        raise BadValue("which recipe?", "`viaduct train --list` shows them; `viaduct train --run DIR` continues a run.")
    stored: dict[str, Any] = {}
    if recipe:
        loaded = load(recipe)
    else:
        loaded, stored = open_run(run or Path())
    given = dict(changes)
    check_flags(given, loaded)
    if "epochs" in given:
        changes = [*changes, ("steps", "0")]  # a run begun with --steps goes by epochs from now on
    changed = loaded.recipe
    for path, text in changes:
        changed = override(changed, path, text)
    return apply_source(replace(loaded, recipe=changed), "data.size" in given), stored


def check_flags(given: dict[str, str], loaded: Loaded) -> None:
    """Refuse flags that contradict each other or mean nothing to this recipe."""
    for field in ("on_bad_record", "increased_aug", "brightness", "contrast", "saturation", "hue"):
        if f"data.{field}" in given and not hasattr(loaded.recipe.data, field):
            flag = f"--{field.replace('_', '-')}"
            raise BadValue(
                f"{flag}: {loaded.name} trains on {loaded.recipe.data.name}, which has no records.",
                "It is for recipes that train on TFRecord files or folders of images.",
            )
    if "steps" in given and "epochs" in given:
        raise BadValue("--steps and --epochs both say how long to train.", "Give one of them.")
    if (steps := given.get("steps", "").strip()) == "0" or steps.startswith("-"):
        raise BadValue(f"steps is {steps}; it must be 1 or more.")


def check_init(init: Init, given: set[str], run: Path) -> None:
    """Refuse flags about first weights without --init."""
    for path, flag in (("init.exclude", "--init-exclude"), ("init.schedule", "--init-schedule")):
        if path in given and not init.source:
            raise BadValue(f"{flag} without --init: there are no weights to begin with.", "Say which: --init PATH.")
    if init.source and Path(init.source).resolve() == run.resolve():
        raise BadValue(
            f"--init {init.source} is the run itself.",
            f"`viaduct train --run {run}` continues a run; one that begins with its weights needs another --run.",
        )
    if "init.freeze" in given and init.freeze.strip() and not init.source:
        print_note(f"Warning: --freeze {init.freeze!r} without --init: what is frozen keeps its random first values.")


def is_rank(ranks: int) -> bool:
    """Return True if this process is one of the ranks already; refuse another number of them."""
    here = os.environ.get("LOCAL_WORLD_SIZE")
    if "RANK" in os.environ and here is not None and here != str(ranks):
        raise BadValue(
            f"--ranks {ranks}, but this is one of {here} ranks on this machine (LOCAL_WORLD_SIZE).",
            "Leave --ranks out where torchrun or `viaduct launch` starts the ranks.",
        )
    return "RANK" in os.environ


def get_own_arguments() -> list[str]:
    """Return the arguments after `viaduct train`."""
    return sys.argv[sys.argv.index("train") + 1 :]


def open_run(run: Path) -> tuple[Any, dict[str, Any]]:
    """Return the recipe of a run, and what the run stored about itself."""
    from viaduct.training.rundir import RunDir

    return RunDir(run).recipe(), RunDir(run).read_recipe()


def merge_changes(flags: dict[str, tuple[str, str]], settings: list[str] | None) -> list[tuple[str, str]]:
    """Return fields and their texts from flags and `--set`; refuse contradictions."""
    named = {path: (name, text) for name, (path, text) in flags.items()}
    changes = list(map(split_setting, settings or []))
    for path, text in changes:
        name, other = named.get(path, ("", text))
        if not is_same_value(text, other):
            flag = "--" + name.replace("_", "-")
            raise BadValue(f"{flag} {other} and --set {path}={text} contradict each other.", "Give one of them.")
    return [*flags.values(), *changes]


def is_same_value(text: str, other: str) -> bool:
    """Return True for equal numbers (4 and 4.0) and for words in upper or lower case."""
    if text == other:
        return True
    try:
        return float(text) == float(other)
    except ValueError:
        return text.lower() == other.lower()


def split_setting(setting: str) -> tuple[str, str]:
    """Split FIELD=VALUE."""
    path, equals, text = setting.partition("=")
    if not equals:
        raise BadValue(f"--set {setting} has no value.", "Write it as --set optimizer.lr=0.05")
    return path.strip(), text.strip()


def show_recipes(as_json: bool) -> None:
    """Print all recipes."""
    from viaduct.recipes import load, names

    recipes = [load(name) for name in names()]
    expected = {r.name: r.recipe.expects.percent if r.recipe.expects else None for r in recipes}
    if as_json:
        rows = [{"name": r.name, "summary": r.summary, "expected_top1_percent": expected[r.name]} for r in recipes]
        print(json.dumps(rows, indent=1))
        return
    from rich.table import Table

    from viaduct.terminal import print_table

    table = Table("recipe", "what it is", "expect", box=None, pad_edge=False)
    for r in recipes:
        percent = expected[r.name]
        table.add_row(r.name, r.summary, "" if percent is None else f"{percent:g} % top-1")
    print_table(table)
