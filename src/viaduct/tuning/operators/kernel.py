"""Viaduct's own kernels on an NVIDIA card: launch parameters, through the process-wide table `kernels/choices.py`.

The spaces and the test cases with their references lie beside the kernels (`kernels/tunable/`), which need Triton; they
are imported when a space or a case is made. A `Key` is a kernel's name and the values that a launch depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from viaduct.kernels.choices import Key
from viaduct.search_space import Space
from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import Work
from viaduct.tuning.signature import Signature

KIND = "kernel"
PREFIX = f"{KIND} name="


def describe(key: Key) -> Signature:
    """Return the signature of a kernel and its launch."""
    name, values = key
    text = ",".join(map(str, values))
    return Signature.of(KIND, name=name, values=text)


def read_key(signature_key: str) -> Key | None:
    """Return the kernel and launch that a signature's key stands for; None for other operators."""
    if not signature_key.startswith(PREFIX):
        return None
    name, _, text = signature_key.removeprefix(PREFIX).partition(" values=")
    return name, tuple(int(value) if value.isdecimal() else value for value in text.split(","))


def select_choices(choices: Mapping[str, Choice]) -> dict[Key, Choice]:
    """Return the choices that are launch parameters of kernels, by kernel and launch."""
    pairs = ((read_key(key), choice) for key, choice in choices.items())
    return {key: choice for key, choice in pairs if key is not None}


def list_tunable(keys: Iterable[Key]) -> list[Key]:
    """Return the launches whose kernels have a space."""
    from viaduct.kernels.tunable import list_tunables

    known = list_tunables()
    return [key for key in keys if key[0] in known]


def make_space(signature: Signature, device: str, with_compiler: bool = False) -> Space:
    from viaduct.kernels import tunable

    return tunable.make_space(require_key(signature), torch.device(device))


def make_work(signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
    """Return launches with these parameters on made-up tensors; with `exact` the values are those of the reference."""
    from viaduct.kernels import tunable

    case = tunable.make_case(require_key(signature), torch.device(device))

    def read_values() -> list[tuple[str, Tensor]]:
        results: Any = case.reference() if exact else case.run(point)
        return [(f"result {number}", tensor) for number, tensor in enumerate(results, 1)]

    return Work(lambda: case.run(point), read_values)


def require_key(signature: Signature) -> Key:
    key = read_key(signature.key)
    if key is None:
        raise ValueError(f"{signature.key!r} is no kernel")
    return key
