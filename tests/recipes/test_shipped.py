"""The recipes say what their references say, field by field; the page of flags leads to fields that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from viaduct.recipes import Sgd, load, names
from viaduct.recipes._fields import paths, read
from viaduct.training.precision import LossScale

PAGE = (Path(__file__).parents[2] / "docs" / "flags.md").read_text()

REFERENCES: dict[str, dict[str, Any]] = {
    "resnet50_imagenet": {
        "model": "resnet50_v1",
        "data.preprocess": "official",
        "data.classes": 1001,
        "data.label_shift": 0,
        "data.global_batch": 256,
        "optimizer": Sgd(lr=0.128, momentum=0.9, weight_decay=1e-4, decay="not_norm"),
        "loss.label_smoothing": 0.0,
        "epochs": 90,
        "ema": None,
    },
    "resnet50_lars_imagenet": {
        "model": "resnet50_v1",
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 1e-4,
        "optimizer.form": "contrib",
        "data.preprocess": "official",
        "epochs": 90,
    },
    "resnet50_v15_imagenet": {
        "model": "resnet50_v15",
        "data.preprocess": "v15",
        "data.classes": 1001,
        "data.label_shift": -1,
        "data.global_batch": 128,
        "optimizer": Sgd(lr=0.128, momentum=0.875, weight_decay=3.0517578125e-05, decay="not_norm"),
        "schedule.warmup_epochs": 8,
        "loss.label_smoothing": 0.1,
        "loss.smooth_evaluation": False,
        "mixup": 0.0,
        "epochs": 90,
        "checkpoint.every_steps": 1000,
        "checkpoint.keep": 5,
        "log.format": "dll",
    },
    "resnext50_imagenet": {
        "model": "resnext50",
        "data.preprocess": "resnext",
        "data.label_shift": 0,
        "data.global_batch": 256,
        "optimizer": Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, decay="not_norm"),
        "schedule.warmup_epochs": 5,
        "schedule.end": 1e-6,
        "loss.label_smoothing": 0.1,
        "loss.smooth_evaluation": True,
        "epochs": 120,
        "checkpoint.every_steps": 50_000,
        "checkpoint.keep": 5,
        "log.every_steps": 1000,
        "log.format": "resnext",
        "expects.percent": 78.2,
    },
    "amoebanet_d_imagenet": {
        "model": "amoebanet_d",
        "data.preprocess": "amoebanet",
        "data.size": 224,
        "data.global_batch": 64,
        "network.cells": 6,
        "network.dropout_keep": 0.5,
        "network.drop_path_keep": 1.0,
        "optimizer": Sgd(lr=2.56, momentum=0.0, weight_decay=4e-5, decay="weights"),
        "schedule.warmup_epochs": 0.35,
        "schedule.decay": 0.88,
        "loss.label_smoothing": 0.1,
        "loss.smooth_evaluation": True,
        "aux_weight": 0.4,
        "ema.decay": 0.9999,
        "ema.num_updates": True,
        "clip_norm": 0.0,
        "epochs": 35,
        "checkpoint.every_steps": 1251,
        "log.format": "tf",
        "expects.percent": 75.6,
    },
    "resnet50_thor_imagenet": {
        "data.global_batch": 256,
        "optimizer.lr": 0.045,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 5e-4,
        "optimizer.damping_init": 0.03,
        "optimizer.damping_decay": 0.87,
        "optimizer.frequency": 834,
        "schedule.end_epoch": 70,
        "schedule.power": 6,
        "schedule.halve_at": (39, 40),
        "loss.label_smoothing": 0.1,
        "epochs": 42,
        "log.format": "mindspore",
    },
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_recipe_has_the_settings_of_its_reference(name: str) -> None:
    recipe = load(name).recipe
    assert {path: read(recipe, path) for path in REFERENCES[name]} == REFERENCES[name]


@pytest.mark.parametrize(("depth", "parent"), [(18, 50), (101, 50), (152, 50)])
def test_other_depths_differ_in_nothing_but_the_network(depth: int, parent: int) -> None:
    small, known = load(f"resnet{depth}_imagenet").recipe, load(f"resnet{parent}_imagenet").recipe
    differing = [path for path in paths(small) if read(small, path) != read(known, path)]
    assert differing == ["model", "expects"]
    assert small.model == f"resnet{depth}_v1"


def test_thor_and_sgd_are_compared_on_the_same_network_and_images() -> None:
    thor, sgd = load("resnet50_thor_cifar10").recipe, load("resnet50_cifar10").recipe
    assert (thor.model, thor.data, thor.loss, thor.seed) == (sgd.model, sgd.data, sgd.loss, sgd.seed)
    assert thor.epochs == sgd.epochs / 2


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("resnet50_imagenet", 512.0),
        ("resnet50_v15_imagenet", 256.0),
        ("resnext50_imagenet", 1024.0),
        ("resnext50_cifar10", 1024.0),
        ("resnet50_thor_imagenet", 128.0),
    ],
)
def test_fp16_has_the_fixed_scale_of_the_reference_and_nothing_else_is_scaled(name: str, scale: float) -> None:
    precision = load(name).recipe.precision
    assert (LossScale(precision, "fp16").value, LossScale(precision, "fp16").dynamic) == (scale, False)
    assert [LossScale(precision, word).value for word in ("fp32", "bf16")] == [1.0, 1.0]


def test_amoebanets_scale_starts_high_and_is_halved_after_two_overflows() -> None:
    scale = LossScale(load("amoebanet_d_imagenet").recipe.precision, "fp16")
    assert (scale.value, scale.dynamic) == (2.0**32, True)
    scale.update(finite=False)
    assert scale.value == 2.0**32
    scale.update(finite=False)
    assert scale.value == 2.0**31
    for _ in range(1000):
        scale.update(finite=True)
    assert scale.value == 2.0**32


def sections() -> dict[str, list[str]]:
    """Recipe -> the last cells of the rows of its table in docs/flags.md."""
    found: dict[str, list[str]] = {}
    for part in PAGE.split("\n## ")[1:]:
        recipe = part.split(":")[0]
        if recipe in names():
            rows = [line.split("|")[-2].strip() for line in part.splitlines() if line.startswith("|")]
            found[recipe] = rows[2:]
    return found


def test_every_reference_has_its_table_of_flags() -> None:
    assert set(REFERENCES) - {"resnet50_lars_imagenet"} <= set(sections())
    assert all(len(rows) >= 9 for rows in sections().values())


@pytest.mark.parametrize("name", sections())
def test_every_field_in_the_page_of_flags_exists(name: str) -> None:
    known = paths(load(name).recipe)
    words = [word for cell in sections()[name] for word in re.findall(r"`([a-z_]+(?:\.[a-z_0-9]+)*)`", cell)]
    words = [word for word in words if word not in names() and word not in ("start", "recipe.json")]
    assert len(words) >= 7
    assert [word for word in words if word not in known] == []


def test_every_flag_in_the_page_of_flags_exists() -> None:
    flags = set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--set"}
    assert len(flags) > 15
    shown = ""
    for verb in ("train", "migrate", "launch"):
        command = [sys.executable, "-m", "viaduct", verb, "--help"]
        shown += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [flag for flag in sorted(flags) if flag not in shown] == []


def test_the_batches_and_rates_in_the_page_of_flags_are_those_of_the_recipes() -> None:
    rows = re.findall(r"^\| `(\w+)`[^|]*\| (\d+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 7
    for name, batch, rate in rows:
        recipe = load(name).recipe
        assert (recipe.data.global_batch, recipe.optimizer.lr) == (int(batch), float(rate))
