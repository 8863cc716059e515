"""viaduct search"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from viaduct.errors import BadValue
from viaduct.extras import require
from viaduct.file_urls import resolve_file_url
from viaduct.terminal import print_note
from viaduct.verbs._durations import parse_duration
from viaduct.verbs._recipe_changes import DeviceOption, merge_changes, resolve_recipe

if TYPE_CHECKING:
    from viaduct.recipes import LoadedRecipe
    from viaduct.runs.search.session import DataFacts


def main(
    arguments: Annotated[
        list[str],
        typer.Argument(help="A recipe's name or file. Further arguments are added to --space.", metavar="RECIPE"),
    ],
    data: Annotated[Path | None, typer.Option(help="Folder of the recipe's data.", callback=resolve_file_url)] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            help="Fields and their values: optimizer.lr=0.01..1:log data.cutout=0,8,16.", metavar="FIELD=VALUES …"
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials of the study, including earlier calls.")] = 20,
    parallel: Annotated[int, typer.Option(min=1, help="Trials at a time, on shares of the cores or on cards.")] = 1,
    past: Annotated[
        Path | None, typer.Option("--from", help="Take finished runs in this folder as observations.", metavar="DIR")
    ] = None,
    sampler: Annotated[Literal["tpe", "gp", "grid", "random"], typer.Option(help="Sampling method.")] = "tpe",
    prune: Annotated[
        Literal["hyperband", "median", "none"],
        typer.Option(help="Rule that stops weak trials early; none: no trial is stopped."),
    ] = "hyperband",
    metric: Annotated[str, typer.Option(help="top1, top5, f1, precision, recall, loss, or the recipe's own.")] = "top1",
    epochs: Annotated[
        str | None, typer.Option(help="Epochs of every trial.", metavar="N", show_default="the recipe's")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="Instead: steps of every trial.", metavar="N")] = None,
    study: Annotated[
        Path | None, typer.Option(help="Folder of the search.", show_default="runs/RECIPE_search", metavar="DIR")
    ] = None,
    timeout: Annotated[str | None, typer.Option(help="End after this time: 90s, 30m, 2h.", metavar="TIME")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler; that of the training is --set seed=N.")] = 1,
    device: DeviceOption = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field in all trials.", metavar="FIELD=VALUE")
    ] = None,
) -> None:
    """Search the hyper-parameters of a recipe: every trial is an ordinary run.

    The first trial has the recipe's own values if the space contains them; a grid begins with its first combination.
    Ctrl-C ends with a checkpoint; the same command continues the search, also after a kill. Finished trials are never
    repeated.
    """
    require("torch", "optuna", *(["scipy"] if sampler == "gp" else []))
    from viaduct.recipes import load
    from viaduct.runs.search.output import print_outcome
    from viaduct.runs.search.session import SearchRequest, search

    recipe, *space_fields = arguments  # `--space A=1 B=2`: typer puts only A=1 into `space`, and B=2 into `arguments`
    fixed = collect_settings(recipe, data, epochs, steps, settings)
    loaded = load(recipe)
    request = SearchRequest(
        loaded=loaded,
        argument=recipe,
        settings=fixed,
        space=[*(space or []), *space_fields],
        data=data,
        device=device,
        folder=study or Path("runs") / f"{loaded.name}_search",
        trials=trials,
        parallel=parallel,
        sampler=sampler,
        pruner=prune,
        metric=metric,
        seed=seed,
        timeout_s=None if timeout is None else parse_duration(timeout, "--timeout", default_unit="m"),
        past=past,
    )
    outcome = search(request, lambda: inspect_data(loaded, fixed, data), print_note)
    print_outcome(outcome)
    if outcome.end == "interrupted":
        raise typer.Exit(128 + outcome.signal)


def collect_settings(
    recipe: str, data: Path | None, epochs: str | None, steps: str | None, settings: list[str] | None
) -> dict[str, str]:
    """Return the fields set in all trials {field: value}; classes and label shift are taken from the data."""
    from viaduct.recipes._classes import match_classes

    changes = merge_changes({"epochs": ("epochs", epochs), "steps": ("steps", steps)}, settings)
    fields = dict(changes)
    check_settings(recipe, changes)
    changed, _ = resolve_recipe(recipe, None, changes)
    matched, note = match_classes(changed, data, fields)
    if note:
        print_note(note)
    for name in ("classes", "label_shift"):
        value = getattr(matched.recipe.data, name, None)
        if value != getattr(changed.recipe.data, name, None):
            fields[f"data.{name}"] = str(value)
    return fields


def check_settings(recipe: str, changes: list[tuple[str, str]]) -> None:
    """Raise BadValue, with the full name of the field, for a value that the recipe refuses."""
    from viaduct.recipes import load
    from viaduct.recipes._fields import override

    changed = load(recipe).recipe
    for path, text in changes:
        try:
            changed = override(changed, path, text)
        except BadValue as error:
            if path in error.message:
                raise
            raise BadValue(f"--set {path}={text}: {error.message}", *error.hints) from None


def inspect_data(loaded: LoadedRecipe, settings: dict[str, str], path: Path | None) -> DataFacts:
    """Return facts about the images of the data; raise an error if the data is missing."""
    from viaduct.runs.search.best_recipe import apply_settings
    from viaduct.runs.search.session import DataFacts
    from viaduct.training.images import fingerprint_labels, load_images

    images = load_images(apply_settings(loaded.recipe, settings).data, path)
    return DataFacts(fingerprint_labels(images), len(images.train))
