"""Flags of `viaduct train` that are short names for fields of the recipe.

A flag is one row of FLAGS. The type of its field decides its values: a bool makes a switch, a choice shows its values.
`recipe_fields.json` has these types, so that `--help` imports no recipe; `python -m viaduct.verbs._recipe_flags` writes
the file (`make results`).
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

FIELDS_FILE = Path(__file__).with_name("recipe_fields.json")

RUN = "Run"
SCHEDULE = "Length, batch and learning rate"
SPEED = "Precision and speed"
WEIGHTS = "First weights"
DATA = "Data and augmentation"
OUTPUT = "Evaluation, checkpoints and logs"
RANKS = "Several ranks"
INSPECTION = "Profile and dump"
HEADINGS = (RUN, SCHEDULE, SPEED, WEIGHTS, DATA, OUTPUT, RANKS, INSPECTION)


@dataclass(frozen=True)
class Flag:
    """Short name of `--set PATH=VALUE`."""

    path: str
    heading: str
    help: str
    metavar: str = ""  # for text fields; other types have their own
    is_path: bool = False  # the value is a file or folder
    is_switch: bool = False  # the flag takes no value and sets a number to 1


FLAGS = {
    "model": Flag("model", RUN, "Network: one of ours, timm:NAME, torchvision:NAME, package.module:function.", "NAME"),
    "epochs": Flag("epochs", SCHEDULE, "Passes over the training images."),
    "steps": Flag("steps", SCHEDULE, "Total optimizer steps, instead of epochs."),
    "seed": Flag("seed", SCHEDULE, "Seed of weights, sample order and augmentation."),
    "batch": Flag("data.global_batch", SCHEDULE, "Global batch size."),
    "lr": Flag("optimizer.lr", SCHEDULE, "Peak learning rate; find: measure a suitable one.", "RATE|find"),
    "accumulate": Flag("accumulate", SCHEDULE, "Split the batch into this many parts and accumulate gradients."),
    "clip_norm": Flag("clip_norm", SCHEDULE, "Clip gradients to this norm; 0: do not clip."),
    "mode": Flag("mode", SPEED, "graph: compiled; auto: whichever is faster."),
    "compile": Flag("compile", SPEED, "In graph mode: compile block by block (regional) or the whole network."),
    "compile_parts": Flag("compile_parts", SPEED, "Compile only these parts: 'stages.2,head'.", "GLOB,…"),
    "kernels": Flag("kernels", SPEED, "Use viaduct's own kernels where they fit."),
    "sink": Flag("sink", SPEED, "Steps executed on the device at a time; 0: return to the host after each."),
    "precision": Flag("precision.compute", SPEED, "Compute precision, or a level O0 to O3."),
    "loss_scale": Flag("precision.loss_scale", SPEED, "Loss scale: fixed, dynamic, or as the precision needs."),
    "deterministic": Flag("deterministic", SPEED, "Same bits every time; slower on accelerators."),
    "init": Flag(
        "init.source",
        WEIGHTS,
        "Start from these weights: .safetensors, .pth, a run, a TensorFlow or MindSpore checkpoint.",
        "PATH",
        is_path=True,
    ),
    "init_exclude": Flag("init.exclude", WEIGHTS, "Do not load parameters with these names: 'head.*'.", "GLOB,…"),
    "init_schedule": Flag("init.schedule", WEIGHTS, "Restart at step 0, or continue at the step of the weights."),
    "freeze": Flag("init.freeze", WEIGHTS, "Do not train these: 'all but head', or 'stem,stages.0'.", "GLOB,…"),
    "classes": Flag("data.classes", DATA, "Outputs of the network."),
    "workers": Flag("data.workers", DATA, "Threads that prepare batches; 0: one a core for records, else none."),
    "on_bad_record": Flag("data.on_bad_record", DATA, "Stop at a damaged record, or skip it, count it and name it."),
    "balance": Flag(
        "data.balance", DATA, "Draw every class equally often; partly: --set data.balance=0.5.", is_switch=True
    ),
    "auto_augment": Flag("data.auto_augment", DATA, "imagenet, cifar10, randaugment or randaugment-N-M.", "POLICY"),
    "increased_aug": Flag(
        "data.increased_aug", DATA, "Colour augmentation: on (see the next four flags), off, or that of the reference."
    ),
    "brightness": Flag("data.brightness", DATA, "Largest change, of 255 grey levels."),
    "contrast": Flag("data.contrast", DATA, "Smallest factor; the largest is 2 - X."),
    "saturation": Flag("data.saturation", DATA, "Smallest factor; the largest is 2 - X."),
    "hue": Flag("data.hue", DATA, "Largest rotation, as a share of half a circle."),
    "eval_every": Flag("evaluation.every_epochs", OUTPUT, "Epochs between evaluations; 0: only at the end."),
    "eval_only": Flag("evaluation.eval_only", OUTPUT, "Evaluate the newest checkpoint and stop."),
    "stop_threshold": Flag("evaluation.stop_threshold", OUTPUT, "Stop once top-1 (0 to 1) reaches this; 0: never."),
    "save_every": Flag("checkpoint.every_steps", OUTPUT, "Steps between checkpoints; 0: by time only."),
    "keep": Flag("checkpoint.keep", OUTPUT, "Number of checkpoints kept, besides the best."),
    "log_every": Flag("log.every_steps", OUTPUT, "Steps between log lines."),
    "log_format": Flag("log.format", OUTPUT, "Format of the log lines."),
    "tensorboard": Flag(
        "log.tensorboard", OUTPUT, "Besides curves: images, histograms, graph, top5, or all.", "NAME,…"
    ),
    "tensorboard_every": Flag("log.tensorboard_every", OUTPUT, "Steps between images and histograms; 0: as log lines."),
    "track": Flag(
        "log.track", OUTPUT, "Send records to mlflow or wandb; tensorboard: its events are in every run.", "NAME,…"
    ),
    "parallel": Flag("parallel.mode", RANKS, "hybrid: each rank has a part of the classes; auto: by their number."),
    "sync_norm": Flag("parallel.sync_norm", RANKS, "Batch norm statistics of the global batch, not of a rank's share."),
    "compress": Flag("parallel.compress", RANKS, "Data type in which gradients are sent."),
    "reduce": Flag("parallel.reduce", RANKS, "Mean or sum of the ranks' gradients."),
}


@functools.cache
def read_fields() -> dict[str, list[str]]:
    """Return the accepted values of each field: `bool`, `int`, `float`, `str`, or the values of a choice."""
    fields: dict[str, list[str]] = json.loads(FIELDS_FILE.read_text())
    return fields


def build_parameter(name: str, flag: Flag) -> inspect.Parameter:
    """Return the parameter of a verb's function for one flag."""
    accepts = read_fields()[flag.path]
    is_switch = flag.is_switch or accepts == ["bool"]
    kind: Any = bool if is_switch else Path | None if flag.is_path else str | None
    option = typer.Option(
        "--" + name.replace("_", "-"),
        help=f"{flag.help} [{flag.path}]",
        show_default=False,
        metavar=None if is_switch else flag.metavar or spell_metavar(accepts),
        rich_help_panel=flag.heading,
    )
    default = False if is_switch else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def spell_metavar(accepts: list[str]) -> str:
    """Return the placeholder of a value in --help: N, X, TEXT, or the values of a choice."""
    return "|".join({"int": "N", "float": "X", "str": "TEXT"}.get(value, value) for value in accepts)


def with_recipe_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of FLAGS to a verb; its function receives them as keyword arguments."""

    @functools.wraps(function)
    def verb(**options: Any) -> None:
        function(**options)

    # typer reads the flags of a verb from the signature and the annotations of its function.
    declared = inspect.signature(function, eval_str=True).parameters.values()
    parameters = [item.replace(kind=item.KEYWORD_ONLY) for item in declared if item.kind is not item.VAR_KEYWORD]
    parameters += [build_parameter(name, flag) for name, flag in FLAGS.items()]
    vars(verb)["__signature__"] = inspect.Signature(parameters, return_annotation=None)
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
    return verb


def describe_field(path: str) -> list[str]:
    """Return the accepted values of a field, from the types of the recipe and its parts."""
    from viaduct.data.records import Records
    from viaduct.recipes import Recipe
    from viaduct.typed_fields import get_field_types

    owners: list[Any] = [Recipe]  # classes that may have the field: an optimizer field has those of all optimizers
    *parts, name = path.split(".")
    for part in parts:
        owners = [Records] if part == "data" else list_classes(get_field_types(owners[0])[part])
    return list_accepted(next(get_field_types(owner)[name] for owner in owners if name in get_field_types(owner)))


def list_classes(kind: Any) -> list[Any]:
    """Return the classes that a field may hold: `Sgd | AdamW | Callable` has two."""
    from viaduct.typed_fields import list_alternatives

    return [member for member in list_alternatives(kind) if isinstance(member, type) and member is not type(None)]


def list_accepted(kind: Any) -> list[str]:
    """Return what a field of this type accepts: `bool`, `int`, `float`, `str` or the values of a choice."""
    from viaduct.typed_fields import list_alternatives

    accepted: list[str] = []
    for member in list_alternatives(kind):
        if typing.get_origin(member) is Literal:
            accepted += map(str, typing.get_args(member))
        elif member is not type(None):
            accepted.append(member.__name__)
    return accepted


def describe_fields() -> dict[str, list[str]]:
    """Return the contents of recipe_fields.json."""
    return {flag.path: describe_field(flag.path) for flag in FLAGS.values()}


if __name__ == "__main__":
    FIELDS_FILE.write_text(json.dumps(describe_fields(), indent=1) + "\n")
