"""Files of torch.save: what is read of them, and what is refused without running code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from viaduct.errors import BadData
from viaduct.weights import torch_files
from viaduct.weights.torch_import import import_torch_file


def write(path: Path, held: Any) -> Path:
    torch.save(held, path)
    return path


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"x\.pth is empty"),
        (b"hello, these are no weights", r"not a file of torch\.save: it begins with b'hello, these are no "),
        (b"<!DOCTYPE html>", r"it begins with b'<!DOCTYPE html>'"),
        (torch_files.ZIP + b"half", "is cut short or damaged, or .* its 8 bytes"),
        (torch_files.LEGACY + b"half", "is cut short or damaged"),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(BadData, match=reason):
        import_torch_file(tmp_path / "x.pth", tmp_path / "x.safetensors")


def test_a_pickled_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pth", nn.Linear(2, 3))
    with pytest.raises(BadData, match=r"torch.nn.modules.linear.Linear, as a pickled model does"):
        import_torch_file(file, tmp_path / "x.safetensors", model="resnet50_v1")


TENSOR = torch.zeros(1)


def test_tensors_nested_too_deeply_or_in_lists_are_no_state_dict() -> None:
    deep: Any = {"w": TENSOR}
    for _ in range(torch_files.MAX_NESTING + 1):
        deep = {"model": deep}
    for content in (deep, [TENSOR], {"w": [TENSOR]}, {"epoch": 3}, TENSOR, None):
        assert torch_files.find_state(content, torch_files.HOLDERS) == {}


def test_a_file_of_weights_alone_has_no_averages() -> None:
    assert torch_files.find_state({"w": TENSOR}, torch_files.AVERAGES) == {}
    state = {"model": {"w": TENSOR}, "model_ema": {"module": {"w": TENSOR + 1}}}
    assert torch_files.find_state(state, torch_files.AVERAGES)["w"].item() == 1
    assert torch_files.find_state(state, torch_files.HOLDERS)["w"].item() == 0


def test_a_prefix_that_only_some_names_have_stays() -> None:
    some = {"module.w": TENSOR, "b": TENSOR}
    assert torch_files.strip_wrappers(some) is some
    wrapped = {"module._orig_mod.module.w": TENSOR, "module._orig_mod.module.b": TENSOR}
    assert sorted(torch_files.strip_wrappers(wrapped)) == ["b", "w"]


def test_the_step_is_one_that_the_file_states_as_a_whole_number(tmp_path: Path) -> None:
    for number, (step, expected) in enumerate({7: 7, 7.5: None, True: None}.items()):
        file = write(tmp_path / f"{number}.pth", {"state_dict": {"w": TENSOR}, "global_step": step})
        assert torch_files.read_torch_file(file)[1] == expected


def test_averages_are_found_by_their_key(tmp_path: Path) -> None:
    assert torch_files.find_averages(write(tmp_path / "a.pth", {"model": {"w": TENSOR}, "ema": {"w": TENSOR}})) == "ema"
    assert torch_files.find_averages(write(tmp_path / "b.pth", {"model": {"w": TENSOR}, "ema": 0.999})) == ""
    assert torch_files.find_averages(write(tmp_path / "c.pth", {"w": TENSOR})) == ""


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "a list"),
        ({}, "nothing"),
        ({"epoch": 3}, "1 named values: epoch"),
        (dict.fromkeys("abcdefghij"), "10 named values: a, b, c, d, e, f, g, h and 2 more"),
    ],
)
def test_a_file_without_weights_says_what_it_holds(content: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=f"It holds {text}") as refused:
        torch_files.read_torch_file(write(tmp_path / "x.pth", content))
    assert "no tensors by name" in str(refused.value)
