"""Search spaces of operator tuning: ordered parameters, rules that exclude configurations, a default.

A configuration (a point) has a value for each parameter, such as {"BLOCK_M": 64, "num_warps": 4}. `kernels` declares a
space for each kernel and `tuning` searches it, so this module imports neither.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from viaduct.errors import BadValue

Value = int | str | bool
Point = Mapping[str, Value]
Rule = Callable[[Point], str | None]  # returns the reason why a point is invalid, or None
Code = tuple[int, ...]  # a point as numbers: the position of each value in `Parameter.values`

MAX_COMBINATIONS = 1_000_000  # of a space; each of them is tested for validity


@dataclass(frozen=True)
class Parameter:
    """A parameter and its values; neighbouring values should make similar configurations."""

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise BadValue(f"the tuning parameter {self.name!r} has no values.", "Give it at least one.")
        keys = [(type(value), value) for value in self.values]
        if len(set(keys)) < len(keys):
            raise BadValue(f"the tuning parameter {self.name!r} has a value twice: {self.values}.")

    def find(self, value: Value) -> int | None:
        """Return the position of a value, or None; True and 1 are different values."""
        matches = (i for i, known in enumerate(self.values) if type(known) is type(value) and known == value)
        return next(matches, None)

    def find_nearest(self, value: Value) -> int | None:
        """Return the position of the value, or of the integer closest to another integer; None for any other value."""
        exact = self.find(value)
        if exact is not None or not _is_integer(value):
            return exact
        distances = [(abs(known - value), i) for i, known in enumerate(self.values) if _is_integer(known)]  # type: ignore[operator]
        return min(distances)[1] if distances else None


def _is_integer(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Space:
    """All combinations of values that no rule forbids.

    `default` is the configuration without tuning. `hints` are points to try early, if no rule forbids them.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        rules: Sequence[Rule] = (),
        *,
        default: Point,
        hints: Sequence[Point] = (),
    ) -> None:
        self.parameters = tuple(parameters)
        self.rules = tuple(rules)
        self._check_parameters()
        self.default = self._check_point(default, "default")
        ordered_hints = [self._check_point(hint, "hint") for hint in hints]
        self.hints = tuple(hint for hint in ordered_hints if self._find_broken_rule(hint) is None)
        reason = self._find_broken_rule(self.default)
        if reason is not None:
            if not self.codes:
                raise BadValue("the tuning space has no valid point.", f"Its default is refused: {reason}")
            raise BadValue(f"the default of the tuning space is not valid: {reason}", f"It is {dict(self.default)}.")

    def _check_parameters(self) -> None:
        """Raise BadValue for no parameters, duplicate names, or too many combinations."""
        names = [parameter.name for parameter in self.parameters]
        twice = sorted({name for name in names if names.count(name) > 1})
        if not names:
            raise BadValue("the tuning space has no parameters.")
        if twice:
            raise BadValue(f"the tuning space has two parameters called {twice[0]!r}.")
        count = self.combinations
        if count > MAX_COMBINATIONS:
            raise BadValue(f"the tuning space has {count:,} combinations; at most {MAX_COMBINATIONS:,} are enumerated.")

    def _check_point(self, point: Point, kind: str) -> Point:
        """Return the point with its values in the order of the parameters; raise BadValue if a value is unknown."""
        reason = self._find_misfit(point)
        if reason is not None:
            raise BadValue(f"the {kind} of the tuning space is not in it: {reason}.", f"It is {dict(point)}.")
        return {parameter.name: point[parameter.name] for parameter in self.parameters}

    @property
    def combinations(self) -> int:
        """Number of combinations, valid or not."""
        return prod(len(parameter.values) for parameter in self.parameters)

    @property
    def size(self) -> int:
        """Number of valid points."""
        return len(self.codes)

    def points(self) -> Iterator[Point]:
        """Yield the valid points, in the order of `codes`."""
        return (self.decode(code) for code in self.codes)

    def explain_invalid(self, point: Point) -> str | None:
        """Return the reason why a point is invalid; None for a valid point."""
        return self._find_misfit(point) or self._find_broken_rule(point)

    @cached_property
    def codes(self) -> tuple[Code, ...]:
        """Codes of the valid points; the last parameter varies fastest."""
        ranges = (range(len(parameter.values)) for parameter in self.parameters)
        return tuple(code for code in itertools.product(*ranges) if self._find_broken_rule(self.decode(code)) is None)

    @cached_property
    def valid_codes(self) -> frozenset[Code]:
        """`codes` as a set, for membership tests."""
        return frozenset(self.codes)

    def decode(self, code: Code) -> Point:
        """Return the point with this code."""
        return {parameter.name: parameter.values[i] for parameter, i in zip(self.parameters, code, strict=True)}

    def encode(self, point: Point) -> Code:
        """Return the code of a valid point; raise BadValue for any other."""
        reason = self.explain_invalid(point)
        if reason is not None:
            raise BadValue(f"{dict(point)} is not a point of the tuning space: {reason}.")
        return tuple(parameter.find(point[parameter.name]) or 0 for parameter in self.parameters)

    def adapt(self, point: Point) -> Point | None:
        """Return the point of this space closest to a point of a similar space.

        Parameters that `point` lacks get the value of the default. Return None if a value has no counterpart here, or
        if a rule forbids the result.
        """
        adapted = dict(self.default)
        for parameter in self.parameters:
            if parameter.name in point:
                position = parameter.find_nearest(point[parameter.name])
                if position is None:
                    return None
                adapted[parameter.name] = parameter.values[position]
        return adapted if self._find_broken_rule(adapted) is None else None

    def _find_misfit(self, point: Point) -> str | None:
        """Return the reason why a point does not have exactly one known value for each parameter, or None."""
        for parameter in self.parameters:
            if parameter.name not in point:
                return f"{parameter.name!r} is missing"
            if parameter.find(point[parameter.name]) is None:
                return f"{parameter.name} = {point[parameter.name]!r} is none of {parameter.values}"
        extra = sorted(set(point) - {parameter.name for parameter in self.parameters})
        return f"there is no parameter {extra[0]!r}" if extra else None

    def _find_broken_rule(self, point: Point) -> str | None:
        return next((reason for reason in (rule(point) for rule in self.rules) if reason is not None), None)
