"""Random numbers: the card draws from the host's generator, so that a rehearsal draws what the CPU run draws.

A generator made for the card (`torch.Generator(device="npu")`) is one of its own that says where it belongs.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, index_of

_Plain: Any = torch._C.Generator
_of_cards: set[int] = set()  # by the address beneath: an operator is handed another Python object for the same one


class _Known(type(_Plain)):  # type: ignore[misc]
    """`isinstance(torch.default_generator, torch.Generator)` goes on being true."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Plain)


class Generator(_Plain, metaclass=_Known):  # type: ignore[misc]
    """torch.Generator, for the host and for cards."""

    def __new__(cls, device: Any = "cpu") -> Any:
        device = torch.device(device)
        if device.type not in cards.names:
            return _Plain(device)
        made = _Plain.__new__(cls, "cpu")
        made._card = torch.device(cards.public_name, index_of(device))
        _of_cards.add(made._cdata)
        weakref.finalize(made, _of_cards.discard, made._cdata)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self._card  # type: ignore[no-any-return]


def check_generator(generator: Any) -> Any:
    """A generator that is handed to an operator of the card has to be the card's."""
    default: Any = torch.default_generator
    if generator._cdata not in _of_cards and generator._cdata != default._cdata:
        raise RuntimeError(f"Expected a '{cards.public_name}' device type for generator but found 'cpu'")
    return generator


def install() -> None:
    torch.Generator = Generator  # type: ignore[misc]
