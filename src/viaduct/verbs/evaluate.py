"""viaduct evaluate"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viaduct.addresses import read_address
from viaduct.errors import BadData, BadValue

if TYPE_CHECKING:
    from viaduct.recipes import Loaded


def main(
    weights: Annotated[
        Path,
        typer.Argument(
            help="A run or a checkpoint of it; with --recipe a TensorFlow or MindSpore one, .safetensors or .pth file.",
        ),
    ],
    every: Annotated[bool, typer.Option("--all", help="Every checkpoint of the run or folder, as a table.")] = False,
    step: Annotated[int | None, typer.Option(help="The checkpoint of this step.", show_default="the latest")] = None,
    data: Annotated[
        Path | None, typer.Option(help="The data; of a run, if they have moved since.", callback=read_address)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, npu, mlu; or one card: cuda:1.")] = "auto",
    precision: Annotated[str | None, typer.Option(help="Another precision than the recipe's.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="For weights from elsewhere: a recipe's name or file. For a run: a file instead of the copy it keeps.",
            metavar="RECIPE",
            show_default="the run's own",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="With --recipe NAME: change a field of it; may be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="The network's outputs.", show_default="the recipe's, or as the data say", min=1)
    ] = None,
    ema: Annotated[
        bool | None,
        typer.Option(
            "--ema/--no-ema",
            help="Weights from elsewhere: their moving averages, or not.",
            show_default="as the recipe has it, where they are there",
        ),
    ] = None,
    recompute: Annotated[
        int,
        typer.Option(
            "--recompute-batch-norm",
            help="First compute the batch norms' running averages anew, from so many training batches.",
            metavar="N",
            show_default="0: as training left them",
            min=0,
        ),
    ] = 0,
    save: Annotated[
        Path | None, typer.Option(help="Keep the weights with recomputed averages in this .safetensors file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with each class's figures.")] = False,
) -> None:
    """Measure a run's checkpoints, or weights from elsewhere, on the validation pictures; each counts exactly once.

    Where the recipe averages its weights (ema), the averages are measured. A run of somebody's own recipe
    file keeps a copy of it, which is executed: evaluate runs of people whom you trust. A short run may end
    before the running averages of its batch norms have settled: --recompute-batch-norm 100 shows what its
    weights are worth with better ones.

    Weights that viaduct did not train need a recipe, which says the network and how pictures are prepared:
    viaduct evaluate model.ckpt-601000 --recipe resnext50_imagenet --data records/
    """
    found = find_run(weights, step)
    if found is None:
        loaded = load_recipe(weights, recipe, settings, classes, precision, step, data)
        from viaduct.training.scoring import score_weights

        rows = score_weights(
            weights, loaded, data=data, device=device, every=every, ema=ema, recompute=recompute, save=save
        )
    else:
        refuse_flags(settings, classes, ema)
        from viaduct.training.scoring import score_checkpoints

        rows = score_checkpoints(
            found[0],
            data=data,
            device=device,
            precision=precision,
            step=found[1],
            every=every,
            file=Path(recipe) if recipe else None,
            recompute=recompute,
            save=save,
        )
    if not rows:  # another rank speaks for this one
        return
    if as_json:
        from viaduct.run_files import finite_or_null

        print(json.dumps(finite_or_null(rows if every else rows[-1]), indent=1))
    else:
        show(rows)


def find_run(path: Path, step: int | None) -> tuple[Path, int | None] | None:
    """Return the run and step that a path means; None if it is no run."""
    if (path / "recipe.json").is_file():
        return path, step
    if (path / "manifest.json").is_file() and (path.parent.parent / "recipe.json").is_file():
        number = path.name.removeprefix("step-")
        return path.parent.parent, int(number) if number.isdecimal() else step
    return None


def refuse_flags(settings: list[str] | None, classes: int | None, ema: bool | None) -> None:
    """Refuse what a run's own record decides."""
    for flag, value in (("--set", settings), ("--classes", classes), ("--ema", ema)):
        if value not in (None, []):
            raise BadValue(f"{flag}: a run is measured with the recipe that it keeps.", "Leave it out.")


def load_recipe(
    weights: Path,
    recipe: str | None,
    settings: list[str] | None,
    classes: int | None,
    precision: str | None,
    step: int | None,
    data: Path | None,
) -> Loaded:
    """Return the recipe, changed as asked, by which weights that no run of ours trained are measured."""
    from viaduct.recipes._classes import match_classes
    from viaduct.verbs.train import changes_from, resolve

    if not recipe:
        raise BadValue(
            f"{str(weights)!r} is not a run, so it does not say how it is evaluated.", *advise_recipe(weights)
        )
    if step is not None:
        raise BadValue("--step is for runs.", "Name the checkpoint itself, such as model.ckpt-601000.")
    flags = {"classes": ("data.classes", classes), "precision": ("precision.compute", precision)}
    changes = changes_from({name: (path, str(value)) for name, (path, value) in flags.items() if value}, settings)
    loaded, _ = resolve(recipe, None, changes)
    given, note = "data.classes" in dict(changes), ""
    if not given or not has_room(loaded, data):  # weights may have more classes than the pictures that measure them
        loaded, note = match_classes(loaded, data, given, shift_given="data.label_shift" in dict(changes))
    if note:
        print(note, file=sys.stderr)
    return loaded


def has_room(loaded: Loaded, data: Path | None) -> bool:
    """Return True if the network has an output for every class that the data name."""
    from viaduct.data.records import Records

    source = loaded.recipe.data
    stated = source.stated_classes(data) if isinstance(source, Records) and data is not None else None
    return stated is None or stated.outputs <= source.classes


def advise_recipe(weights: Path) -> list[str]:
    """Say what weights look like and which recipes are for such a network; nothing where there are none."""
    from viaduct import recipes
    from viaduct.weights.stored import open_weights

    try:
        with open_weights(weights) as stored:
            likely = [stored.facts.model] if stored.facts.model else [model for model, _, _ in stored.likely_models()]
    except BadData as error:
        if not weights.exists():
            raise
        return [*error.hints, "For weights from elsewhere give --recipe NAME; `viaduct train --list` shows them."]
    fitting = [name for name in recipes.names() if recipes.load(name).recipe.model in likely]
    if not fitting:
        return ["Say which recipe: --recipe NAME; `viaduct train --list` shows them."]
    return [f"It looks like {likely[0]}: --recipe {fitting[0]} (or: {', '.join(fitting[1:]) or 'your own file'})."]


def show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from viaduct.terminal import figure_columns, print_table

    columns = {"top1": 100.0, "top5": 100.0, "loss": 1.0, "precision": 1.0, "recall": 1.0, "f1": 1.0}
    own = rows[0].get("own_metrics", [])
    columns |= dict.fromkeys(own, 1.0)
    heads = ("step", "epoch", "top-1 %", "top-5 %", "loss", "precision", "recall", "F1", *own, "images")
    table = Table(*figure_columns(*heads), "checkpoint_time(UTC)", "", box=None)
    best = max(rows, key=lambda row: float(row["top1"]))  # of equals the first, as in training
    for row in rows:
        figures = [f"{scale * row[name]:.4g}" for name, scale in columns.items()]
        mark = "best" if len(rows) > 1 and row is best else ""
        step = "?" if row["step"] is None else str(row["step"])
        epoch = "?" if row["epoch"] is None else f"{row['epoch']:.1f}"
        table.add_row(step, epoch, *figures, str(row["count"]), row["checkpoint_time"], mark)
    print_table(table)
