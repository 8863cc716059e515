"""torch.nn.DataParallel of one card: the module itself, its inputs moved there. Several cards are for processes."""

from __future__ import annotations

from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards


def init(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
    torch.nn.Module.__init__(self)
    self.dim, self.device_ids, self.output_device = dim, [cards.current], cards.current
    self.module = getattr(module, cards.name)(cards.current)


def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    return self.module(*_move_to_card(inputs), **_move_to_card(kwargs))


def _move_to_card(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return getattr(value, cards.name)(cards.current)
    if isinstance(value, dict):
        return {name: _move_to_card(part) for name, part in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_move_to_card(part) for part in value)
    return value
