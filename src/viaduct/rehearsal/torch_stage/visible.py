"""How many cards a process sees: all of the rehearsal's, or those that its environment lists."""

from __future__ import annotations

import os
import re

from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage.cards import cards

_VARIABLES = {"npu": ("ASCEND_RT_VISIBLE_DEVICES",), "mlu": ("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES")}


def count() -> int:
    for variable in _VARIABLES.get(cards.name, ()):
        listed = os.environ.get(variable)
        if listed is not None:
            return _counted(variable, listed.strip())
    return len(cards.meters)


def _counted(variable: str, listed: str) -> int:
    if not listed:
        return 0
    numbers = [int(part) for part in re.findall(r"\d+", listed)]
    if cards.name == "npu" and not _taken(listed, numbers):
        limits.violated(
            "visible-devices",
            f"{variable} is {listed!r}.",
            "The NPU takes digits and commas in strictly ascending order; of any other list it sees no device at all.",
            f"Write {variable}={','.join(map(str, sorted(set(numbers)))) or '0'}, and give the order by rank.",
        )
    return min(len(set(numbers)), len(cards.meters))


def _taken(listed: str, numbers: list[int]) -> bool:
    return bool(re.fullmatch(r"\d+(,\d+)*", listed)) and numbers == sorted(set(numbers))
