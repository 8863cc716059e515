"""Number of visible cards of a process: all of the rehearsal's, or those listed in its environment."""

from __future__ import annotations

import os
import re

from viaduct.cards import MLU, NPU
from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage.cards import cards

# Environment variables that list the visible cards; the first that is set counts. The MLU's third is CUDA's own, which
# is not read here.
_VARIABLES = {"npu": NPU.hiding_variables, "mlu": MLU.hiding_variables[:2]}


def count_visible_cards() -> int:
    """Return the number of visible cards of this process."""
    for variable in _VARIABLES.get(cards.name, ()):
        listed = os.environ.get(variable)
        if listed is not None:
            return _count_listed(variable, listed.strip())
    return len(cards.meters)


def _count_listed(variable: str, listed: str) -> int:
    """Return the number of cards in a variable's list; report a list that is invalid on an NPU."""
    if not listed:
        return 0
    numbers = [int(part) for part in re.findall(r"\d+", listed)]
    is_ascending = re.fullmatch(r"\d+(,\d+)*", listed) and numbers == sorted(set(numbers))
    if cards.name == "npu" and not is_ascending:
        limits.report_violation(
            "visible-devices",
            f"{variable} is {listed!r}.",
            "The NPU takes digits and commas in strictly ascending order; of any other list it sees no device at all.",
            f"Write {variable}={','.join(map(str, sorted(set(numbers)))) or '0'}, and give the order by rank.",
        )
    return min(len(set(numbers)), len(cards.meters))
