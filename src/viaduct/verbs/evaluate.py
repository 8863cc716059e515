"""viaduct evaluate"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from viaduct.file_urls import resolve_file_url
from viaduct.verbs._latency import BATCHES, REPEATS, WARM_UP, refuse_latency_flags, refuse_scoring_flags, show_latency
from viaduct.verbs._option_flags import Fields, with_option_flags
from viaduct.verbs._recipe_changes import DeviceOption
from viaduct.verbs._weights import (
    PrecisionOption,
    WeightsArgument,
    WeightsOptions,
    advise_on_mismatch,
    find_run,
    load_recipe,
    open_classifier,
    refuse_flags,
)


@with_option_flags
def main(
    weights: WeightsArgument,
    every: Annotated[bool, typer.Option("--all", help="Measure all checkpoints of the run or folder.")] = False,
    *,
    options: Annotated[WeightsOptions, Fields("step", "recipe", "settings", "classes", "ema")],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data; for a run only if they have moved.", callback=resolve_file_url),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = None,
    recompute: Annotated[
        int,
        typer.Option(
            "--recompute-batch-norm",
            help="First recompute the batch norms' running averages from this many training batches.",
            metavar="N",
            show_default="0: use those of the training",
            min=0,
        ),
    ] = 0,
    save: Annotated[
        Path | None, typer.Option(help="Write the weights with recomputed averages to this .safetensors file.")
    ] = None,
    latency: Annotated[
        bool, typer.Option("--latency", help="Measure the time of a call for each batch size instead; needs no data.")
    ] = False,
    batch: Annotated[
        str | None, typer.Option(help="With --latency: batch sizes.", metavar="N,N,…", show_default=BATCHES)
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option("--warm-up", help="With --latency: warm-up calls.", min=0, show_default=str(WARM_UP))
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(help="With --latency: timed calls, for 30 s at most.", min=1, show_default=str(REPEATS)),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the figures of each class.")] = False,
) -> None:
    """Measure a run's checkpoints, or weights from elsewhere, on all validation images, each exactly once.

    If the recipe averages its weights (ema), the averages are measured. A run whose recipe is a file contains a copy
    of that file, which is executed: evaluate only runs of people you trust. A short run may end before the running
    averages of its batch norms have settled: --recompute-batch-norm 100 shows the accuracy with better averages.

    Weights that viaduct did not train need a recipe, which defines the network and the preprocessing:
    viaduct evaluate model.ckpt-601000 --recipe resnet50_imagenet --data records/

    With --latency no image is scored. The network runs as in `viaduct serve`. Calls are timed from preprocessed images
    in host memory to logits in host memory.
    """
    if latency:
        refuse_scoring_flags(every, data, recompute, save)
        classifier = open_classifier(weights, options)
        show_latency(classifier, device, precision, batch, warm_up, repeats, as_json)
        return
    refuse_latency_flags(batch, warm_up, repeats)
    run_and_step = find_run(weights, options.step)
    if run_and_step is None:
        loaded = load_recipe(weights, options, precision, data)
        from viaduct.training.scoring import score_weights

        with advise_on_mismatch(weights, loaded):
            rows = score_weights(
                weights, loaded, data=data, device=device, every=every, ema=options.ema, recompute=recompute, save=save
            )
    else:
        refuse_flags(options)
        from viaduct.training.scoring import score_checkpoints

        run, step = run_and_step
        rows = score_checkpoints(
            run,
            data=data,
            device=device,
            precision=precision,
            step=step,
            every=every,
            file=Path(options.recipe) if options.recipe else None,
            recompute=recompute,
            save=save,
        )
    if not rows:  # rank 0 prints the results
        return
    if as_json:
        from viaduct.json_records import finite_or_null

        print(json.dumps(finite_or_null(rows if every else rows[-1]), indent=1))
    else:
        print_evaluations(rows)


def print_evaluations(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from viaduct.terminal import make_number_columns, print_table

    columns = {"top1": 100.0, "top5": 100.0, "loss": 1.0, "precision": 1.0, "recall": 1.0, "f1": 1.0}
    user_metrics = rows[0].get("own_metrics", [])
    columns |= dict.fromkeys(user_metrics, 1.0)
    headings = ("step", "epoch", "top-1 %", "top-5 %", "loss", "precision", "recall", "F1", *user_metrics, "images")
    table = Table(*make_number_columns(*headings), "checkpoint_time(UTC)", "", box=None)
    best = max(rows, key=lambda row: float(row["top1"]))  # of equal ones the first, as in training
    for row in rows:
        figures = [f"{scale * row[name]:.4g}" for name, scale in columns.items()]
        mark = "best" if len(rows) > 1 and row is best else ""
        step = "?" if row["step"] is None else str(row["step"])
        epoch = "?" if row["epoch"] is None else f"{row['epoch']:.1f}"
        table.add_row(step, epoch, *figures, str(row["count"]), row["checkpoint_time"], mark)
    print_table(table)
