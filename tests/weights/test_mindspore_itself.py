"""MindSpore reads what we write, and we read what MindSpore writes, with the same logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from forked_viaduct import viaduct
from mindspore_python import run_mindspore
from viaduct import models
from viaduct.errors import BadData
from viaduct.weights.mindspore import MindsporeFile
from viaduct.weights.stored import open_weights

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "references" / "mindspore_resnet.py"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    run_mindspore(SCRIPT, "save", folder)
    return folder


@pytest.mark.parametrize(("kind", "name"), [("zoo", "resnet50_book"), ("mindcv", "resnet50_v1")])
def test_weights_are_exchanged_with_mindspore_and_compute_the_same(
    kind: str, name: str, theirs: Path, tmp_path: Path
) -> None:
    known = np.load(theirs / f"{kind}.npz")
    done = viaduct("weights", "import", str(theirs / f"{kind}.ckpt"), "--out", str(tmp_path / "w.safetensors"))
    assert (done.returncode, done.stdout.partition(": ")[2].split(",")[0]) == (0, name), done.stderr
    model = models.build(name, 12).eval()
    model.load_state_dict(load_file(tmp_path / "w.safetensors"))
    with torch.no_grad():
        logits = model(torch.from_numpy(known["images"])).numpy()
    assert np.abs(logits - known["logits"]).max() < 1e-4 * np.abs(known["logits"]).max()
    out = tmp_path / "back.ckpt"
    done = viaduct("weights", "export", str(tmp_path / "w.safetensors"), "--format", "mindspore", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    run_mindspore(SCRIPT, "load", out, kind, theirs)
    assert np.array_equal(np.load(out.with_suffix(".npy")), known["logits"])


def test_every_type_of_mindspore_is_read(theirs: Path) -> None:
    with MindsporeFile(theirs / "types.ckpt") as file:
        for name, parameter in file.entries.items():
            if parameter.dtype in ("str", "bool"):
                continue
            expected = torch.tensor(7) if name == "scalar" else torch.arange(4 if name == "bfloat16" else 6)
            assert (name == parameter.dtype) or name == "scalar"
            assert torch.equal(file.read(name).flatten().double(), expected.flatten().double())
        assert file.read("bool").tolist() == [True, False]
        assert file.entries["text"].dtype == "str"


def test_slices_are_joined_and_ciphers_are_named(theirs: Path) -> None:
    with MindsporeFile(theirs / "sliced.ckpt") as file:
        assert len(file.entries["large"].spans) > 1
        assert torch.equal(file.read("large"), torch.arange(5000.0).reshape(50, 100))
    for mode in ("AES-GCM", "AES-CBC"):
        with (
            pytest.raises(BadData, match=rf"encrypted MindSpore checkpoint \({mode}\)"),
            open_weights(theirs / f"{mode}.ckpt"),
        ):
            pass
