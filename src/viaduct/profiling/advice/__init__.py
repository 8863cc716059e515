"""Advice from a profile: one file per rule; every module in this folder is loaded as a rule.

A rule is a module with two names: `find(figures)` returns an `Advice`, to which `add_advice` adds the rule's name, or
None. `CERTAINTY`, from 0 to 1, orders advice with the same gain. `figures` has what several rules compute from the
profile (profiling/figures.py). A rule that measures something on this machine does so through
`figures.microbenchmarks`, and names what could not be measured in `figures.unmeasured`.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from types import ModuleType

from viaduct.profiling.figures import Figures, Microbenchmarks
from viaduct.profiling.record import Profile

MIN_STEPS = 3  # least number of regular steps for advice
UNMEASURED_NOTE = "Not judged, because it was not measured: "
"""Beginning of a profile's note about advice that needs a measurement which was not made."""


def add_advice(profile: Profile, microbenchmarks: Microbenchmarks | None = None) -> Profile:
    """Return the profile with all advice, the largest gain first, and a note about what was not measured for it.

    There is no advice if nothing stands out or there are too few steps. `microbenchmarks` are used only for viaduct's
    own profiles; a profile of another tool may come from another machine.
    """
    if len(profile.regular_steps) < MIN_STEPS:
        return replace(profile, advice=[])
    figures = Figures(profile, microbenchmarks if profile.facts.kind in ("script", "recipe") else None)
    rules = sorted(load_rules().items(), key=lambda item: -item[1].CERTAINTY)
    found = [replace(advice, name=name) for name, rule in rules if (advice := rule.find(figures)) is not None]
    notes = [note for note in profile.facts.notes if not note.startswith(UNMEASURED_NOTE)]  # of an earlier call
    if figures.unmeasured:
        failures = dict.fromkeys(figures.microbenchmarks.failures) if figures.microbenchmarks else {}
        reason = f" ({'; '.join(failures)})" if failures else ""
        notes.append(f"{UNMEASURED_NOTE}{', '.join(figures.unmeasured)}{reason}.")
    return replace(
        profile,
        facts=replace(profile.facts, notes=tuple(notes)),
        advice=sorted(found, key=lambda advice: -(advice.gain_us or 0.0)),
    )


def load_rules() -> dict[str, ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}
