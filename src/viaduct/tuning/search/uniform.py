"""Random search: the default, then points in random order. The yardstick of the other methods."""

from __future__ import annotations

from viaduct.tuning.search.base import Searcher
from viaduct.tuning.space import Code


class UniformSearcher(Searcher):
    """Ask for the default first, then draw without replacement."""

    def propose(self) -> Code | None:
        default = self.space.encode(self.space.default)
        return default if default not in self.asked else self.draw_unasked()
