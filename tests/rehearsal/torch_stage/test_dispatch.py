"""Operators by name, and functions of torch that are replaced."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from viaduct.rehearsal.torch_stage.dispatch import find_overload, replace_function


def test_an_operator_is_found_by_its_name_with_or_without_overload() -> None:
    assert find_overload("mm") is torch.ops.aten.mm.default
    assert find_overload("softmax.int") is torch.ops.aten.softmax.int
    with pytest.raises(AttributeError):
        find_overload("no_such_operator")


def test_a_replaced_function_is_called_and_still_compiled_by_torch_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Any = torch.neg
    monkeypatch.setattr(torch, "neg", plain)  # is put back
    calls: list[int] = []

    def wrap(function: Any) -> Any:
        def wrapper(x: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return function(x)  # type: ignore[no-any-return]

        return wrapper

    replace_function("neg", wrap)
    builtins: Any = torch.jit._builtins
    try:
        assert torch.neg(torch.ones(1)).item() == -1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            scripted: Any = torch.jit.script(negate)
        assert scripted(torch.ones(1)).item() == -1
        assert "aten::neg" in str(scripted.graph)
    finally:
        del builtins._builtin_table[id(torch.neg)]
    assert calls == [1]


def negate(x: torch.Tensor) -> torch.Tensor:
    return torch.neg(x)
