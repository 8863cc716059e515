"""A run directory as a run that goes on leaves it, written without training anything."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.data.png import encode_png

RECIPE = {"is": "Recipe", "epochs": 10, "steps": 0, "data": {"is": "Shapes", "global_batch": 64}}


def write_recipe(run: Path, **changes: Any) -> None:
    images = {"training": {"count": 6400, "labels": 1}, "validation": {"count": 1000, "labels": 1}}
    record = {"name": "made_up", "file": None, "recipe": RECIPE, "data": None, "device": "cpu", "images": images}
    run.mkdir(parents=True, exist_ok=True)
    (run / "recipe.json").write_text(json.dumps(record | changes))


def append_line(file: Path, record: dict[str, Any]) -> None:
    with file.open("a") as opened:
        opened.write(json.dumps(record) + "\n")


def append_log(run: Path, step: int, **changes: Any) -> None:
    record = {
        "kind": "log",
        "step": step,
        "epoch": step / 100,
        "loss": 2.3 * math.exp(-step / 300) + 0.05 * math.sin(step),
        "top1": 1 - 0.9 * math.exp(-step / 300),
        "lr": 0.1 * (1 - step / 1000),
        "images_per_s": 640.0,
        "losses": [2.0] * 10,
        "time": 1_000.0 + step,
    }
    append_line(run / "metrics.jsonl", record | changes)


def append_evaluation(run: Path, step: int, **changes: Any) -> None:
    shares = dict.fromkeys(("top1", "top5", "precision", "recall", "f1"), min(0.9, step / 1000))
    record = {"kind": "evaluation", "step": step, "epoch": step / 100, "count": 1000, "loss": 1.5, "seconds": 1.0}
    append_line(run / "metrics.jsonl", record | shares | changes)


def append_histograms(run: Path, step: int, names: int = 3) -> None:
    random = np.random.default_rng(step)

    def describe(width: float) -> dict[str, Any]:
        counts, edges = np.histogram(random.normal(0, width, 2000), 30)
        return {"min": float(edges[0]), "max": float(edges[-1]), "counts": counts.tolist()}

    layers = [f"stages.{number}.conv.weight" for number in range(names)]
    parameters = {layer: describe(0.1 + step / 5000) for layer in layers}
    gradients = {layer: describe(0.01) for layer in layers}
    append_line(run / "histograms.jsonl", {"step": step, "parameters": parameters, "gradients": gradients})


def write_image(run: Path, step: int) -> Path:
    (run / "images").mkdir(exist_ok=True)
    file = run / "images" / f"step-{step:08}.png"
    tiles = np.random.default_rng(step).integers(0, 255, (4, 8, 3), np.uint8)
    file.write_bytes(encode_png(np.repeat(np.repeat(tiles, 32, 0), 32, 1)))
    return file


def write_run(run: Path, steps: int = 300) -> Path:
    """Everything that a run may write while it goes on, up to this step of a thousand."""
    write_recipe(run)
    for step in range(10, steps + 1, 10):
        append_log(run, step)
        if step % 100 == 0:
            append_evaluation(run, step, kappa=step / 2000)
            append_histograms(run, step)
            write_image(run, step)
    return run
