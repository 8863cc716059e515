"""Random numbers: the card draws from the host's generator, as a run on the CPU does.

A generator for the card (`torch.Generator(device="npu")`) is a separate host generator with the card as `device`.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, resolve_card_index

_HostGenerator: Any = torch._C.Generator
# Addresses of the C++ generators made for cards. An operator's kernel gets a generator as a new Python object, which is
# no `Generator` of this module; only the address tells that it is the same.
_card_generators: set[int] = set()


class _GeneratorMeta(type(_HostGenerator)):  # type: ignore[misc]
    """Metaclass that keeps `isinstance(torch.default_generator, torch.Generator)` true."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _HostGenerator)


class Generator(_HostGenerator, metaclass=_GeneratorMeta):  # type: ignore[misc]
    """torch.Generator, for the host and for cards."""

    def __new__(cls, device: Any = "cpu") -> Any:
        device = torch.device(device)
        if device.type not in cards.accepted_types:
            return _HostGenerator(device)
        generator = _HostGenerator.__new__(cls, "cpu")
        generator._card = torch.device(cards.name_in_script, resolve_card_index(device))
        _card_generators.add(generator._cdata)
        weakref.finalize(generator, _card_generators.discard, generator._cdata)
        return generator

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self._card  # type: ignore[no-any-return]


def check_generator(generator: Any) -> Any:
    """Return a generator that is passed to an operator of the card, if it was made for a card.

    The host's default generator is accepted too: cards draw from it. Raise RuntimeError for another one of the host.
    """
    default: Any = torch.default_generator
    if generator._cdata not in _card_generators and generator._cdata != default._cdata:
        raise RuntimeError(f"Expected a '{cards.name_in_script}' device type for generator but found 'cpu'")
    return generator


def install() -> None:
    torch.Generator = Generator  # type: ignore[misc]
