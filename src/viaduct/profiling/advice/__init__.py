"""Advice from a profile: one file per rule; every module in this folder is loaded as a rule.

A rule has `CERTAINTY`, from 0 to 1, by which advice of equal gain is ordered, and `find(figures)`, which returns an
`Advice` or None. An empty list of advice means that nothing stands out, or that there are too few steps to tell. Rules
measure nothing except through `figures.trials`. What several rules need is in profiling/figures.py.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from viaduct.profiling.figures import Figures, Trials
from viaduct.profiling.record import Advice, Profile

FEWEST_STEPS = 3
"""Uninterrupted steps below which no advice is given: two steps that differ say nothing about a third."""


def advise(profile: Profile, trials: Trials | None = None) -> list[Advice]:
    """Return what to change, most valuable first; `trials` measures on this machine what the profile does not have.

    `trials` is not used for a profile that another tool wrote, which may come from another machine.
    """
    if len(profile.regular_steps) < FEWEST_STEPS:
        return []
    figures = Figures(profile, trials if profile.facts.kind in ("script", "recipe") else None)
    rated = [(advice, rule.CERTAINTY) for rule in load_rules() if (advice := rule.find(figures)) is not None]
    rated.sort(key=lambda pair: (-(pair[0].gain_us or 0.0), -pair[1]))
    return [advice for advice, _ in rated]


def load_rules() -> list[ModuleType]:
    """Return the modules of this folder in alphabetical order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]
