"""Advice from a profile: one file per rule; every module in this folder is loaded as a rule.

A rule has `find(figures)`, which returns an `Advice` or None, and `PRIORITY_AT_EQUAL_GAIN`, from 0 to 1: how certain
its advice is. Rules measure only through `figures.trials`; profiling/figures.py has figures for several rules.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from viaduct.profiling.figures import Figures, Trials
from viaduct.profiling.record import Advice, Profile

MIN_STEPS = 3  # least number of uninterrupted steps for advice


def advise(profile: Profile, trials: Trials | None = None) -> list[Advice]:
    """Return advice, most valuable first; [] if nothing stands out or there are too few steps.

    `trials` are not used for profiles of other tools, which may come from other machines.
    """
    if len(profile.regular_steps) < MIN_STEPS:
        return []
    figures = Figures(profile, trials if profile.facts.kind in ("script", "recipe") else None)
    rules = sorted(load_rules(), key=lambda rule: -rule.PRIORITY_AT_EQUAL_GAIN)
    found = [advice for rule in rules if (advice := rule.find(figures)) is not None]
    return sorted(found, key=lambda advice: -(advice.gain_us or 0.0))


def load_rules() -> list[ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]
