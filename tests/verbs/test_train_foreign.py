"""`viaduct train --model SOURCE:NAME`: from the command to an evaluated run, with the user's images."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from forked_viaduct import viaduct
from viaduct import models

BASE = ("--device", "cpu", "--batch", "4", "--precision", "fp32", "--set", "clip_norm=0")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of six small images, and two of each to validate."""
    noise = np.random.default_rng(1)
    for split, count in (("train", 6), ("val", 2)):
        for label in ("cat", "dog"):
            folder = tmp_path / "photos" / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                file = io.BytesIO()
                Image.fromarray(noise.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(file, "JPEG")
                (folder / f"{number}.jpg").write_bytes(file.getvalue())
    return tmp_path / "photos"


@pytest.fixture(autouse=True)
def on_the_path(stand_in_packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the commands' own processes find the packages."""
    monkeypatch.setenv("PYTHONPATH", f"{stand_in_packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(tmp_path)


def test_a_network_is_fine_tuned_from_published_weights_and_evaluated(photos: Path, tmp_path: Path) -> None:
    published = models.build("timm:tiny_vit", classes=1000).state_dict()
    save_file(published, tmp_path / "published.safetensors")
    words = ("train", "--model", "timm:tiny_vit", "--data", str(photos), "--init", "published.safetensors", *BASE)
    uninterrupted = viaduct(*words, "--run", "whole", "--steps", "4")
    assert uninterrupted.returncode == 0, uninterrupted.stderr
    assert "with the recipe finetune" in uninterrupted.stderr
    assert "begins anew: 1,000 classes there, 2 here" in uninterrupted.stderr
    stored = json.loads((tmp_path / "whole" / "recipe.json").read_text())["recipe"]
    assert stored["model"] == "timm:tiny_vit"
    assert (stored["data"]["size"], stored["data"]["classes"]) == (32, 2)
    assert stored["data"]["preprocess"] == "source:bicubic:0.9:0.5,0.5,0.5:0.5,0.25,0.5"
    evaluated = viaduct("evaluate", "whole", "--device", "cpu")
    assert evaluated.returncode == 0, evaluated.stderr


def test_an_unknown_network_is_a_message_and_nothing_is_written(photos: Path, tmp_path: Path) -> None:
    failed = viaduct("train", "--model", "timm:tiny_vti", "--data", str(photos), *BASE, "--run", "r")
    assert failed.returncode == 2
    assert "Closest is 'tiny_vit'" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "r").exists()


def test_networks_of_a_source_are_listed() -> None:
    listed = viaduct("models", "--source", "timm", "tiny_v*")
    assert listed.stdout.split() == ["timm:tiny_vit", "timm:tiny_vit_32"]


OWN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = nn.Linear(3, classes)

    def forward(self, x):
        return RESULT


def make(classes):
    return Net(classes)


def leave(classes):
    raise SystemExit(0)
"""
GOOD = "self.fc(torch.relu(x.mean((2, 3))))"
SHORT = (*BASE, "--set", "data.size=32")


def write_module(folder: Path, result: str) -> None:
    (folder / "own_network.py").write_text(OWN.replace("RESULT", result))


@pytest.mark.parametrize(
    ("model", "result", "fragments"),
    [
        ("timm:tiny_vit", GOOD, ["fails", "timm:tiny_vit is made for images of 32 pixels: --set data.size=32"]),
        ("own_network:make", '{"logits": self.fc(x.mean((2, 3)))}', ["the first step", "model (own_network:make)"]),
        ("own_network:leave", GOOD, ["own_network:leave fails: SystemExit"]),
        ("timm:tiny_vit.nosuch", GOOD, ["no weights of timm's tiny_vit called 'nosuch'", "first_in1k"]),
    ],
)
def test_a_network_that_fails_is_a_message(
    model: str, result: str, fragments: list[str], photos: Path, tmp_path: Path
) -> None:
    write_module(tmp_path, result)
    size = ("--set", "data.size=7") if model.startswith("timm") else ("--set", "data.size=32")
    failed = viaduct("train", "--model", model, "--data", str(photos), *BASE, *size, "--steps", "1", "--run", "r")
    assert failed.returncode == 2, failed.stderr
    assert "Traceback" not in failed.stderr
    for fragment in fragments:
        assert fragment in failed.stderr


def test_a_changed_module_is_not_continued_and_evaluated_with_a_note(photos: Path, tmp_path: Path) -> None:
    write_module(tmp_path, GOOD)
    words = ("train", "--model", "own_network:make", "--data", str(photos), *SHORT, "--run", "r")
    assert viaduct(*words, "--steps", "2").returncode == 0
    unchanged = viaduct("evaluate", "r", "--device", "cpu")
    assert "has changed" not in unchanged.stderr
    write_module(tmp_path, GOOD.replace("relu", "tanh"))
    evaluated = viaduct("evaluate", "r", "--device", "cpu")
    assert evaluated.returncode == 0
    assert "own_network.py has changed since this run was begun" in evaluated.stderr
    continued = viaduct(*words, "--steps", "4")
    assert continued.returncode == 2
    assert "own_network.py has changed since 'r' was begun with its network" in continued.stderr


def test_weights_that_are_not_finite_are_neither_begun_with_nor_scored(photos: Path, tmp_path: Path) -> None:
    state = models.build("timm:tiny_vit", classes=2).state_dict()
    state["head.fc.bias"][0] = float("nan")
    save_file(state, tmp_path / "broken.safetensors")
    recipe = ("--data", str(photos), "--set", "model=timm:tiny_vit", "--set", "data.size=32", "--set", "data.classes=2")
    begin = ("train", "--model", "timm:tiny_vit", "--data", str(photos), *SHORT, "--run", "r")
    for words in (
        (*begin, "--init", "broken.safetensors"),
        ("evaluate", "broken.safetensors", "--recipe", "finetune", *recipe, "--device", "cpu"),
    ):
        refused = viaduct(*words)
        assert refused.returncode == 2, refused.stderr
        assert "hold values that are not finite: head.fc.bias" in refused.stderr
