"""Launch parameters of viaduct's own kernels on an NVIDIA GPU, set through the table in `kernels/choices.py`.

`kernels/tunable/` has the space of each kernel, and cases. A case launches a kernel on random tensors, and computes the
result with plain PyTorch for comparison. The package needs Triton and is imported only when it is used. A `Key` is a
kernel's name and the values (shapes, dtype) that its launch parameters depend on.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    name, values = key
    text = ",".join(map(str, values))
    return Signature.of(KIND, name=name, values=text)


def read_key(signature_key: str) -> Key | None:
    """Return kernel and values from the text of a signature's key; None for other kinds of operators."""
    if not signature_key.startswith(PREFIX):
        return None
    name, _, text = signature_key.removeprefix(PREFIX).partition(" values=")
    return name, tuple(int(value) if value.isdecimal() else value for value in text.split(","))


def list_tunable(keys: Iterable[Key]) -> list[Key]:
    """Return the keys of kernels that have a search space."""
    from viaduct.kernels.tunable import list_tunables

    tunables = list_tunables()
    return [key for key in keys if key[0] in tunables]


def make_space(signature: Signature, device: str, allow_compiled: bool = False) -> Space:
    from viaduct.kernels import tunable

    return tunable.make_space(require_key(signature), torch.device(device))


def make_work(signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
    """Return launches with these parameters on random tensors; with `exact` plain PyTorch computes the values."""
    from viaduct.kernels import tunable

    case = tunable.make_case(require_key(signature), torch.device(device))

    def read_values() -> list[tuple[str, Tensor]]:
        results: Any = case.reference() if exact else case.run(point)
        return [(f"result {number}", tensor) for number, tensor in enumerate(results, 1)]

    return Work(lambda: case.run(point), read_values)


def require_key(signature: Signature) -> Key:
    key = read_key(signature.key)
    if key is None:
        raise ValueError(f"{signature.key!r} is not a kernel")
    return key
