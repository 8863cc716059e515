"""Weights of any kind, told by their content, and checkpoints of runs that are damaged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from viaduct import models
from viaduct.errors import BadData, BadRun
from viaduct.weights import mindspore_names
from viaduct.weights.bundle import write_bundle
from viaduct.weights.exporting import import_file
from viaduct.weights.mindspore import is_mindspore_file
from viaduct.weights.stored import has_torch_names, open_weights, parse_number, parse_options
from weights.mindspore_files import checkpoint
from weights.zoo_resnet import build, in_zoo, same


def test_three_kinds_of_ckpt_are_recognised_by_their_content(tmp_path: Path) -> None:

    (tmp_path / "ours.ckpt").write_bytes(checkpoint(in_zoo(build())))
    torch.save({"state_dict": build().state_dict(), "epoch": 3}, tmp_path / "lightning.ckpt")
    torch.save(build().state_dict(), tmp_path / "old.ckpt", _use_new_zipfile_serialization=False)
    write_bundle(tmp_path / "model.ckpt", {"x": torch.ones(2)})
    (tmp_path / "model.ckpt").write_bytes(checkpoint(in_zoo(build())))  # beside an index: TensorFlow's is meant
    (tmp_path / "text.ckpt").write_text("\n\nweights\n")
    kinds = {}
    for name in ("ours", "lightning", "old", "model"):
        with open_weights(tmp_path / f"{name}.ckpt") as stored:
            kinds[name] = stored.kind
    assert kinds == {
        "ours": "MindSpore checkpoint",
        "lightning": "PyTorch file",
        "old": "PyTorch file",
        "model": "TensorFlow checkpoint",
    }
    assert not is_mindspore_file(tmp_path / "text.ckpt")
    with pytest.raises(BadData, match="holds no weights that can be read"), open_weights(tmp_path / "text.ckpt"):
        pass


def test_safetensors_of_mindspore_are_renamed_too(tmp_path: Path) -> None:
    model = models.build("resnet50_book", 3)
    links = mindspore_names.list_layouts(model)["zoo"]
    state = model.state_dict()
    theirs = {link.variables[0]: state[link.tensor] for link in links}
    theirs["step_num"] = torch.tensor(90)
    save_file(theirs, tmp_path / "theirs.safetensors", {"format": "ms"})
    with open_weights(tmp_path / "theirs.safetensors") as stored:
        assert (stored.kind, stored.metadata.step) == ("MindSpore checkpoint", 90)
    done = import_file(tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors")
    assert (done.model, done.classes, done.recognised) == ("resnet50_book", 3, True)
    assert same(load_file(tmp_path / "ours.safetensors"), state)


@pytest.mark.parametrize(
    "options", ["{", "[1]", '{"cells": 1e12}', '{"cells": {"a": 1}}', '{"cells": null}', '{"cells": [[1]]}']
)
def test_options_beyond_the_limits_are_ignored(options: str) -> None:
    assert parse_options(options) == {}


def write(path: Path, held: Any) -> Path:
    torch.save(held, path)
    return path


def test_only_files_with_pytorchs_names_are_read_so(tmp_path: Path) -> None:
    assert not has_torch_names(tmp_path)
    assert has_torch_names(write(tmp_path / "lightning.ckpt", {"state_dict": {"a": torch.zeros(1)}}))
    save_file({"bn.moving_mean": torch.zeros(1)}, tmp_path / "mindspore.safetensors")
    assert not has_torch_names(tmp_path / "mindspore.safetensors")


def write_checkpoint(run: Path, step: int, **tensors: torch.Tensor) -> Path:
    """A checkpoint of a run, as far as it is read here."""
    folder = run / "checkpoints" / f"step-{step}"
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    files = {"model.safetensors": {"sha256": digest, "size": (folder / "model.safetensors").stat().st_size}}
    (folder / "manifest.json").write_text(json.dumps({"step": step, "files": files, "model": "resnet20_cifar"}))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 5 and 10."""
    run = tmp_path / "run"
    for step in (5, 10):
        write_checkpoint(run, step, w=torch.full((2,), float(step)))
    recipe = {"model": "resnet20_cifar", "data": {"classes": 7, "global_batch": 8}, "precision": {"compute": "bf16"}}
    (run / "recipe.json").write_text(json.dumps({"recipe": recipe}))
    return run


def test_a_damaged_checkpoint_is_skipped_with_a_warning_and_the_one_before_is_read(run: Path) -> None:
    file = run / "checkpoints" / "step-10" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with open_weights(run) as stored:
        assert stored.metadata.step == 5
        assert stored.read("w").tolist() == [5.0, 5.0]
        (warning,) = stored.warnings
    assert "step-10/model.safetensors does not match its checksum" in warning
    with pytest.raises(BadRun, match="a damaged checkpoint"), open_weights(file.parent):
        pass
    (run / "checkpoints" / "step-5" / "manifest.json").write_text("{")
    with pytest.raises(BadRun, match="has no intact checkpoint"), open_weights(run):
        pass


def test_a_run_is_read_at_its_newest_checkpoint_with_what_its_recipe_says(run: Path) -> None:
    with open_weights(run) as stored:
        assert (stored.kind, stored.shapes, stored.warnings) == ("run", {"w": (2,)}, ())
        assert stored.read("w").tolist() == [10.0, 10.0]
        facts = stored.metadata
    assert (facts.model, facts.classes, facts.step) == ("resnet20_cifar", 7, 10)
    assert facts.training == {"global_batch": "8", "precision": "bf16"}
    with pytest.raises(BadRun, match="holds no averaged weights"), open_weights(run, ema=True):
        pass


def test_a_folder_without_weights_says_what_was_looked_for(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadData, match=r"no recipe\.json of a run, no \.index"), open_weights(tmp_path / "empty"):
        pass
    (run / "recipe.json").unlink()
    with pytest.raises(BadData, match=r"looks like a run[\s\S]*step-N"), open_weights(run):
        pass


@pytest.mark.parametrize("text", [None, "", "-1", "1.5", "1e3", "9" * 20, "x"])
def test_a_number_in_metadata_is_digits_or_nothing(text: str | None) -> None:
    assert parse_number(text) is None
    assert parse_number("601000") == 601000


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(100)}, tmp_path / "w.safetensors")
    (tmp_path / "w.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:-9])
    with pytest.raises(BadData, match=r"w\.safetensors is not a complete"), open_weights(tmp_path / "w.safetensors"):
        pass
