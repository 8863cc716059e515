"""Flags and loading of trained weights for evaluate, predict, export and serve.

Weights are a run, one of its checkpoints, or a file from elsewhere, which needs --recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viaduct.errors import BadData, BadValue
from viaduct.flags import Flag

if TYPE_CHECKING:
    from viaduct.handover.classifier import Classifier
    from viaduct.recipes import LoadedRecipe

TRAINING_FLAG = "--init-exclude"  # hints of errors about weights advise this flag of `train`, which these verbs lack
WeightsArgument = Annotated[
    Path,
    typer.Argument(
        help="A run or one of its checkpoints; with --recipe a .safetensors, .pth, TensorFlow or MindSpore checkpoint."
    ),
]
PrecisionOption = Annotated[
    str | None, typer.Option(help="Another precision than the recipe's.", metavar="auto|fp32|bf16|fp16|O0…O3")
]


@dataclass(frozen=True)
class WeightsOptions:
    """Flags about the weights and their recipe."""

    step: Annotated[int | None, Flag("The checkpoint of this step.", default="the latest")] = None
    recipe: Annotated[
        str | None,
        Flag(
            "For weights from elsewhere: a recipe's name or file. For a run: a file to use instead of its own copy.",
            metavar="RECIPE",
            default="the run's own",
        ),
    ] = None
    settings: Annotated[
        tuple[str, ...],
        Flag("With --recipe NAME: change a field of it; may be repeated.", metavar="FIELD=VALUE", name="--set"),
    ] = ()
    classes: Annotated[
        int | None,
        Flag("Outputs of the network.", default="those of the weights or data, or the recipe's", minimum=1),
    ] = None
    ema: Annotated[
        bool | None,
        Flag(
            "Weights from elsewhere: use their moving averages.",
            default="as the recipe says, if they are there",
            name="--ema/--no-ema",
        ),
    ] = None
    labels: Annotated[
        Path | None,
        Flag(
            "Names of the classes: a line for each output, or NUMBER:NAME lines.", metavar="FILE", default="the run's"
        ),
    ] = None


def open_classifier(weights: Path, options: WeightsOptions) -> Classifier:
    """Load the trained classifier that a verb's flags describe; print notes about it to stderr."""
    run_and_step = find_run(weights, options.step)
    if run_and_step is None:
        loaded = load_recipe(weights, options)
        from viaduct.handover.classifier import open_weights_file
        from viaduct.handover.outputs import match_outputs

        if options.classes is None and not any(setting.startswith("data.classes=") for setting in options.settings):
            loaded, note = match_outputs(weights, loaded)
            if note:
                print(note, file=sys.stderr)
        with advise_on_mismatch(weights, loaded):
            classifier = open_weights_file(weights, loaded, ema=options.ema, labels=options.labels)
    else:
        refuse_flags(options)
        from viaduct.handover.classifier import open_run

        run, step = run_and_step
        file = Path(options.recipe) if options.recipe else None
        classifier = open_run(run, step=step, file=file, labels=options.labels)
    for note in classifier.notes:
        print(note, file=sys.stderr)
    return classifier


def find_run(path: Path, step: int | None) -> tuple[Path, int | None] | None:
    """Return (run, step) if the path is a run or a checkpoint in one, else None. A checkpoint has its own step."""
    if (path / "recipe.json").is_file():
        return path, step
    if (path / "manifest.json").is_file() and (path.parent.parent / "recipe.json").is_file():
        number = path.name.removeprefix("step-")
        return path.parent.parent, int(number) if number.isdecimal() else step
    return None


def refuse_flags(options: WeightsOptions) -> None:
    """Raise BadValue for flags whose values a run has stored."""
    for flag, value in (("--set", options.settings), ("--classes", options.classes), ("--ema", options.ema)):
        if value not in (None, ()):
            raise BadValue(f"{flag}: a run is used with its own recipe.", "Leave it out.")


def load_recipe(
    weights: Path, options: WeightsOptions, precision: str | None = None, data: Path | None = None
) -> LoadedRecipe:
    """Return the recipe for weights that are not in a run: --recipe, with --set, --classes and --precision applied.

    `data`: the folder of the images with which the weights are measured, if any.
    """
    from viaduct.recipes._classes import match_classes
    from viaduct.verbs._recipe_changes import merge_changes, resolve_recipe

    if weights.is_dir() and (weights.parent / "recipe.json").is_file():
        raise BadValue(f"{weights} is a folder of the run {weights.parent}.", f"Give the run itself: {weights.parent}")
    if not options.recipe:
        raise BadValue(
            f"{str(weights)!r} is not a run, so it does not say how it is evaluated.", *advise_recipe(weights)
        )
    if options.step is not None:
        raise BadValue("--step is for runs.", "Name the checkpoint itself, such as model.ckpt-601000.")
    flags = {"classes": ("data.classes", options.classes), "precision": ("precision.compute", precision or None)}
    changes = merge_changes(flags, options.settings)
    loaded, _ = resolve_recipe(options.recipe, None, changes)
    changed_fields = dict(changes)
    if "data.classes" in changed_fields and has_enough_outputs(loaded, data):
        return loaded  # a network may have more outputs than the data have classes
    loaded, note = match_classes(loaded, data, changed_fields)
    if note:
        print(note, file=sys.stderr)
    return loaded


@contextmanager
def advise_on_mismatch(weights: Path, loaded: LoadedRecipe) -> Iterator[None]:
    """Replace the hints of an error about weights that do not fit the recipe by advice for these verbs."""
    try:
        yield
    except BadData as error:
        hints = [hint for hint in error.hints if TRAINING_FLAG not in hint]
        if len(hints) == len(error.hints):
            raise
        hints = [hint for hint in hints if not hint.startswith("It looks like")]  # advise_recipe says it with a flag
        raise BadData(
            error.message, *hints, *(advise_same_network(weights, loaded) or advise_recipe(weights))
        ) from None


def advise_same_network(weights: Path, loaded: LoadedRecipe) -> list[str]:
    """Return advice for weights of the recipe's network with other tensor names or another number of classes.

    Empty if the weights belong to another network, or if the recipe builds its network by a function.
    """
    from viaduct.weights.stored import open_weights
    from viaduct.weights.torch_import import has_own_names, match_network
    from viaduct.weights.torch_names import TORCHVISION

    model = loaded.recipe.model
    if not isinstance(model, str):
        return []
    with open_weights(weights) as stored:
        network = match_network(stored, model, 0)
    if not network.match.is_complete:
        return []
    hints = []
    if not has_own_names(network.match):
        command = f"viaduct weights import {weights} --model {model} --out {weights.stem}_own.safetensors"
        is_torchvision = network.match.naming == TORCHVISION
        names = "torchvision's names" if is_torchvision else "a prefix before their names"
        hints.append(f"Its tensors have {names}; `{command}` writes them under the network's own.")
    if network.guess.classes != loaded.recipe.data.classes:
        hints.append(f"Give --classes {network.guess.classes}, as many as it has.")
    return hints


def has_enough_outputs(loaded: LoadedRecipe, data: Path | None) -> bool:
    """Return True if the network has an output for every class that the data define, or if they define none."""
    from viaduct.data.records import Records

    source = loaded.recipe.data
    stated = source.find_stated_classes(data) if isinstance(source, Records) and data is not None else None
    return stated is None or stated.outputs <= source.classes


def advise_recipe(weights: Path) -> list[str]:
    """Return advice with the recipes of the network that the weights seem to belong to."""
    from viaduct import recipes
    from viaduct.weights.stored import open_weights

    try:
        with open_weights(weights) as stored:
            likely = (
                [stored.metadata.model]
                if stored.metadata.model
                else [model for model, _, _ in stored.find_likely_models()]
            )
    except BadData as error:
        if not weights.exists():
            raise
        return [*error.hints, "For weights from elsewhere give --recipe NAME; `viaduct train --list` shows them."]
    fitting = [name for name in recipes.names() if recipes.load(name).recipe.model in likely]
    if not fitting:
        return ["Say which recipe: --recipe NAME; `viaduct train --list` shows them."]
    names = " or ".join(likely)
    return [f"It looks like {names}: --recipe {fitting[0]} (or: {', '.join(fitting[1:]) or 'your own file'})."]
