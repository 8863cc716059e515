"""Merge the profiles of several ranks into one, on one clock.

Every rank's profile has a zero of its own. `facts.zero_unix_us` says when that was; where a rank does not know it, the
times of different ranks cannot be compared with each other, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any

from viaduct.errors import BadData

from .record import Collective, Facts, Profile, Step

SHARED = ("source", "kind", "device", "description", "batch", "precision", "mode", "workers")
"""Facts that should be the same on all ranks."""


def merge_profiles(profiles: Sequence[Profile], names: Sequence[str]) -> Profile:
    """Return one profile; `names` are the profiles' names in messages. Raise BadData if two hold the same rank."""
    check_ranks(profiles, names)
    moved = [shift_profile(profile, offset) for profile, offset in zip(profiles, find_offsets(profiles), strict=True)]
    first_sampled = next((profile for profile in moved if profile.samples), moved[0])
    return Profile(
        facts=merge_facts(profiles),
        steps=join(moved, lambda profile: profile.steps),
        operators=join(moved, lambda profile: profile.operators),
        kernels=join(moved, lambda profile: profile.kernels),
        memory=join(moved, lambda profile: profile.memory),
        memory_owners=join(moved, lambda profile: profile.memory_owners),
        samples=first_sampled.samples,
        ceilings=next((profile.ceilings for profile in moved if profile.ceilings), None),
        tables=merge_tables(moved),
    )


def join(profiles: Sequence[Profile], part: Callable[[Profile], Sequence[Any]]) -> list[Any]:
    return [record for profile in profiles for record in part(profile)]


def find_ranks(profile: Profile) -> set[int]:
    """Return the ranks that any record of a profile belongs to."""
    parts: list[Sequence[Any]] = [profile.steps, profile.operators, profile.kernels, profile.memory]
    return {record.rank for part in parts for record in part}


def check_ranks(profiles: Sequence[Profile], names: Sequence[str]) -> None:
    """Raise BadData where two profiles hold the same rank."""
    owners: dict[int, str] = {}
    for profile, name in zip(profiles, names, strict=True):
        for rank in find_ranks(profile):
            if rank in owners:
                raise BadData(f"rank {rank} is in both {owners[rank]} and {name}.", "Merge one profile of each rank.")
            owners[rank] = name


def find_offsets(profiles: Sequence[Profile]) -> list[float]:
    """Return what to add to the times of each profile; zeros where a rank does not know its clock's origin."""
    zeros = [profile.facts.zero_unix_us for profile in profiles]
    known = [zero for zero in zeros if zero is not None]
    if len(known) < len(zeros):
        return [0.0] * len(zeros)
    return [zero - min(known) for zero in known]


def shift_profile(profile: Profile, offset: float) -> Profile:
    """Return the profile with all times later by `offset`."""
    if not offset:
        return profile
    return replace(
        profile,
        steps=[shift_step(step, offset) for step in profile.steps],
        memory=[replace(point, time_us=point.time_us + offset) for point in profile.memory],
        samples=[replace(sample, time_us=sample.time_us + offset) for sample in profile.samples],
    )


def shift_step(step: Step, offset: float) -> Step:
    previous = None if step.previous_end_us is None else step.previous_end_us + offset
    return replace(
        step,
        forward_start_us=step.forward_start_us + offset,
        backward_end_us=step.backward_end_us + offset,
        end_us=step.end_us + offset,
        previous_end_us=previous,
        collectives=tuple(shift_collective(each, offset) for each in step.collectives),
    )


def shift_collective(collective: Collective, offset: float) -> Collective:
    return replace(collective, start_us=collective.start_us + offset)


def merge_facts(profiles: Sequence[Profile]) -> Facts:
    first = profiles[0].facts
    parts = [profile.facts for profile in profiles]
    zeros = [part.zero_unix_us for part in parts if part.zero_unix_us is not None]
    recorded = [part.recorded_step_us for part in parts if part.recorded_step_us is not None]
    batches = {part.batch for part in parts}
    return replace(
        first,
        ranks=max(len(profiles), first.ranks),
        batch=first.batch if len(batches) == 1 else None,
        timed_steps=min(part.timed_steps for part in parts),
        recorded_steps=min(part.recorded_steps for part in parts),
        recorded_step_us=median(recorded) if recorded else None,
        phases_found_by=merge_sentences([(rank_name(p), p.facts.phases_found_by) for p in profiles]),
        notes=(*merge_sentences([(rank_name(p), p.facts.notes) for p in profiles]), *describe_merge(profiles)),
        ended="; ".join(dict.fromkeys(f"{rank_name(p)}: {p.facts.ended}" for p in profiles if p.facts.ended)),
        zero_unix_us=min(zeros) if len(zeros) == len(parts) else None,
    )


def rank_name(profile: Profile) -> str:
    ranks = sorted(find_ranks(profile))
    return f"rank {ranks[0]}" if ranks else "a rank without steps"


def merge_sentences(parts: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return sentences that all ranks say once, and others with the rank in front."""
    everywhere = set.intersection(*(set(sentences) for _, sentences in parts))
    found = [
        sentence if sentence in everywhere else f"{name}: {sentence}"
        for name, sentences in parts
        for sentence in sentences
    ]
    return tuple(dict.fromkeys(found))


def describe_merge(profiles: Sequence[Profile]) -> list[str]:
    """Return notes about clocks, missing ranks, samples and facts in which the ranks differ."""
    notes = []
    if len(profiles) > 1 and any(profile.facts.zero_unix_us is None for profile in profiles):
        notes.append("The ranks' clocks have no common origin: times of different ranks cannot be compared.")
    if len(profiles) < profiles[0].facts.ranks:
        notes.append(f"Profiles of {len(profiles)} of {profiles[0].facts.ranks} ranks were merged.")
    sampled = [profile for profile in profiles if profile.samples]
    if len(sampled) > 1:
        notes.append(f"The figures of the system are those that {rank_name(sampled[0])} sampled.")
    for field in fields(Facts):
        values = list(dict.fromkeys(str(getattr(profile.facts, field.name)) for profile in profiles))
        if field.name in SHARED and len(values) > 1:
            notes.append(f"The ranks differ in {field.name}: {', '.join(values)}.")
    return notes


def merge_tables(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Return the tables of all ranks; those of one name and the same columns become one with a column for the rank."""
    names = dict.fromkeys(name for profile in profiles for name in profile.tables)
    merged: dict[str, Any] = {}
    for name in names:
        owners = [profile for profile in profiles if name in profile.tables]
        columns = [owner.tables[name]["columns"] for owner in owners]
        if len(owners) > 1 and all(each == columns[0] for each in columns):
            merged[name] = join_tables(name, owners)
        else:
            merged |= {f"{name} ({rank_name(each)})" if len(owners) > 1 else name: each.tables[name] for each in owners}
    return merged


def join_tables(name: str, owners: Sequence[Profile]) -> dict[str, Any]:
    rows = [[rank_name(owner).removeprefix("rank "), *row] for owner in owners for row in owner.tables[name]["rows"]]
    return {"columns": ["Rank", *owners[0].tables[name]["columns"]], "rows": rows}
