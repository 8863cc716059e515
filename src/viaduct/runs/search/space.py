"""Search space: the fields of a recipe that a search changes (its dimensions), and their values.

`--space` takes one dimension as FIELD=VALUES:

    optimizer.lr=0.01..1:log               a range, drawn on a log scale
    schedule.warmup_epochs=0..10:step=1    a range in steps
    data.cutout=0,8,16                     a list of values
    optimizer.nesterov=true,false
    schedule.boundaries=30,60;40,80        a list of values of a field that is itself a list

Every bound and every listed value is set in the recipe once before the search starts, so that a value that the recipe
refuses is reported early.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from viaduct.errors import BadValue, UnknownName
from viaduct.recipes import Recipe
from viaduct.recipes._fields import list_field_paths, override, read_field, to_record
from viaduct.typed_fields import get_field_types, list_alternatives, spell_type

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

Value = float | int | str
"""A value as stored in a study: a number of a range, or the text of a choice."""
MAX_CHOICES = 1000  # largest number of values of a list, of steps of a range, and of combinations of a grid
NO_EFFECT = ("evaluation", "checkpoint", "log", "expects", "callbacks", "metrics")
"""Parts of a recipe that do not change what is learned."""
TOLERANCE = 1e-9  # rounding error of the last value of a range, as a fraction of the step


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    path: str  # of the field: `optimizer.lr`
    text: str  # the field's values in --space: `0.01..1:log`
    low: float
    high: float
    log: bool = False
    step: float | None = None
    integer: bool = False  # True: whole numbers only

    def suggest(self, trial: Trial) -> Value:
        """Return the value that Optuna draws for a trial, or the one that the trial has already."""
        if self.integer:
            step = int(self.step or 1)
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log, step=step)
        return trial.suggest_float(self.path, self.low, self.high, log=self.log, step=self.step)

    def make_distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.integer:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def format_setting(self, value: Value) -> str:
        """Return a value in the form of `--set`."""
        return repr(int(value)) if self.integer else repr(float(value))

    def find_value(self, stored: Any) -> Value | None:
        """Convert a value of a recipe to a value of the study; None if it is not a value of the range."""
        if isinstance(stored, bool) or not isinstance(stored, int | float):
            return None
        if not self.low <= stored <= self.high or (self.integer and stored != int(stored)):
            return None
        if self.step and not is_multiple(stored - self.low, self.step):
            return None
        return int(stored) if self.integer else float(stored)

    def list_values(self) -> list[Value]:
        """Return the values of a grid search."""
        step = self.step or (1 if self.integer and not self.log else None)
        if step is None:
            raise BadValue(
                f"--space {self.path}={self.text}: a grid needs single values of the range.",
                f"Give them as a list ({self.path}=0.01,0.1,1) or as steps (:step=…), or take another --sampler.",
            )
        count = math.floor((self.high - self.low) / step + TOLERANCE) + 1
        if count > MAX_CHOICES:
            raise BadValue(f"--space {self.path}={self.text} has {count:,} steps; a grid has at most {MAX_CHOICES:,}.")
        values = [self.low + number * step for number in range(count)]
        return [int(value) if self.integer else float(f"{value:.12g}") for value in values]


@dataclass(frozen=True)
class Choices:
    """A list of values, as text."""

    path: str  # of the field
    text: str  # the field's values in --space: `0,8,16`
    texts: tuple[str, ...]  # the text of each value
    stored: tuple[Any, ...]  # the values in the form of recipe.json

    def suggest(self, trial: Trial) -> Value:
        """Return the value that Optuna draws for a trial, or the one that the trial has already."""
        return str(trial.suggest_categorical(self.path, self.texts))

    def make_distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.texts)

    def format_setting(self, value: Value) -> str:
        """Return a value in the form of `--set`."""
        return str(value)

    def find_value(self, stored: Any) -> Value | None:
        """Convert a value of a recipe to a value of the study; None if it is not among the choices."""
        matches = (text for text, known in zip(self.texts, self.stored, strict=True) if is_same(known, stored))
        return next(matches, None)

    def list_values(self) -> list[Value]:
        """Return the values of a grid search."""
        return list(self.texts)


Dimension = Range | Choices


@dataclass(frozen=True)
class Space:
    """All dimensions of a search; a part of a recipe (`optimizer`) comes before its fields (`optimizer.lr`)."""

    dimensions: tuple[Dimension, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dimension.path for dimension in self.dimensions)

    def make_settings(self, values: dict[str, Value]) -> dict[str, str]:
        """Return the settings {field: text} of these values, in the order for `--set`."""
        return {dimension.path: dimension.format_setting(values[dimension.path]) for dimension in self.dimensions}

    def find_values(self, recipe: Recipe) -> dict[str, Value] | str:
        """Return the values of a recipe's fields in this space, or the path of the first that is outside or missing."""
        values: dict[str, Value] = {}
        for dimension in self.dimensions:
            try:
                value = dimension.find_value(to_record(read_field(recipe, dimension.path)))
            except AttributeError:  # another optimizer, without this field
                return dimension.path
            if value is None:
                return dimension.path
            values[dimension.path] = value
        return values

    def list_combinations(self) -> list[dict[str, Value]]:
        """Return every combination of values, for a grid search; the last field varies fastest."""
        combinations: list[dict[str, Value]] = [{}]
        for dimension in self.dimensions:
            values = dimension.list_values()
            if len(combinations) * len(values) > MAX_CHOICES:
                raise BadValue(f"the grid has more than {MAX_CHOICES:,} combinations.", "Give fewer values.")
            combinations = [{**combination, dimension.path: value} for combination in combinations for value in values]
        return combinations


def parse_space(recipe: Recipe, texts: Sequence[str], fixed: Sequence[str] = ()) -> Space:
    """Parse the texts of `--space FIELD=VALUES …`; `fixed` are the fields that --set names."""
    if not texts:
        raise BadValue("what shall be searched? No --space is given.", "For example --space optimizer.lr=0.01..1:log")
    dimensions = [parse_dimension(recipe, text) for text in texts]
    space_paths = [dimension.path for dimension in dimensions]
    for number, path in enumerate(space_paths):
        if path in space_paths[:number]:
            raise BadValue(f"--space names {path} twice.", "Give all of its values in one --space.")
        if path in fixed:
            raise BadValue(f"{path} is in --space and set to one value too.", "Give one of them.")
    return Space(tuple(sorted(dimensions, key=lambda dimension: dimension.path.count("."))))


def parse_dimension(recipe: Recipe, text: str) -> Dimension:
    """Parse FIELD=VALUES of --space."""
    path, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not values:
        hint = "Write a range as optimizer.lr=0.01..1:log and a list as optimizer.nesterov=true,false"
        raise BadValue(f"--space {text} has no values.", hint)
    refuse_field(path)
    kind = find_type(recipe, path)
    if ".." in values:
        return parse_range(recipe, path, values, kind)
    return parse_choices(recipe, path, values, kind)


def refuse_field(path: str) -> None:
    """Raise BadValue for fields that a search cannot change: length, seed, and fields without effect on the weights."""
    if path in ("epochs", "steps"):
        raise BadValue(f"--space {path}: every trial trains equally long.", f"Say how long with --{path} N.")
    if path == "seed":
        raise BadValue(
            "--space seed: the best of several seeds is luck, not a better recipe.",
            "Fix that of the training with --set seed=N.",
        )
    if path.split(".")[0] in NO_EFFECT:
        raise BadValue(f"--space {path}: this field does not change what is learned.", "Set it with --set instead.")


def find_type(recipe: Recipe, path: str) -> Any:
    """Return the type of a field; raise UnknownName with the closest field if there is none."""
    *outer, name = path.split(".")
    part: Any = recipe
    for head in outer:
        part = getattr(part, head, None)
    try:
        hints = get_field_types(type(part))
    except TypeError:  # not a part of a recipe, but a plain value
        hints = {}
    if name not in hints:
        hint = "`--space` takes the fields of the recipe, as --set does."
        raise UnknownName("field", path, list_field_paths(recipe), hint)
    return hints[name]


def parse_range(recipe: Recipe, path: str, text: str, kind: Any) -> Range:
    """Parse a range such as `0.01..1:log`."""
    integer = is_integer(kind)
    if integer is None:
        raise BadValue(
            f"--space {path}={text}: a range needs a field that is a number; {path} is {spell_type(kind)}.",
            f"List its values: {path}={write_example(kind)}",
        )
    ends, *options = text.split(":")
    low, high = (parse_bound(path, end, integer) for end in ends.split("..", 1))
    log, step = parse_options(path, text, options, integer)
    if not low < high:
        raise BadValue(f"--space {path}={text}: {low:g} is not below {high:g}.", "Write the smaller value first.")
    if log and not low > 0:
        raise BadValue(f"--space {path}={text}: a log scale needs bounds above 0, not {low:g}.")
    if step is not None and step > high - low:
        raise BadValue(f"--space {path}={text}: the step {step:g} is larger than the range.")
    if step is not None:  # end at the last value that the steps reach
        high = float(f"{low + step * math.floor((high - low) / step + TOLERANCE):.12g}")
    dimension = Range(path, text, low, high, log, step, integer)
    for bound in (low, high):
        try_value(recipe, path, text, dimension.format_setting(bound))
    return dimension


def parse_bound(path: str, text: str, integer: bool) -> float:
    """Return a bound or the step of a range; raise BadValue unless it is finite, and whole if `integer`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadValue(f"--space {path}: {text!r} is not a number.", f"Write a range as {path}=0.01..1")
    if integer and value != int(value):
        raise BadValue(f"--space {path}: {text} is not a whole number, and {path} takes only those.")
    return value


def parse_options(path: str, text: str, options: list[str], integer: bool) -> tuple[bool, float | None]:
    """Return the options of a range: True for a log scale, and the step if there is one."""
    log, step = False, None
    for option in options:
        name, _, value = option.partition("=")
        if name == "log" and not value:
            log = True
        elif name == "step":
            step = parse_bound(path, value, integer)
            if not step > 0:
                raise BadValue(f"--space {path}={text}: the step is {step:g}; it must be above 0.")
        else:
            raise BadValue(f"--space {path}={text}: {option!r} is neither log nor step=….")
    if log and step is not None:
        raise BadValue(f"--space {path}={text}: a log scale has no steps.", "Give log or step, or list the values.")
    return log, step


def parse_choices(recipe: Recipe, path: str, text: str, kind: Any) -> Choices:
    """Parse a list of values such as `0,8,16`."""
    separator = ";" if is_tuple(kind) else ","
    texts = [choice.strip() for choice in text.split(separator)]
    if not all(texts):
        raise BadValue(f"--space {path}={text}: there is an empty value.", f"Separate values by one {separator!r}.")
    if len(texts) > MAX_CHOICES:
        raise BadValue(f"--space {path} has {len(texts):,} values; a list has at most {MAX_CHOICES:,}.")
    stored = [to_record(read_field(try_value(recipe, path, text, choice), path)) for choice in texts]
    for number, value in enumerate(stored):
        if any(is_same(value, earlier) for earlier in stored[:number]):
            raise BadValue(f"--space {path}={text}: {texts[number]} is there twice.")
    if len(texts) == 1:
        hint = f"Give several values, a range such as {path}=0.01..1, or --set {path}={text}."
        raise BadValue(f"--space {path}={text} is one value: there is nothing to search.", hint)
    return Choices(path, text, tuple(texts), tuple(stored))


def try_value(recipe: Recipe, path: str, text: str, value: str) -> Recipe:
    """Return the recipe with this value; raise BadValue, with the text of --space, if the recipe refuses it."""
    try:
        return override(recipe, path, value)
    except BadValue as error:
        raise BadValue(f"--space {path}={text}: {error.message}", *error.hints) from None


def is_integer(kind: Any) -> bool | None:
    """Return True for a field of whole numbers, False for a field of floats, None for any other field."""
    kinds = list_alternatives(kind)
    if float in kinds:
        return False
    return True if int in kinds else None


def is_tuple(kind: Any) -> bool:
    return any(typing.get_origin(part) is tuple for part in list_alternatives(kind))


def write_example(kind: Any) -> str:
    """Return an example list of values of a type."""
    for part in list_alternatives(kind):
        if typing.get_origin(part) is Literal:
            return ",".join(map(str, typing.get_args(part)))
        if part is bool:
            return "true,false"
        if typing.get_origin(part) is tuple:
            return "30,60;40,80"
    return "FIRST,SECOND"


def is_same(value: Any, other: Any) -> bool:
    """Return True for equal values of a stored recipe: 8 equals 8.0, but true differs from 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def is_multiple(difference: float, step: float) -> bool:
    """Return True for a whole number of steps, up to rounding."""
    count = difference / step
    return abs(count - round(count)) < 1e-6
