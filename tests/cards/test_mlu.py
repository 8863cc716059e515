"""Names of the MLU."""

from __future__ import annotations

from cards.spelling import spelled_in
from viaduct.cards import MLU


def test_the_mlus_names_are_spelled_in_its_file_alone() -> None:
    for name in (MLU.plugin, *MLU.patch_modules):
        assert spelled_in(name) == {"cards/mlu.py"}, name
