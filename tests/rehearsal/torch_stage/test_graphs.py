"""Device graphs in a rehearsal: captures are refused, callables run without one."""

from __future__ import annotations

import pytest
import torch

from viaduct.rehearsal.torch_stage import graphs
from viaduct.rehearsal.torch_stage.cards import cards


@pytest.mark.parametrize("make", [graphs.Graph, graphs.graph])
@pytest.mark.parametrize(("name", "shown"), [("npu", "NPU"), ("gpu", "CUDA")])
def test_a_capture_is_refused_by_the_name_that_the_script_knows(
    make: type, name: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "device_name", name)
    with pytest.raises(NotImplementedError, match=f"A rehearsal does not capture {shown} graphs"):
        make(graphs.Graph)


def test_make_graphed_callables_returns_its_callables() -> None:
    callables = (torch.nn.Linear(1, 1), torch.sin)
    assert graphs.make_graphed_callables(callables, ((torch.ones(1),),) * 2) is callables
