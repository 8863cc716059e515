"""Spaces that a search goes through. The types lie in `viaduct.search_space`, which kernels may import, too."""

from viaduct.search_space import Code, Parameter, Point, Rule, Space, Value

__all__ = ["Code", "Parameter", "Point", "Rule", "Space", "Value"]
