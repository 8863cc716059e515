"""Write run directories like those of `viaduct train`, without training."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path
from typing import Any

RECIPE: dict[str, Any] = {
    "is": "Recipe",
    "model": "resnet20_cifar",
    "data": {"is": "Shapes", "global_batch": 64, "size": 32, "classes": 10, "workers": 1, "pad": 4, "flip": True},
    "optimizer": {"is": "Sgd", "lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 0.0002},
    "schedule": {"is": "Cosine", "warmup_epochs": 0, "final": 0.0},
    "loss": {"is": "CrossEntropy", "label_smoothing": 0.0},
    "mixup": 0.0,
    "epochs": 10,
    "steps": 600,
    "ema": None,
    "init": {"is": "Init", "source": "", "exclude": "", "freeze": "", "schedule": "restart"},
    "precision": {"is": "Precision", "compute": "auto", "loss_scale": "auto"},
    "evaluation": {"is": "Evaluation", "every_epochs": 1, "stop_threshold": 0.0, "eval_only": False},
    "checkpoint": {"is": "Checkpoint", "every_steps": 0, "keep": 5},
    "log": {"is": "Log", "every_steps": 10, "format": "resnext"},
    "seed": 0,
    "deterministic": False,
}
MACHINE = {"device": "cpu", "description": "Some CPU, 8 cores", "cpus": 8, "versions": {"torch": "2.13.0"}}


def make_run(
    folder: Path,
    *,
    steps: int = 600,
    done: int | None = None,
    every: int = 10,
    lr: float = 0.1,
    seed: int = 0,
    finished: bool = True,
    provenance: dict[str, Any] | bool | None = True,
    top1: float = 0.9,
    **changes: Any,
) -> Path:
    """Write a run; `changes` replace fields of recipe.json, those with a dot fields of the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = copy.deepcopy(RECIPE) | {"seed": seed, "steps": steps}
    recipe["optimizer"]["lr"] = lr
    recipe["log"]["every_steps"] = every
    for name in [name for name in changes if "." in name]:
        set_field(recipe, name, changes.pop(name))
    split = {"count": 3840, "labels": 1}
    record = {
        "name": "made_up",
        "file": None,
        "recipe": recipe,
        "data": None,
        "device": "cpu",
        "command": "viaduct train",
    }
    record |= {"images": {"training": split, "validation": split}}
    if provenance:
        record["provenance"] = describe_origin() if provenance is True else provenance
    (folder / "recipe.json").write_text(json.dumps(record | changes, indent=1))
    (folder / ".lock").touch()
    write_metrics(folder, steps if done is None else done, every, lr, seed, top1)
    if finished:
        write_summary(folder, recipe, steps, top1)
        (folder / "model.safetensors").write_bytes(b"made-up weights")
    return folder


def set_field(recipe: dict[str, Any], name: str, value: Any) -> None:
    *parts, last = name.split(".")
    for part in parts:
        recipe = recipe[part]
    recipe[last] = value


def describe_origin(**changes: Any) -> dict[str, Any]:
    session = {
        "began": 1_700_000_000.0,
        "step": 0,
        "host": "here",
        "pid": 1,
        "version": "0.1.0",
        "commit": "0123456789ab",
        "modified_files": 0,
        "source": "5ce1",
        "machine": MACHINE,
        "ranks": 1,
        "data": {"fingerprint": "da7a", "basis": "every pixel; all labels", "build": None},
    }
    return {"id": f"{random.getrandbits(64):x}", "init": None, "sessions": [session]} | changes


def write_metrics(folder: Path, done: int, every: int, lr: float, seed: int, top1: float) -> None:
    draw = random.Random(f"{seed} {lr}")
    lines = []
    for step in range(every, done + 1, every):
        losses = [loss_at(number, lr) + draw.gauss(0, 0.02) for number in range(step - every + 1, step + 1)]
        log = {"kind": "log", "step": step, "epoch": step / 60, "loss": sum(losses) / every, "total_loss": 2.0}
        log |= {"top1": 0.5, "lr": lr, "images_per_s": 640.0, "loss_scale": 1.0, "skipped": 0, "losses": losses}
        lines.append(log | {"time": 1_700_000_000.0 + step})
        if step % (10 * every) == 0 or step == done:
            reached = top1 * (1 - math.exp(-6 * step / max(done, 1)))
            shares = dict.fromkeys(("top1", "top5", "precision", "recall", "f1"), reached)
            score = {"kind": "evaluation", "step": step, "epoch": step / 60, "count": 1000, "loss": 1.0, "seconds": 1.0}
            lines.append(score | shares | {"time": 1_700_000_000.5 + step})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def loss_at(step: int, lr: float) -> float:
    return 0.2 + 2.1 * math.exp(-step * lr / 20)


def write_summary(folder: Path, recipe: dict[str, Any], steps: int, top1: float) -> None:
    summary = {
        "kind": "training",
        "recipe": "made_up",
        "commit": "0123456789ab",
        "version": "0.1.0",
        "machine": MACHINE,
        "ranks": 1,
        "precision": "fp32",
        "length": {name: recipe[name] for name in ("epochs", "steps")},
        "steps": steps,
        "images_per_s": 640.0,
        "parameters": 270_000,
        "final": {"top1": top1},
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=1))
