"""Searches that do not learn from times, in random order and in the order of the space; the default comes first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from viaduct.search_space import Code
from viaduct.tuning.search.base import Searcher


class UniformSearcher(Searcher):
    """Draws points without replacement; the baseline for the other methods."""

    def propose(self) -> Code | None:
        default = self.space.encode(self.space.default)
        return default if default not in self.asked else self.draw_unasked()


class ExhaustiveSearcher(Searcher):
    """Proposes every point in the order of the space."""

    @cached_property
    def queue(self) -> Iterator[Code]:
        return iter((self.space.encode(self.space.default), *self.space.codes))

    def propose(self) -> Code | None:
        return next((code for code in self.queue if code not in self.asked), None)
