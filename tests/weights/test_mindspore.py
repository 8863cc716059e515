"""MindSpore checkpoints without MindSpore: what is in them, what they are of, and damage."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from data.mutations import mutate
from viaduct.errors import BadData, BadValue, ViaductError
from viaduct.weights.exporting import export_mindspore
from viaduct.weights.importing import read_values
from viaduct.weights.mindspore import MindsporeFile, encode_parameter, write_mindspore
from viaduct.weights.stored import open_weights
from weights.mindspore_files import TYPES, checkpoint, encode_field, message, value, with_checksum
from weights.zoo_resnet import SMALL, build, in_zoo, same

# The format


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    array = (np.arange(12).reshape(3, 4) % 5).astype(kind)
    (tmp_path / "w.ckpt").write_bytes(value("before", np.zeros(3, np.float32)) + value("x", array))
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        read = file.read("x")
        assert (file.entries["x"].dtype, tuple(read.shape)) == (kind, (3, 4))
        assert np.array_equal(read.numpy(), array)


def test_bfloat16_is_read_bit_for_bit(tmp_path: Path) -> None:
    tensor = torch.tensor([1.0, -2.5, 3e38, 1e-40]).bfloat16()
    bits = tensor.view(torch.int16).numpy().tobytes()
    (tmp_path / "w.ckpt").write_bytes(message("x", "BFloat16", (4,), bits))
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        assert torch.equal(file.read("x"), tensor)


def test_a_parameter_in_slices_is_joined(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    content = array.tobytes()
    parts = [message("x", "Float32", (7, 5), content[begin : begin + 33]) for begin in range(0, len(content), 33)]
    (tmp_path / "w.ckpt").write_bytes(b"".join(parts) + value("y", array))
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        assert list(file.entries) == ["x", "y"]
        assert np.array_equal(file.read("x").numpy(), array)
    assert b"".join(encode_parameter("x", torch.from_numpy(array), slice_size=33)) == b"".join(parts)


def test_scalars_of_older_and_newer_versions_are_read(tmp_path: Path) -> None:
    old = message("old", "Int64", (0,), (7).to_bytes(8, "little"))
    packed = message("packed", "Float32", (2, 1), np.ones(2, np.float32).tobytes(), packed=True)
    text = message("text", "str", (0,), "words".encode("utf-32-le"))
    (tmp_path / "w.ckpt").write_bytes(value("new", np.array(5)) + old + packed + text)
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        assert (file.read_integer("new"), file.read_integer("old")) == (5, 7)
        assert file.read("packed").shape == (2, 1)
        with pytest.raises(BadData, match="text holds str values, which cannot be read"):
            file.read("text")


def test_what_is_written_is_what_another_reader_expects(tmp_path: Path) -> None:
    arrays = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.array([3], np.int32)}
    write_mindspore(tmp_path / "w.ckpt", {name: torch.from_numpy(array) for name, array in arrays.items()})
    assert (tmp_path / "w.ckpt").read_bytes() == checkpoint(arrays)
    with pytest.raises(BadValue, match="complex64"):
        write_mindspore(tmp_path / "c.ckpt", {"x": torch.zeros(1, dtype=torch.complex64)})
    assert not (tmp_path / "c.ckpt").exists()


def test_a_checksum_is_compared(tmp_path: Path) -> None:
    content = bytearray(with_checksum(checkpoint({"x": np.ones(100, np.float32)})))
    (tmp_path / "w.ckpt").write_bytes(content)
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        assert file.read("x").sum() == 100
    content[100] ^= 1
    (tmp_path / "w.ckpt").write_bytes(content)
    with MindsporeFile(tmp_path / "w.ckpt") as file, pytest.raises(BadData, match="does not match its checksum"):
        file.read("x")


# Damage


@pytest.mark.parametrize(
    ("content", "message_"),
    [
        (checkpoint({"x": np.ones(100, np.float32)})[:-1], "was cut short"),
        (checkpoint({"x": np.ones(100, np.float32)}) + b"\x0a", "was cut short"),
        (
            with_checksum(checkpoint({"x": np.ones(9, np.float32)}))[:-4],
            "damaged MindSpore checkpoint: there is no parameter at byte",
        ),
        (message("x", "Float32", (3, 4), bytes(44)), "has 44 bytes, expected 48"),
        (message("x", "Float32", (1 << 61, 1 << 61), bytes(44)), "its shape is impossible"),
        (
            message("x", "Float32", (2,), bytes(8)) + message("x", "Float16", (2,), bytes(4)),
            "different shapes or types",
        ),
        (checkpoint({"x": np.ones(1), "y": np.ones(1)}) + checkpoint({"x": np.ones(1)}), "x is there twice"),
        (value("x", np.ones(2)) + encode_field(1, encode_field(2, b"")), "it has no name"),
        ((0x7F3A5ED8).to_bytes(4, "little") + bytes(60), r"encrypted MindSpore checkpoint \(AES-GCM\)"),
        ((0x7F3A5ED9).to_bytes(4, "little") + bytes(60), r"encrypted MindSpore checkpoint \(AES-CBC\)"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(content: bytes, message_: str, tmp_path: Path) -> None:
    (tmp_path / "w.ckpt").write_bytes(content)
    with pytest.raises(BadData, match=message_), open_weights(tmp_path / "w.ckpt") as stored:
        stored.read("x")


def test_files_damaged_at_random_are_read_or_refused(tmp_path: Path) -> None:
    content = with_checksum(checkpoint({f"layer{n}.weight": np.ones((n + 1, 3), np.float32) for n in range(4)}))
    rng = random.Random(0)
    for _ in range(300):
        (tmp_path / "w.ckpt").write_bytes(mutate(content, rng) or b"\x0a")
        try:
            with MindsporeFile(tmp_path / "w.ckpt") as file:
                for name in file.entries:
                    file.read(name)
        except ViaductError:
            pass


# Telling files apart


# Names


def test_step_and_momentum_are_imported(tmp_path: Path) -> None:
    arrays = in_zoo(build())
    moments = {f"moments.{name}": array + 1 for name, array in arrays.items() if "moving" not in name}
    counters = {"learning_rate": np.float32([0.1]), "epoch_num": np.array(4), "step_num": np.array(2500)}
    (tmp_path / "w.ckpt").write_bytes(checkpoint({**arrays, **moments, **counters}))
    with MindsporeFile(tmp_path / "w.ckpt") as file:
        done = read_values(build(), file, slots=True).imported
    assert done.global_step == 2500
    assert set(done.slots) == {"Momentum"}
    head = torch.from_numpy(arrays["end_point.weight"]) + 1
    assert torch.equal(done.slots["Momentum"]["head.weight"], head)
    assert "moments.end_point.weight" in done.skipped


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    arrays = in_zoo(build())
    arrays.pop("layer2.0.bn1.gamma")
    (tmp_path / "w.ckpt").write_bytes(checkpoint(arrays))
    with MindsporeFile(tmp_path / "w.ckpt") as file, pytest.raises(BadData, match=r"lacks 1 of.*layer2\.0\.bn1\.gamma"):
        read_values(build(), file)


# In and out


@pytest.mark.parametrize(
    ("name", "layout", "expected"),
    [
        ("resnet50_book", "", "end_point.weight"),
        ("resnet50_v15", "", "layer4.0.down_sample_layer.1.gamma"),
        ("resnet50_v1", "", "layer4.0.down_sample.1.gamma"),
        ("resnet50_v1", "zoo", "layer4.0.down_sample_layer.1.gamma"),
        ("resnext50", "", "classifier.bias"),
        ("resnet18_v2", "", "stages.3.0.norm1.moving_mean"),
    ],
)
def test_exported_weights_are_imported_bit_for_bit(name: str, layout: str, expected: str, tmp_path: Path) -> None:
    options = {**SMALL, "filters": (32, 32, 64, 64), "stem_filters": 8} if name == "resnext50" else SMALL
    model = build(name, **options)
    own = tmp_path / "w.safetensors"
    save_file(model.state_dict(), own, {"model": name, "options": json.dumps(options), "global_step": "42"})
    with open_weights(own) as stored:
        written = export_mindspore(stored, tmp_path / "out.ckpt", layout=layout)
    assert written.step == 42
    assert bool(written.notes) == (name not in ("resnet50_book", "resnet50_v1") or layout == "zoo")
    with MindsporeFile(tmp_path / "out.ckpt") as file:
        assert expected in file
        assert file.step == 42
        values = read_values(build(name, **options), file)
    assert same(values.tensors, {n: t for n, t in model.state_dict().items() if "num_batches" not in n})


def test_a_layout_that_a_network_lacks_is_refused(tmp_path: Path) -> None:
    save_file(build("resnet18_v1").state_dict(), tmp_path / "w.safetensors", {"model": "resnet18_v1"})
    with open_weights(tmp_path / "w.safetensors") as stored, pytest.raises(BadValue, match="no layout 'zoo'"):
        export_mindspore(stored, tmp_path / "out.ckpt", layout="zoo")
