"""`viaduct profile run RECIPE --apply`: try the first piece of advice that a recipe can follow, and measure the gain.

    job = RecipeJob(load("shapes_taster"), Path("prof"), Plan(skip=5, timed=20, recorded=5), device="cpu")
    applied = apply_advice(profile.advice, job)
    print(applied.describe() if applied else "no advice that can be tried")

Advice may propose changes of recipe fields. The recipe is profiled in turns without and with these changes. They are
a gain if the changed recipe was faster in every turn, and by more than MIN_GAIN in the median.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from viaduct.errors import BadRun
from viaduct.profiling.figures import show_time
from viaduct.profiling.record import Advice
from viaduct.recipes import Recipe
from viaduct.recipes._fields import list_field_paths, read_field
from viaduct.training.profiled import RecipeJob, profile_recipe

TURNS = 3  # profiles of the recipe without and with the changes, alternately
MIN_GAIN = 0.02  # share of a step's time by which two profiles of the same recipe may differ


@dataclass(frozen=True)
class AppliedAdvice:
    """Effect of a piece of advice: the time of a step in each turn, without and with its changes."""

    advice: Advice
    changes: dict[str, str]  # path of a field -> its new value
    before_us: list[float]  # without the changes
    after_us: list[float]  # with them

    def list_changes(self) -> str:
        """Return the changes as text: `sink=100 mode=graph`."""
        return " ".join(f"{field}={value}" for field, value in self.changes.items())

    @property
    def saved_share(self) -> float:
        """Share of a step's time that was saved, the median over turns; negative if the change made it slower."""
        return median(1 - after / before for before, after in zip(self.before_us, self.after_us, strict=True))

    @property
    def is_gain(self) -> bool:
        """Return True if every turn was faster with the change, and the median by more than MIN_GAIN."""
        turns = zip(self.before_us, self.after_us, strict=True)
        return self.saved_share > MIN_GAIN and all(after < before for before, after in turns)

    def describe(self) -> str:
        """Return the result as a paragraph for the terminal."""
        before, after = median(self.before_us), median(self.after_us)
        medians = f"medians of {len(self.before_us)} turns"
        times = f"{show_time(before)} a step without, {show_time(after)} with it, {medians}"
        gain = "no gain"
        if self.is_gain:
            gain = f"measured gain: {show_time(before * self.saved_share)} a step, {self.saved_share:.1%}"
        expected = "not known" if self.advice.gain_us is None else show_time(self.advice.gain_us)
        return f"Tried {self.list_changes()}: {gain} ({times}). Expected was: {expected}."


def choose_advice(advice: Sequence[Advice], recipe: Recipe) -> tuple[Advice, dict[str, str]] | None:
    """Return the first advice that changes fields of this recipe to new values, and these changes; None without one."""
    known = set(list_field_paths(recipe))
    for proposal in advice:
        possible = {path: text for path, text in proposal.changes.items() if path in known}
        new = {path: text for path, text in possible.items() if str(read_field(recipe, path)) != text}
        if new:
            return proposal, new
    return None


def apply_advice(
    advice: Sequence[Advice],
    job: RecipeJob,
    ranks: int = 1,
    report_line: Callable[[str], None] = lambda line: None,
) -> AppliedAdvice | None:
    """Try the first advice that the recipe of a job can follow; return its effect, or None if no advice can be tried.

    `report_line` is called with a line for the user before each turn.
    """
    chosen = choose_advice(advice, job.change_recipe())
    if chosen is None:
        return None
    proposal, changes = chosen
    applied = AppliedAdvice(proposal, changes, [], [])
    timing_plan = replace(job.plan, recorded=0)  # recorded steps show operators, which are not needed here

    def measure(extra_settings: list[tuple[str, str]]) -> float:
        settings = [*job.settings, *extra_settings]
        with tempfile.TemporaryDirectory(prefix="viaduct-apply-") as folder:
            timing = replace(job, out=Path(folder) / "prof", plan=timing_plan, settings=settings)
            profile = profile_recipe(timing, ranks)
        if profile.iteration_us is None:
            raise BadRun("no regular step was measured: trying advice needs two steps.", "Give more --steps.")
        return profile.iteration_us

    variants = [(applied.after_us, list(changes.items())), (applied.before_us, [])]
    for turn in range(TURNS):
        report_line(f"trying {applied.list_changes()}: turn {turn + 1} of {TURNS}")
        variants.reverse()  # each turn begins with the variant that ended the one before
        for times, extra_settings in variants:
            times.append(measure(extra_settings))
    return applied
