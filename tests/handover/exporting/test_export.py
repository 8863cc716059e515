"""Exported files: the same probabilities, a card that says what they are, and nothing where something went wrong."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from command import started, viaduct
from viaduct.atomic_files import name_temporary
from viaduct.data.png import encode_png
from viaduct.errors import BadValue
from viaduct.handover.classifier import Classifier, open_run
from viaduct.handover.exporting import safetensors
from viaduct.handover.exporting.checking import WrongResult
from viaduct.handover.exporting.export import Exported, export
from viaduct.handover.exporting.graph import CannotExport
from viaduct.handover.exporting.request import Form, Input, Request


@pytest.fixture(scope="module")
def classifier(shapes_run: Path) -> Classifier:
    return open_run(shapes_run)


def make(classifier: Classifier, out: Path, form: Form = "pt2", takes: Input = "pixels", **more: Any) -> Exported:
    return export(classifier, Request(form=form, out=out, input=takes, check_count=9, **more))


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_pt2_file_takes_pixels_in_batches_of_any_size(classifier: Classifier, tmp_path: Path) -> None:
    done = make(classifier, tmp_path / "model.pt2")
    assert done.outcome is not None
    assert (done.outcome.images, done.outcome.equal, done.outcome.origin) == (9, 9, "the run's validation images")
    module = torch.export.load(str(tmp_path / "model.pt2")).module()
    images = torch.from_numpy(classifier.recipe.data.load(None).validation.images[:5])  # type: ignore[attr-defined]
    inputs = np.stack([classifier.prepare(encode_png(image.numpy())) for image in images])
    with torch.inference_mode():
        expected = torch.softmax(classifier.network(torch.from_numpy(inputs).permute(0, 3, 1, 2)), 1)
        for count in (1, 5):
            probabilities, classes = module(images[:count])
            assert torch.allclose(probabilities, expected[:count], atol=1e-5)
            assert torch.equal(classes, expected[:count].argmax(1))


def test_what_a_killed_export_left_is_removed_by_the_next_one(classifier: Classifier, tmp_path: Path) -> None:
    out, ended = tmp_path / "model.safetensors", subprocess.Popen(["true"])
    ended.wait()
    leftover = tmp_path / name_temporary(out).name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    make(classifier, out, "safetensors", "tensor")
    assert list_names(tmp_path) == ["model.safetensors", "model.safetensors.json", "model.safetensors.md"]


def test_a_card_says_what_the_file_is(classifier: Classifier, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model.pt2"
    make(classifier, out, batch=4, fold=True, license="CC-BY-4.0")
    assert list_names(out.parent) == ["model.pt2", "model.pt2.json", "model.pt2.md"]
    card = json.loads((out.parent / "model.pt2.json").read_text())
    assert card["inputs"] == [{"name": "pixels", "shape": [4, 32, 32, 3], "dtype": "uint8"}]
    assert [port["name"] for port in card["outputs"]] == ["probabilities", "classes"]
    assert card["labels"] == list(classifier.labels)
    ((name, checksum),) = card["weights_sha256"].items()
    assert name == "shapes/checkpoints/step-12/model.safetensors"
    assert checksum == hashlib.sha256((classifier.weights / "model.safetensors").read_bytes()).hexdigest()
    assert card["accuracy"]["top1"] == classifier.accuracy["top1"]  # type: ignore[index]
    assert (card["license"], card["step"], card["batch_norms_folded"]) == ("CC-BY-4.0", 12, True)
    assert card["check"]["equal_top1"] == 9
    assert card["preprocessing"]["mean"] == [pytest.approx(108.375)] * 3
    page = (out.parent / "model.pt2.md").read_text()
    assert card["sha256"] in page
    assert f"{name}, SHA-256 `{checksum}`" in page
    assert "9. stripes" in page


def test_half_precision_computes_in_it_and_keeps_float32_outside(classifier: Classifier, tmp_path: Path) -> None:
    make(classifier, tmp_path / "model.pt2", takes="tensor", precision="fp16", fold=True)
    program = torch.export.load(str(tmp_path / "model.pt2"))
    assert {weight.dtype for weight in program.state_dict.values()} == {torch.float16}
    probabilities, _ = program.module()(torch.zeros(1, 3, 32, 32))
    assert probabilities.dtype == torch.float32


def test_safetensors_can_be_used_with_the_recipe(shapes_run: Path, classifier: Classifier, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    done = make(classifier, out, "safetensors", "tensor")
    assert done.outcome is not None
    assert done.outcome.largest <= 1e-6
    with safe_open(out, "pt") as file:
        assert file.metadata()["model"] == "resnet20_quick"
    again = viaduct("export", out, "--recipe", "shapes_taster", "--to", "pt2", "--out", tmp_path / "again.pt2")
    assert again.returncode == 0, again.stderr
    assert "built-in shapes" in again.stdout
    card = json.loads((tmp_path / "again.pt2.json").read_text())
    assert card["weights_sha256"] == {out.name: hashlib.sha256(out.read_bytes()).hexdigest()}
    assert card["accuracy"] == "not recorded"


class Wrong(safetensors.Rebuilt):
    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return probabilities[:, ::-1].copy(), 9 - classes


class SlightlyWrong(safetensors.Rebuilt):
    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return probabilities + np.float32(0.01), classes


class WrongInFaintClasses(safetensors.Rebuilt):
    """Differs only where probabilities are too small to be seen."""

    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return np.where(probabilities < 1e-5, probabilities * 2, probabilities), classes


class NotANumber(safetensors.Rebuilt):
    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return np.full_like(probabilities, np.nan), np.zeros_like(classes)


class Breaks(safetensors.Rebuilt):
    def run(self, batch: Any) -> Any:
        raise RuntimeError("no kernel for this operator")


@pytest.mark.parametrize(
    ("runner", "said"),
    [
        (Wrong, "does not compute what PyTorch does"),
        (SlightlyWrong, "does not compute what PyTorch does"),
        (WrongInFaintClasses, "does not compute what PyTorch does"),
        (NotANumber, "does not compute what PyTorch does"),
        (Breaks, "cannot run the exported graph: RuntimeError: no kernel for this operator"),
    ],
)
def test_a_file_that_computes_something_else_gets_no_name(
    runner: type[safetensors.Rebuilt],
    said: str,
    classifier: Classifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if runner is WrongInFaintClasses:
        network = deepcopy(classifier.network)
        network.head.weight.data.mul_(100)  # type: ignore[union-attr]
        classifier = replace(classifier, network=network)
    monkeypatch.setattr(safetensors, "Rebuilt", runner)
    with pytest.raises(WrongResult, match=said):
        make(classifier, tmp_path / "model.safetensors", "safetensors", "tensor")
    assert list_names(tmp_path) == []


def test_what_is_replaced_stays_whole_until_the_new_file_is_checked(
    classifier: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model.safetensors"
    out.write_bytes(b"old")
    monkeypatch.setattr(safetensors, "Rebuilt", Wrong)
    with pytest.raises(WrongResult):
        make(classifier, out, "safetensors", "tensor", force=True)
    assert out.read_bytes() == b"old"
    monkeypatch.undo()
    make(classifier, out, "safetensors", "tensor", force=True)
    assert out.stat().st_size > 100_000


def test_without_a_check_the_card_says_so(classifier: Classifier, tmp_path: Path) -> None:
    done = make(classifier, tmp_path / "model.safetensors", "safetensors", "tensor", check=False)
    assert done.outcome is None
    assert json.loads(done.cards[0].read_text())["check"] == "not checked"
    assert "| check | not checked |" in done.cards[1].read_text()


def test_a_folder_of_images_can_be_checked_with(classifier: Classifier, tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "inner"
    folder.mkdir(parents=True)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (40 + number, 50, 3), dtype=np.uint8)
        (folder / f"{number}.png").write_bytes(encode_png(pixels))
    done = make(classifier, tmp_path / "model.pt2", check_images=tmp_path / "photos")
    assert done.outcome is not None
    assert (done.outcome.images, done.outcome.equal) == (3, 3)


class DependsOnValues(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :10] * (2 if float(images.sum()) > 0 else 1)


class TwoOutputs(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images.flatten(1)[:, :10], images


class Fails(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        raise RuntimeError("no such weight")


@pytest.mark.parametrize(
    ("network", "error", "said"),
    [
        (DependsOnValues, CannotExport, "torch.export cannot trace the network"),
        (TwoOutputs, BadValue, "gives a tuple for 2 images"),
        (Fails, BadValue, "no such weight"),
    ],
)
def test_a_network_of_ones_own_that_has_no_graph_is_explained(
    network: Callable[[], nn.Module], error: type[Exception], said: str, classifier: Classifier, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        make(replace(classifier, network=network()), tmp_path / "model.pt2")
    assert list_names(tmp_path) == []


def test_an_interrupted_export_says_so_and_leaves_nothing(shapes_run: Path, tmp_path: Path) -> None:
    words = ["export", str(shapes_run), "--to", "pt2", "--out", str(tmp_path / "model.pt2")]
    with started(interrupt_writing, words) as command:
        _, talk = command.communicate(120)
        ended = command.returncode
    assert ended == 130, talk
    assert f"viaduct export: interrupted; {tmp_path / 'model.pt2'} was not written." in talk
    assert "Traceback" not in talk
    assert list_names(tmp_path) == []


def interrupt_writing(words: list[str]) -> None:
    """Run a command in which Ctrl-C comes while the file is written."""
    from viaduct import cli
    from viaduct.handover.exporting import pt2

    def write(*arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    pt2.write = write  # type: ignore[assignment]
    sys.argv = ["viaduct", *words]
    cli.main()
