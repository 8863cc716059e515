"""Exported files: the same probabilities, a card that says what they are, and nothing where something went wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forked_viaduct import start_command
from handover.exporting.export_file import export_file, list_names
from viaduct.atomic_files import name_temporary
from viaduct.data.png import encode_png
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting import safetensors
from viaduct.handover.exporting.checking import WrongResult


def test_leftovers_of_a_killed_export_are_removed_by_the_next_one(classifier: Classifier, tmp_path: Path) -> None:
    out, ended = tmp_path / "model.safetensors", subprocess.Popen(["true"])
    ended.wait()
    leftover = tmp_path / name_temporary(out).name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    export_file(classifier, out, "safetensors", "tensor")
    assert list_names(tmp_path) == ["model.safetensors", "model.safetensors.json", "model.safetensors.md"]


class Wrong(safetensors.RebuiltNetwork):
    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return probabilities[:, ::-1].copy(), 9 - classes


class SlightlyWrong(safetensors.RebuiltNetwork):
    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return probabilities + np.float32(0.01), classes


class WrongInFaintClasses(safetensors.RebuiltNetwork):
    """Differs only where probabilities are too small to be seen."""

    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return np.where(probabilities < 1e-5, probabilities * 2, probabilities), classes


class NotANumber(safetensors.RebuiltNetwork):
    def run(self, batch: Any) -> Any:
        probabilities, classes = super().run(batch)
        return np.full_like(probabilities, np.nan), np.zeros_like(classes)


class Breaks(safetensors.RebuiltNetwork):
    def run(self, batch: Any) -> Any:
        raise RuntimeError("no kernel for this operator")


@pytest.mark.parametrize(
    ("runner", "message"),
    [
        (Wrong, "does not compute what PyTorch does"),
        (SlightlyWrong, "does not compute what PyTorch does"),
        (WrongInFaintClasses, "does not compute what PyTorch does"),
        (NotANumber, "does not compute what PyTorch does"),
        (Breaks, "cannot run the exported graph: RuntimeError: no kernel for this operator"),
    ],
)
def test_a_file_with_wrong_results_is_not_written(
    runner: type[safetensors.RebuiltNetwork],
    message: str,
    classifier: Classifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if runner is WrongInFaintClasses:
        network = deepcopy(classifier.network)
        network.head.weight.data.mul_(100)  # type: ignore[union-attr]
        classifier = replace(classifier, network=network)
    monkeypatch.setattr(safetensors, "open_runner", runner)
    with pytest.raises(WrongResult, match=message):
        export_file(classifier, tmp_path / "model.safetensors", "safetensors", "tensor")
    assert list_names(tmp_path) == []


def test_a_replaced_file_stays_until_the_new_one_is_checked(
    classifier: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model.safetensors"
    out.write_bytes(b"old")
    monkeypatch.setattr(safetensors, "open_runner", Wrong)
    with pytest.raises(WrongResult):
        export_file(classifier, out, "safetensors", "tensor", force=True)
    assert out.read_bytes() == b"old"
    monkeypatch.undo()
    export_file(classifier, out, "safetensors", "tensor", force=True)
    assert out.stat().st_size > 100_000


def test_a_folder_of_images_can_be_checked_with(classifier: Classifier, tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "inner"
    folder.mkdir(parents=True)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (40 + number, 50, 3), dtype=np.uint8)
        (folder / f"{number}.png").write_bytes(encode_png(pixels))
    done = export_file(classifier, tmp_path / "model.pt2", check_images=tmp_path / "photos")
    assert done.check_result is not None
    assert (done.check_result.images, done.check_result.same_top1) == (3, 3)


def test_an_interrupted_export_says_so_and_leaves_nothing(shapes_run: Path, tmp_path: Path) -> None:
    words = ["export", str(shapes_run), "--to", "pt2", "--out", str(tmp_path / "model.pt2")]
    with start_command(interrupt_writing, words) as command:
        _, stderr = command.communicate(120)
        ended = command.returncode
    assert ended == 130, stderr
    assert f"viaduct export: interrupted; {tmp_path / 'model.pt2'} was not written." in stderr
    assert "Traceback" not in stderr
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
