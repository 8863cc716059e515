"""Fixtures of the rehearsal's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from viaduct.rehearsal.counting import TorchStepCounter


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchStepCounter]:
    """Count the steps of this process; afterwards its wrapped functions are the plain ones again."""
    import torch

    from viaduct.rehearsal.counting import TorchStepCounter
    from viaduct.rehearsal.plan import Plan

    replaced = [(torch.Tensor, "backward"), (torch.autograd, "backward"), (torch.amp.GradScaler, "scale")]
    replaced += [(torch.autograd, "grad"), (torch.func, "grad"), (torch.func, "grad_and_value")]
    for owner, name in replaced:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    plan = Plan("npu", "torch", str(tmp_path / "train.py"), (), str(tmp_path), str(tmp_path), steps=2)
    watching = TorchStepCounter(plan, started_by_viaduct=True)
    watching.start()
    yield watching
    watching.close()
