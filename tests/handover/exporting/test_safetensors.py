"""Weights exported alone: usable with their recipe."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors import safe_open

from forked_viaduct import viaduct
from handover.exporting.export_file import export_file
from viaduct.handover.classifier import Classifier


def test_safetensors_can_be_used_with_the_recipe(shapes_run: Path, classifier: Classifier, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    done = export_file(classifier, out, "safetensors", "tensor")
    assert done.check_result is not None
    assert done.check_result.largest_difference <= 1e-6
    with safe_open(out, "pt") as file:
        assert file.metadata()["model"] == "resnet20_quick"
    again = viaduct("export", out, "--recipe", "shapes_taster", "--to", "pt2", "--out", tmp_path / "again.pt2")
    assert again.returncode == 0, again.stderr
    assert "built-in shapes" in again.stdout
    card = json.loads((tmp_path / "again.pt2.json").read_text())
    assert card["weights_sha256"] == {out.name: hashlib.sha256(out.read_bytes()).hexdigest()}
    assert card["accuracy"] == "not recorded"
