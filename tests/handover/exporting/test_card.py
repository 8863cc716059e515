"""The model card beside an exported file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from handover.exporting.export_file import export_file, list_names
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.card import describe_check, describe_check_in_words
from viaduct.handover.exporting.checking import CheckResult


def test_a_card_says_what_the_file_is(classifier: Classifier, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model.pt2"
    export_file(classifier, out, batch=4, fold=True, license="CC-BY-4.0")
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


@pytest.mark.parametrize("images_differ", [True, False])
def test_a_weak_check_is_called_weak(images_differ: bool) -> None:
    check_result = CheckResult("onnxruntime", 4, "photos", 1e-7, 1e-6, 4, 0, (1e-5, 2e-3), images_differ)
    assert ("shows little" in describe_check_in_words(describe_check(check_result))) is not images_differ


def test_without_a_check_the_card_says_so(classifier: Classifier, tmp_path: Path) -> None:
    done = export_file(classifier, tmp_path / "model.safetensors", "safetensors", "tensor", check=False)
    assert done.check_result is None
    assert json.loads(done.cards[0].read_text())["check"] == "not checked"
    assert "| check | not checked |" in done.cards[1].read_text()
