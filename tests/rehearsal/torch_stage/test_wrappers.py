"""torch.compile in a rehearsal: it names parameters as the real one does, and generates nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from viaduct.rehearsal.torch_stage.wrappers import wrap_compile


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Replace torch.compile, and return the backends that it is asked for."""
    monkeypatch.setattr(torch, "compile", torch.compile)
    monkeypatch.setattr(torch.nn.Module, "compile", torch.nn.Module.compile)
    backends: list[Any] = []
    with warnings.catch_warnings():
        wrap_compile(backends.append)
        yield backends


def test_a_backend_that_is_refused_stops_every_way_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(backend: Any) -> None:
        raise RuntimeError(backend)

    monkeypatch.setattr(torch, "compile", torch.compile)
    monkeypatch.setattr(torch.nn.Module, "compile", torch.nn.Module.compile)
    with warnings.catch_warnings():
        wrap_compile(refuse)
    model = torch.nn.Linear(1, 1)
    for call in (torch.compile, torch.compile(backend="inductor"), lambda model: model.compile()):
        with pytest.raises(RuntimeError, match="inductor"):
            call(model)


def test_a_compiled_module_has_the_names_of_the_real_one_and_computes_the_same(backends: list[Any]) -> None:
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model, backend="npu", mode="max-autotune")
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))
    assert backends == ["npu"]


def test_a_function_stays_itself_also_under_the_decorator(backends: list[Any]) -> None:
    assert torch.compile(torch.sin) is torch.sin

    @torch.compile(backend="npu", fullgraph=True)
    def double(x: int) -> int:
        return 2 * x

    assert double(3) == 6
    assert backends == ["inductor", "npu"]


def test_a_module_compiled_in_place_keeps_its_names(backends: list[Any]) -> None:
    model = torch.nn.Linear(2, 2)
    model.compile(backend="npu")
    assert list(model.state_dict()) == ["weight", "bias"]
    assert backends == ["npu"]
