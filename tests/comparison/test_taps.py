"""Taps in a compiled network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from comparison.networks import Awkward, Entangled
from viaduct.comparison import Dump
from viaduct.comparison.readers.viaduct_dump import read

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.lengthy
def test_taps_record_what_hooks_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and differentiated by the compiler, and run without kernels of its own: the same bits."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compare_ways(tmp_path, Entangled, steps="0,1", atol=0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("network", [Awkward, Entangled])
def test_a_compiled_network_is_dumped_without_graph_breaks(tmp_path: Path, network: Callable[[], nn.Module]) -> None:
    compare_ways(tmp_path, network, steps="1", atol=1e-5)


def compare_ways(folder: Path, network: Callable[[], nn.Module], steps: str, atol: float) -> None:
    """Dump one network as written and compiled."""
    for compiled in (False, True):
        torch.manual_seed(0)
        model = network()
        model.apply(lambda module: setattr(module, "p", 0.0) if isinstance(module, nn.Dropout) else None)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with Dump(model, folder / str(compiled), steps=steps, compiled=compiled) as dump:
            run = dump.wrap_compiled(torch.compile(model, dynamic=False) if compiled else model)
            for number in range(2):
                torch.manual_seed(number)
                run(torch.randn(2, 3, 8, 8)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    sides = [read(folder / str(compiled)) for compiled in (False, True)]
    eager, graph = ({(t.op, t.role, t.index, t.call, t.step): t for t in side.tensors} for side in sides)
    assert eager.keys() == graph.keys()
    assert sides[0].edges == sides[1].edges
    assert list(dict.fromkeys(t.op for t in sides[0].tensors)) == list(dict.fromkeys(t.op for t in sides[1].tensors))
    for key, tensor in eager.items():
        assert np.allclose(np.load(str(tensor.path)), np.load(str(graph[key].path)), rtol=atol, atol=atol), key
