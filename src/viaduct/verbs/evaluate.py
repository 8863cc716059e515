"""viaduct evaluate"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def main(
    run: Annotated[Path, typer.Argument(help="The run's directory.")],
    every: Annotated[bool, typer.Option("--all", help="Every checkpoint, as a table.")] = False,
    step: Annotated[int | None, typer.Option(help="The checkpoint of this step.", show_default="the latest")] = None,
    data: Annotated[Path | None, typer.Option(help="The data, if they have moved since.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, npu, mlu; or one card: cuda:1.")] = "auto",
    precision: Annotated[str | None, typer.Option(help="Another precision than the recipe's.")] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="Your recipe file, executed instead of the copy that the run keeps.",
            metavar="FILE",
            show_default="RUN/recipe.py",
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
    """Measure a run's checkpoints on the validation pictures; each picture counts exactly once.

    Where the recipe averages its weights (ema), the averages are measured. A run of somebody's own recipe
    file keeps a copy of it, which is executed: evaluate runs of people whom you trust. A short run may end
    before the running averages of its batch norms have settled: --recompute-batch-norm 100 shows what its
    weights are worth with better ones.
    """
    from viaduct.training.scoring import score_checkpoints

    rows = score_checkpoints(
        run,
        data=data,
        device=device,
        precision=precision,
        step=step,
        every=every,
        file=recipe,
        recompute=recompute,
        save=save,
    )
    if not rows:  # another rank speaks for this one
        return
    if as_json:
        print(json.dumps(rows if every else rows[-1], indent=1))
    else:
        show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from viaduct.terminal import figure_columns, print_table

    columns = {"top1": 100.0, "top5": 100.0, "loss": 1.0, "precision": 1.0, "recall": 1.0, "f1": 1.0}
    heads = ("step", "epoch", "top-1 %", "top-5 %", "loss", "precision", "recall", "F1", "images", "")
    table = Table(*figure_columns(*heads), box=None)
    best = max(rows, key=lambda row: float(row["top1"]))  # of equals the first, as in training
    for row in rows:
        figures = [f"{scale * row[name]:.4g}" for name, scale in columns.items()]
        mark = "best" if len(rows) > 1 and row is best else ""
        table.add_row(str(row["step"]), f"{row['epoch']:.1f}", *figures, str(row["count"]), mark)
    print_table(table)
