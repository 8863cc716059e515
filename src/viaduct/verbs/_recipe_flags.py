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

from viaduct.comparison.dump_options import DumpOptions
from viaduct.verbs._grouped_help import PLACEHOLDERS
from viaduct.verbs._option_flags import build_parameters, set_parameters

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
class RecipeFlag:
    """Short name of `--set PATH=VALUE`."""

    path: str
    heading: str
    help: str
    metavar: str = ""  # for text fields; other types have their own
    is_path: bool = False  # the value is a file or folder
    is_switch: bool = False  # the flag takes no value and sets a number to 1


FLAGS = {
    "model": RecipeFlag(
        "model", RUN, "Network: one of ours, timm:NAME, torchvision:NAME, package.module:function.", "NAME"
    ),
    "epochs": RecipeFlag("epochs", SCHEDULE, "Passes over the training images."),
    "steps": RecipeFlag("steps", SCHEDULE, "Total optimizer steps, instead of epochs."),
    "seed": RecipeFlag("seed", SCHEDULE, "Seed of weights, sample order and augmentation."),
    "batch": RecipeFlag("data.global_batch", SCHEDULE, "Global batch size."),
    "lr": RecipeFlag("optimizer.lr", SCHEDULE, "Peak learning rate; find: measure a suitable one.", "RATE|find"),
    "accumulate": RecipeFlag("accumulate", SCHEDULE, "Split the batch into this many parts and accumulate gradients."),
    "clip_norm": RecipeFlag("clip_norm", SCHEDULE, "Clip gradients to this norm; 0: do not clip."),
    "mode": RecipeFlag("mode", SPEED, "graph: compiled; auto: graph where that is known to be faster."),
    "compile": RecipeFlag("compile", SPEED, "In graph mode: compile block by block (regional) or the whole network."),
    "compile_parts": RecipeFlag("compile_parts", SPEED, "Compile only these parts: 'stages.2,head'.", "GLOB,…"),
    "kernels": RecipeFlag("kernels", SPEED, "Use viaduct's own kernels where they fit."),
    "sink": RecipeFlag("sink", SPEED, "Steps executed on the device at a time; 0: return to the host after each."),
    "precision": RecipeFlag("precision.compute", SPEED, "Compute precision, or a level O0 to O3."),
    "loss_scale": RecipeFlag("precision.loss_scale", SPEED, "Loss scale: fixed, dynamic, or as the precision needs."),
    "deterministic": RecipeFlag("deterministic", SPEED, "The same bits in every run on this machine; slower on cards."),
    "init": RecipeFlag(
        "init.source",
        WEIGHTS,
        "Start from these weights: .safetensors, .pth, a run, a TensorFlow or MindSpore checkpoint.",
        "PATH",
        is_path=True,
    ),
    "init_exclude": RecipeFlag("init.exclude", WEIGHTS, "Do not load parameters with these names: 'head.*'.", "GLOB,…"),
    "init_schedule": RecipeFlag("init.schedule", WEIGHTS, "Restart at step 0, or continue at the step of the weights."),
    "freeze": RecipeFlag("init.freeze", WEIGHTS, "Do not train these: 'all but head', or 'stem,stages.0'.", "GLOB,…"),
    "classes": RecipeFlag("data.classes", DATA, "Outputs of the network."),
    "workers": RecipeFlag("data.workers", DATA, "Threads that prepare batches; 0: one a core for records, else none."),
    "on_bad_record": RecipeFlag(
        "data.on_bad_record", DATA, "Stop at a bad record, or put the mean colour in its place, count and name it."
    ),
    "balance": RecipeFlag(
        "data.balance", DATA, "Draw every class equally often; partly: --set data.balance=0.5.", is_switch=True
    ),
    "auto_augment": RecipeFlag(
        "data.auto_augment", DATA, "imagenet, cifar10, randaugment or randaugment-N-M.", "POLICY"
    ),
    "increased_aug": RecipeFlag(
        "data.increased_aug", DATA, "Colour augmentation: on (see the next four flags), off, or that of the reference."
    ),
    "brightness": RecipeFlag("data.brightness", DATA, "Largest change, of 255 grey levels."),
    "contrast": RecipeFlag("data.contrast", DATA, "Smallest factor; the largest is 2 - X."),
    "saturation": RecipeFlag("data.saturation", DATA, "Smallest factor; the largest is 2 - X."),
    "hue": RecipeFlag("data.hue", DATA, "Largest rotation, as a share of half a circle."),
    "eval_every": RecipeFlag("evaluation.every_epochs", OUTPUT, "Epochs between evaluations; 0: only at the end."),
    "eval_only": RecipeFlag("evaluation.eval_only", OUTPUT, "Evaluate the newest checkpoint and stop."),
    "stop_threshold": RecipeFlag(
        "evaluation.stop_threshold", OUTPUT, "Stop once top-1 (0 to 1) reaches this; 0: never."
    ),
    "save_every": RecipeFlag("checkpoint.every_steps", OUTPUT, "Steps between checkpoints; 0: by time only."),
    "keep": RecipeFlag("checkpoint.keep", OUTPUT, "Number of checkpoints kept, besides the best."),
    "log_every": RecipeFlag("log.every_steps", OUTPUT, "Steps between log lines."),
    "log_format": RecipeFlag("log.format", OUTPUT, "Format of the log lines."),
    "tensorboard": RecipeFlag(
        "log.tensorboard", OUTPUT, "Besides curves: images, histograms, graph, top5, or all.", "NAME,…"
    ),
    "tensorboard_every": RecipeFlag(
        "log.tensorboard_every", OUTPUT, "Steps between images and histograms; 0: as log lines."
    ),
    "track": RecipeFlag(
        "log.track", OUTPUT, "Send records to mlflow or wandb; tensorboard: its events are in every run.", "NAME,…"
    ),
    "parallel": RecipeFlag(
        "parallel.mode", RANKS, "hybrid: each rank has a part of the classes; auto: if that saves time."
    ),
    "sync_norm": RecipeFlag(
        "parallel.sync_norm", RANKS, "Batch norm statistics of the global batch, not of a rank's share."
    ),
    "compress": RecipeFlag("parallel.compress", RANKS, "Data type in which gradients are sent."),
    "reduce": RecipeFlag("parallel.reduce", RANKS, "Mean or sum of the ranks' gradients."),
}


@functools.cache
def read_fields() -> dict[str, list[str]]:
    """Return the accepted values of each field: `bool`, `int`, `float`, `str`, or the values of a choice."""
    fields: dict[str, list[str]] = json.loads(FIELDS_FILE.read_text())
    return fields


def build_parameter(name: str, flag: RecipeFlag) -> inspect.Parameter:
    """Return the parameter of a verb's function for one flag."""
    accepts = read_fields()[flag.path]
    is_switch = flag.is_switch or accepts == ["bool"]
    kind: Any = bool if is_switch else Path | None if flag.is_path else str | None
    option = typer.Option(
        "--" + name.replace("_", "-"),
        help=f"{flag.help} [{flag.path}]",
        show_default=False,
        metavar=None if is_switch else flag.metavar or "|".join(PLACEHOLDERS.get(value, value) for value in accepts),
        rich_help_panel=flag.heading,
    )
    default = False if is_switch else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def with_recipe_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of FLAGS to a verb; its function receives them as keyword arguments."""
    declared = inspect.signature(function, eval_str=True).parameters.values()
    return set_parameters(
        function,
        [parameter for parameter in declared if parameter.kind is not parameter.VAR_KEYWORD]
        + [build_parameter(name, flag) for name, flag in FLAGS.items()]
        + build_parameters(DumpOptions, ("mode", "only", "level", "statistics_only"), "dump_", INSPECTION),
    )


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
