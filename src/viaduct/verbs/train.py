"""viaduct train"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.addresses import read_address
from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.profiling.options import ProfilingOptions, Window
    from viaduct.recipes import Init, Loaded, Recipe
    from viaduct.training.session import Request

# Flag -> the field of the recipe that it is another name for; `--set` reaches all the others.
ALIASES = {
    "epochs": "epochs",
    "steps": "steps",
    "seed": "seed",
    "batch": "data.global_batch",
    "lr": "optimizer.lr",
    "mode": "mode",
    "compile": "compile",
    "compile_parts": "compile_parts",
    "kernels": "kernels",
    "sink": "sink",
    "precision": "precision.compute",
    "loss_scale": "precision.loss_scale",
    "accumulate": "accumulate",
    "clip_norm": "clip_norm",
    "deterministic": "deterministic",
    "classes": "data.classes",
    "init": "init.source",
    "init_exclude": "init.exclude",
    "init_schedule": "init.schedule",
    "freeze": "init.freeze",
    "workers": "data.workers",
    "on_bad_record": "data.on_bad_record",
    "balance": "data.balance",
    "auto_augment": "data.auto_augment",
    "increased_aug": "data.increased_aug",
    "brightness": "data.brightness",
    "contrast": "data.contrast",
    "saturation": "data.saturation",
    "hue": "data.hue",
    "eval_every": "evaluation.every_epochs",
    "eval_only": "evaluation.eval_only",
    "stop_threshold": "evaluation.stop_threshold",
    "save_every": "checkpoint.every_steps",
    "keep": "checkpoint.keep",
    "log_every": "log.every_steps",
    "log_format": "log.format",
    "tensorboard": "log.tensorboard",
    "tensorboard_every": "log.tensorboard_every",
    "parallel": "parallel.mode",
    "sync_norm": "parallel.sync_norm",
    "compress": "parallel.compress",
    "reduce": "parallel.reduce",
}
# Flag -> the flag whose value it gives once for each rank, and the field of the recipe.
PER_RANK = {"batch_per_rank": ("batch", "data.global_batch"), "lr_per_rank": ("lr", "optimizer.lr")}


def aliased(flag: str, meaning: str, metavar: str | None = None) -> Any:
    name = "--" + flag.replace("_", "-")
    return typer.Option(name, help=f"{meaning} [{ALIASES[flag]}]", show_default=False, metavar=metavar)


def main(
    recipe: Annotated[
        str, typer.Argument(help="A recipe's name (see --list) or your own recipe file; left out: continue --run.")
    ] = "",
    listing: Annotated[bool, typer.Option("--list", help="Show the recipes and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: as JSON.")] = False,
    data: Annotated[Path | None, typer.Option(help="Where the recipe's data lie.", callback=read_address)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, npu, mlu; or one card: cuda:1.")] = "auto",
    run: Annotated[Path | None, typer.Option(help="The run's directory.", show_default="runs/RECIPE")] = None,
    resume: Annotated[
        Literal["auto", "never", "must"], typer.Option(help="auto: continue if there is something to continue.")
    ] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change any field of the recipe; may be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    epochs: Annotated[str | None, aliased("epochs", "Passes over the training pictures.", "N")] = None,
    steps: Annotated[str | None, aliased("steps", "Total optimizer steps, instead of epochs.", "N")] = None,
    seed: Annotated[str | None, aliased("seed", "Of weights, sample order and augmentation.", "N")] = None,
    batch: Annotated[str | None, aliased("batch", "Global batch size.", "N")] = None,
    lr: Annotated[str | None, aliased("lr", "Peak learning rate; find: measure which.", "RATE")] = None,
    batch_per_rank: Annotated[
        int | None, typer.Option(min=1, help="Batch of each rank; the global batch is this times the ranks.")
    ] = None,
    lr_per_rank: Annotated[
        float | None, typer.Option(help="Peak learning rate of one rank; times the ranks.", metavar="RATE")
    ] = None,
    mode: Annotated[str | None, aliased("mode", "auto, eager, or graph: compiled.", "WORD")] = None,
    compile: Annotated[str | None, aliased("compile", "In graph mode: auto, regional, whole or off.", "WORD")] = None,
    compile_parts: Annotated[
        str | None, aliased("compile_parts", "Compile only these parts: 'stages.2,head'.", "GLOB,…")
    ] = None,
    kernels: Annotated[str | None, aliased("kernels", "Kernels of our own: auto, on or off.", "WORD")] = None,
    sink: Annotated[
        str | None, aliased("sink", "Steps at a time on the device: auto, a number, or 0: none.", "N")
    ] = None,
    precision: Annotated[
        str | None, aliased("precision", "auto, fp32, bf16, fp16, or a level O0 to O3.", "WORD")
    ] = None,
    loss_scale: Annotated[str | None, aliased("loss_scale", "A number, dynamic, or auto.", "SCALE")] = None,
    accumulate: Annotated[str | None, aliased("accumulate", "Work through the batch in so many parts.", "N")] = None,
    clip_norm: Annotated[str | None, aliased("clip_norm", "Clip gradients to this norm; 0: do not.", "NORM")] = None,
    deterministic: Annotated[bool, aliased("deterministic", "Same bits every time, slower on accelerators.")] = False,
    classes: Annotated[str | None, aliased("classes", "The network's outputs.", "N")] = None,
    init: Annotated[
        Path | None, aliased("init", "Begin with these weights: a .safetensors file, a run, a TF checkpoint.", "PATH")
    ] = None,
    init_exclude: Annotated[
        str | None, aliased("init_exclude", "But not with those of these names: 'head.*'.", "GLOB,…")
    ] = None,
    init_schedule: Annotated[
        str | None, aliased("init_schedule", "restart at step 0, or continue at the weights' own step.", "WORD")
    ] = None,
    freeze: Annotated[
        str | None, aliased("freeze", "Do not train these: 'all but head', or names as 'stem,stages.0'.", "GLOB,…")
    ] = None,
    workers: Annotated[
        str | None, aliased("workers", "Threads that prepare batches; 0: one a core for records, else none.", "N")
    ] = None,
    on_bad_record: Annotated[str | None, aliased("on_bad_record", "stop, or skip: count and name it.", "WORD")] = None,
    balance: Annotated[
        bool, aliased("balance", "See every class equally often; partly: --set data.balance=0.5.")
    ] = False,
    auto_augment: Annotated[
        str | None, aliased("auto_augment", "imagenet, cifar10, randaugment or randaugment-N-M.", "POLICY")
    ] = None,
    increased_aug: Annotated[
        str | None, aliased("increased_aug", "Colours: on (by the next four), off, or the reference's.", "WORD")
    ] = None,
    brightness: Annotated[str | None, aliased("brightness", "Largest change, of 255 grey levels.", "X")] = None,
    contrast: Annotated[str | None, aliased("contrast", "Smallest factor; the largest is 2 - X.", "X")] = None,
    saturation: Annotated[str | None, aliased("saturation", "Smallest factor; the largest is 2 - X.", "X")] = None,
    hue: Annotated[str | None, aliased("hue", "Largest turn, as a share of half a circle.", "X")] = None,
    eval_every: Annotated[
        str | None, aliased("eval_every", "Epochs between evaluations; 0: only at the end.", "N")
    ] = None,
    eval_only: Annotated[bool, aliased("eval_only", "Evaluate the newest checkpoint and stop.")] = False,
    stop_threshold: Annotated[
        str | None, aliased("stop_threshold", "Stop once top-1 (0 to 1) reaches this; 0: never.", "SHARE")
    ] = None,
    save_every: Annotated[str | None, aliased("save_every", "Steps between checkpoints; 0: by time only.", "N")] = None,
    keep: Annotated[str | None, aliased("keep", "How many checkpoints are kept, beside the best.", "N")] = None,
    log_every: Annotated[str | None, aliased("log_every", "Steps between log lines.", "N")] = None,
    log_format: Annotated[str | None, aliased("log_format", "resnext, tf, dll, events or mindspore.", "WORD")] = None,
    tensorboard: Annotated[
        str | None, aliased("tensorboard", "Beside curves: images, histograms, graph, top5, or all.", "WORD,…")
    ] = None,
    tensorboard_every: Annotated[
        str | None, aliased("tensorboard_every", "Steps between images and histograms; 0: as log lines.", "N")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="So many ranks on this machine, each on a device of its own.", show_default="1")
    ] = None,
    parallel: Annotated[
        str | None,
        aliased("parallel", "data; hybrid: each rank has a part of the classes; auto: by their number.", "WORD"),
    ] = None,
    sync_norm: Annotated[bool, aliased("sync_norm", "Batch norms see the global batch, not a rank's share.")] = False,
    compress: Annotated[
        str | None, aliased("compress", "What gradients travel in: none, bf16 or fp16.", "WORD")
    ] = None,
    reduce: Annotated[
        str | None, aliased("reduce", "Gradients of the ranks: their mean, or their sum.", "WORD")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve a page of the run while it goes on, on this machine only.")
    ] = False,
    watch_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="With --watch: its port.", show_default="one that is free", metavar="N"),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile these steps to RUN/profile: 100-120.", metavar="FIRST-LAST")
    ] = None,
    dump_steps: Annotated[
        str | None, typer.Option(help="Dump what these steps compute to RUN/dump: 0,5,10-12.", metavar="LIST")
    ] = None,
    dump_mode: Annotated[
        Literal["input", "output", "all"], typer.Option(help="What of each operator is dumped.")
    ] = "all",
    dump_only: Annotated[
        str | None, typer.Option(help="Dump only operators of these names: 'layer3.*,head'.", metavar="GLOB,…")
    ] = None,
    dump_level: Annotated[
        Literal["module", "op"], typer.Option(help="Dump modules, or every aten operator, forward and backward.")
    ] = "module",
    dump_statistics_only: Annotated[
        bool, typer.Option("--dump-statistics-only", help="Dump minimum, maximum, mean, deviation, norm; no tensors.")
    ] = False,
) -> None:
    """Train a recipe, or continue a run that was interrupted.

    Ctrl-C ends after the current step with a checkpoint; the same command, or `viaduct train --run DIR`,
    continues. A run that has finished is left alone.
    """
    given = dict(locals())
    if listing:
        return show_recipes(as_json)
    if (lr or "").strip().lower() == "find":
        return find_rate(given)
    return begin(asked_for(given, count_ranks(ranks)), ranks)


def find_rate(given: dict[str, Any]) -> None:
    """Measure which learning rate suits the recipe; no run is begun or continued."""
    if count_ranks(given["ranks"]) > 1:
        raise BadValue("--lr find measures on one rank.", "Leave --ranks out; the rate is that of the global batch.")
    if given["lr_per_rank"] is not None:
        raise BadValue("--lr find and --lr-per-rank contradict each other.", "Give one of them.")
    asked = asked_for({**given, "lr": None}, 1)
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
        tell(f"Train with it: {rate_flag(asked.loaded.recipe, suggestion.rate)}")
    tell(f"Curve: {page}")


def rate_flag(recipe: Recipe, rate: float) -> str:
    """Return the flag that makes this the peak rate; one schedule has its peak itself, times the optimizer's rate."""
    if type(recipe.schedule).__name__ == "LarsPolynomial":
        return f"--set schedule.peak={rate:g} --lr 1"
    return f"--lr {rate:g}"


def check(words: list[str], ranks: int, here: int, first: bool) -> list[str]:
    """Refuse what `viaduct train` with these words would refuse as so many ranks, `here` of them on this machine;
    what there is to say of a run that has finished already. `first`: is rank 0 here, which looks at the run?"""
    found: list[Asked] = []

    @wraps(main)
    def note(**given: Any) -> None:
        found.append(asked_for(given, ranks))

    verb = typer.Typer(add_completion=False, rich_markup_mode=None)
    verb.command("train")(note)
    typer.main.get_command(verb).main(words, prog_name="viaduct train", standalone_mode=False)
    return refuse_together(found[0], ranks, here, first) if found else []  # none: --help, which has been shown


@dataclass(frozen=True)
class Asked:
    """What the command line says, with the recipe as it changes it; torch is not needed to find it."""

    loaded: Loaded
    run: Path
    data: Path | None
    device: str
    resume: Literal["auto", "never", "must"]
    command: str
    dump: dict[str, Any] | None
    watch: int | None = None
    profile: tuple[Window | None, ProfilingOptions] | None = None

    def request(self) -> Request:
        from viaduct.training.dumping import DumpOptions
        from viaduct.training.profile_callback import ProfileRequest
        from viaduct.training.rundir import RunDir
        from viaduct.training.session import Request

        dump = DumpOptions(**self.dump) if self.dump else None
        run = RunDir(self.run)
        profile = ProfileRequest(*self.profile, self.loaded.name, self.command) if self.profile else None
        return Request(self.loaded, run, self.data, self.device, self.resume, self.command, dump, self.watch, profile)


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
    for flag, (whole, path) in PER_RANK.items():
        value = given.pop(flag)
        if value is None:
            continue
        name = "--" + flag.replace("_", "-")
        if given[whole] is not None:
            raise BadValue(f"{name} {value:g} and --{whole} {given[whole]} contradict each other.", "Give one of them.")
        if not value > 0:
            raise BadValue(f"{name} is {value:g}; it must be above 0.")
        part, field = path.split(".")
        begun = stored.get(part, {}).get(field)
        if begun is not None and begun != value * ranks:
            tell(f"{name} {value:g}: the run was begun with {path} {begun:g} and keeps it, on {ranks} ranks too.")
        given[whole] = str(value * ranks if begun is None else begun)
    return given


def read_stored_recipe(run: Path | None) -> dict[str, Any]:
    """Return what a run that exists has as its recipe; empty where there is none, or it is not readable."""
    from viaduct.errors import ViaductError
    from viaduct.training.rundir import RunDir

    try:
        return dict(RunDir(run).stored()["recipe"]) if run is not None and run.is_dir() else {}
    except (ViaductError, KeyError, TypeError, ValueError):
        return {}  # whoever opens the run says what is wrong with it


def asked_for(given: dict[str, Any], ranks: int) -> Asked:
    """From the parameters of `main`."""
    given = apply_per_rank(given, ranks)
    from viaduct.data.synthetic import stored_data
    from viaduct.recipes._classes import match_classes

    flags = {name: value for name, value in given.items() if name in ALIASES and value not in (None, False)}
    changes = changes_from({name: (ALIASES[name], spelled(value)) for name, value in flags.items()}, given["settings"])
    dump = dump_asked_for(
        given["dump_steps"],
        given["dump_mode"],
        given["dump_only"],
        given["dump_level"],
        given["dump_statistics_only"],
    )
    loaded, stored = resolve(given["recipe"], given["run"], changes)
    run, device = given["run"] or Path("runs") / loaded.name, given["device"]
    data = given["data"] or stored_data(stored)
    if not stored:  # a run that is continued has its number of classes
        settings_given = dict(changes)
        shifted = "data.label_shift" in settings_given
        loaded, note = match_classes(loaded, data, "data.classes" in settings_given, shift_given=shifted)
        if note:
            tell(note)
    check_init(loaded.recipe.init, {path for path, _ in changes}, run)
    return Asked(
        loaded=loaded,
        run=run,
        data=data,
        device=stored.get("device", device) if device == "auto" else device,
        resume=given["resume"],
        command=stored.get("command") or shlex.join(["viaduct", *sys.argv[1:]]),
        dump=dump,
        watch=choose_watch_port(given["watch"], given["watch_port"], loaded.recipe.evaluation.eval_only),
        profile=choose_profile(given["profile"]),
    )


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


def dump_asked_for(
    steps: str | None, mode: str, only: str | None, level: str, statistics_only: bool
) -> dict[str, Any] | None:
    """What the --dump flags say, refused where it cannot be meant."""
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


def spelled(value: str | bool | Path) -> str:
    """As `--set` would be given it: 1 turns on a yes-or-no field, and is all of a share; paths are whole."""
    if isinstance(value, Path):
        return str(value.resolve())
    return "1" if value is True else str(value)


def begin(asked: Asked, ranks: int | None) -> None:
    if ranks is not None and not among_ranks(ranks):
        from viaduct.cluster.launch import check_numbers, quiet_import, run_local

        check_numbers(ranks, 0)
        with quiet_import():
            finished = refuse_together(asked, ranks, ranks)
        if finished:
            tell("\n".join(finished))
            return
        raise typer.Exit(run_local(["train", *arguments()], ranks))

    # torch is imported from here on: mistakes above are answered at once.
    from viaduct.training.session import conduct

    outcome = conduct(asked.request())
    if not outcome.finished:
        raise typer.Exit(128 + (outcome.signal or 0))


def refuse_together(asked: Asked, ranks: int, here: int, first: bool = True) -> list[str]:
    """Better said once, before there are ranks, than by every rank; see `check`."""
    from viaduct import devices
    from viaduct.training.live import check_port
    from viaduct.training.session import finished_already, refuse_or_find_finished, refuse_ranks

    devices.check_ranks(asked.device, here)
    request = asked.request()
    refuse_ranks(request, ranks)
    if first and refuse_or_find_finished(request):
        return list(finished_already(request))
    if first and asked.watch is not None:
        check_port(asked.watch)
    return []


def resolve(recipe: str, run: Path | None, changes: list[tuple[str, str]]) -> tuple[Loaded, dict[str, Any]]:
    """The recipe with these changes, and what a run that is continued has written down of itself."""
    from viaduct.recipes import load
    from viaduct.recipes._fields import override

    if not recipe and run is None:
        raise BadValue("which recipe?", "`viaduct train --list` shows them; `viaduct train --run DIR` continues a run.")
    stored: dict[str, Any] = {}
    if recipe:
        loaded = load(recipe)
    else:
        loaded, stored = reopen(run or Path())
    given = dict(changes)
    check_flags(given, loaded)
    if "epochs" in given:
        changes = [*changes, ("steps", "0")]  # a run begun with --steps goes by epochs from now on
    changed = loaded.recipe
    for path, text in changes:
        changed = override(changed, path, text)
    return replace(loaded, recipe=changed), stored


def check_flags(given: dict[str, str], loaded: Loaded) -> None:
    """What contradicts itself, or means nothing to this recipe."""
    for field in ("on_bad_record", "increased_aug", "brightness", "contrast", "saturation", "hue"):
        if f"data.{field}" in given and not hasattr(loaded.recipe.data, field):
            flag = f"--{field.replace('_', '-')}"
            raise BadValue(
                f"{flag}: {loaded.name} trains on {loaded.recipe.data.name}, which has no records.",
                "It is for recipes that train on TFRecord files or folders of pictures.",
            )
    if "steps" in given and "epochs" in given:
        raise BadValue("--steps and --epochs both say how long to train.", "Give one of them.")
    if (steps := given.get("steps", "").strip()) == "0" or steps.startswith("-"):
        raise BadValue(f"steps is {steps}; it must be 1 or more.")


def check_init(init: Init, given: set[str], run: Path) -> None:
    """What was said of the first weights must mean something."""
    for path, flag in (("init.exclude", "--init-exclude"), ("init.schedule", "--init-schedule")):
        if path in given and not init.source:
            raise BadValue(f"{flag} without --init: there are no weights to begin with.", "Say which: --init PATH.")
    if init.source and Path(init.source).resolve() == run.resolve():
        raise BadValue(
            f"--init {init.source} is the run itself.",
            f"`viaduct train --run {run}` continues a run; one that begins with its weights needs another --run.",
        )
    if "init.freeze" in given and init.freeze.strip() and not init.source:
        tell(f"Warning: --freeze {init.freeze!r} without --init: what is frozen keeps its random first values.")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def among_ranks(ranks: int) -> bool:
    """Whether this process is one of the ranks already, and there are as many as it was told."""
    here = os.environ.get("LOCAL_WORLD_SIZE")
    if "RANK" in os.environ and here is not None and here != str(ranks):
        raise BadValue(
            f"--ranks {ranks}, but this is one of {here} ranks on this machine (LOCAL_WORLD_SIZE).",
            "Leave --ranks out where torchrun or `viaduct launch` starts the ranks.",
        )
    return "RANK" in os.environ


def arguments() -> list[str]:
    """What stands behind `viaduct train` on the command line."""
    return sys.argv[sys.argv.index("train") + 1 :]


def reopen(run: Path) -> tuple[Any, dict[str, Any]]:
    from viaduct.training.rundir import RunDir

    return RunDir(run).recipe(), RunDir(run).stored()


def changes_from(flags: dict[str, tuple[str, str]], settings: list[str] | None) -> list[tuple[str, str]]:
    """Fields and their texts, first as flags say, then as `--set` does; which must not say anything else."""
    named = {path: (name, text) for name, (path, text) in flags.items()}
    changes = list(map(split, settings or []))
    for path, text in changes:
        name, other = named.get(path, ("", text))
        if not same(text, other):
            flag = "--" + name.replace("_", "-")
            raise BadValue(f"{flag} {other} and --set {path}={text} contradict each other.", "Give one of them.")
    return [*flags.values(), *changes]


def same(text: str, other: str) -> bool:
    """4 and 4.0 are, and words however they are written."""
    if text == other:
        return True
    try:
        return float(text) == float(other)
    except ValueError:
        return text.lower() == other.lower()


def split(word: str) -> tuple[str, str]:
    path, equals, text = word.partition("=")
    if not equals:
        raise BadValue(f"--set {word} has no value.", "Write it as --set optimizer.lr=0.05")
    return path.strip(), text.strip()


def show_recipes(as_json: bool) -> None:
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
