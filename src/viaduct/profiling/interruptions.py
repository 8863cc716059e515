"""An interruption that comes in most steps is part of the step."""

from __future__ import annotations

from dataclasses import replace

from viaduct.profiling.collector import RECORDING
from viaduct.profiling.record import Profile, Step

MOST_STEPS = 0.5  # share of the timed steps


def clear_constant_interruptions(profile: Profile) -> Profile:
    """Return the profile without interruptions that more than half of the timed steps have; a note names them."""
    timed = [step for step in profile.steps if RECORDING not in split(step)]
    kinds = {kind for step in timed for kind in split(step)}
    constant = {kind for kind in kinds if sum(kind in split(step) for step in timed) > MOST_STEPS * len(timed)}
    if not constant or len(timed) < 2:
        return profile
    notes = [f"{kind} comes in most steps and is counted as part of them." for kind in sorted(constant)]
    facts = replace(profile.facts, notes=(*profile.facts.notes, *notes))
    return replace(profile, facts=facts, steps=[remove(step, constant) for step in profile.steps])


def split(step: Step) -> list[str]:
    return step.interrupted_by.split(", ") if step.interrupted_by else []


def remove(step: Step, kinds: set[str]) -> Step:
    return replace(step, interrupted_by=", ".join(kind for kind in split(step) if kind not in kinds))
