"""viaduct evaluate"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from viaduct.addresses import read_address
from viaduct.verbs._latency import BATCHES, REPEATS, WARM_UP, refuse_latency_flags, refuse_scoring_flags, show_latency
from viaduct.verbs._weights import (
    ClassesOption,
    DeviceOption,
    EmaOption,
    PrecisionOption,
    RecipeOption,
    SettingsOption,
    StepOption,
    WeightsArgument,
    advising_recipe,
    find_run,
    load_recipe,
    open_classifier,
    refuse_flags,
)


def main(
    weights: WeightsArgument,
    every: Annotated[bool, typer.Option("--all", help="Every checkpoint of the run or folder, as a table.")] = False,
    step: StepOption = None,
    data: Annotated[
        Path | None, typer.Option(help="The data; of a run, if they have moved since.", callback=read_address)
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = None,
    recipe: RecipeOption = None,
    settings: SettingsOption = None,
    classes: ClassesOption = None,
    ema: EmaOption = None,
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
    latency: Annotated[
        bool, typer.Option("--latency", help="Measure how long answers take instead, by batch size; needs no data.")
    ] = False,
    batch: Annotated[
        str | None, typer.Option(help="With --latency: batch sizes.", metavar="N,N,…", show_default=BATCHES)
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option("--warm-up", help="With --latency: calls left out before.", min=0, show_default=str(WARM_UP)),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(help="With --latency: calls measured, or 30 s of them.", min=1, show_default=str(REPEATS)),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with each class's figures.")] = False,
) -> None:
    """Measure a run's checkpoints, or weights from elsewhere, on the validation images; each counts exactly once.

    Where the recipe averages its weights (ema), the averages are measured. A run of somebody's own recipe
    file keeps a copy of it, which is executed: evaluate runs of people whom you trust. A short run may end
    before the running averages of its batch norms have settled: --recompute-batch-norm 100 shows what its
    weights are worth with better ones.

    Weights that viaduct did not train need a recipe, which says the network and how images are prepared:
    viaduct evaluate model.ckpt-601000 --recipe resnet50_imagenet --data records/

    With --latency no image is scored: calls of the network, made fast as `viaduct serve` makes it, are timed for each
    batch size from prepared images in host memory to their logits there.
    """
    if latency:
        refuse_scoring_flags(every, data, recompute, save)
        classifier = open_classifier(weights, step=step, recipe=recipe, settings=settings, classes=classes, ema=ema)
        show_latency(classifier, device, precision, batch, warm_up, repeats, as_json)
        return
    refuse_latency_flags(batch, warm_up, repeats)
    found = find_run(weights, step)
    if found is None:
        loaded = load_recipe(weights, recipe, settings, classes, precision, step, data)
        from viaduct.training.scoring import score_weights

        with advising_recipe(weights, loaded):
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
        print_evaluations(rows)


def print_evaluations(rows: list[dict[str, Any]]) -> None:
    """Print the table of evaluations."""
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
