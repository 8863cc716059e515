"""Merge the profiles of several ranks into one, on one clock.

The zero of each rank's profile has the Unix time `facts.zero_unix_us`. If one is unknown, the times of different ranks
cannot be compared, and a note says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from viaduct.errors import BadData

from .record import Facts, Profile, Step

SHARED_FACTS = ("source", "kind", "device", "description", "batch", "precision", "mode", "workers")
"""Facts that should be the same on all ranks."""
UNIX_FROM_US = 1e15
"""A larger time in a file is Unix time (after 2001); a smaller one counts from the start of the machine or trace."""


def merge_profiles(profiles: Sequence[Profile], names: Sequence[str]) -> Profile:
    """Return one profile of all ranks; raise BadData, with the `names` of the profiles, if two have the same rank.

    Ceilings (peak rates of the device) and system samples are taken from the first profile that has some. Advice is
    left out.
    """
    check_ranks(profiles, names)
    moved = [shift_profile(profile, offset) for profile, offset in zip(profiles, find_offsets(profiles), strict=True)]
    first_sampled = next((profile for profile in moved if profile.samples), moved[0])
    names_of_lists = ("steps", "operators", "kernels", "memory", "memory_owners")
    records: dict[str, Any] = {
        name: [row for profile in moved for row in getattr(profile, name)] for name in names_of_lists
    }
    return Profile(
        facts=merge_facts(profiles),
        **records,
        samples=first_sampled.samples,
        ceilings=next((profile.ceilings for profile in moved if profile.ceilings), None),
        tables=merge_tables(moved),
    )


def find_ranks(profile: Profile) -> set[int]:
    records: list[Sequence[Any]] = [profile.steps, profile.operators, profile.kernels, profile.memory]
    return {record.rank for rows in records for record in rows}


def check_ranks(profiles: Sequence[Profile], names: Sequence[str]) -> None:
    """Raise BadData if two profiles hold the same rank."""
    owners: dict[int, str] = {}
    for profile, name in zip(profiles, names, strict=True):
        for rank in find_ranks(profile):
            if rank in owners:
                raise BadData(f"rank {rank} is in both {owners[rank]} and {name}.", "Merge one profile of each rank.")
            owners[rank] = name


def find_offsets(profiles: Sequence[Profile]) -> list[float]:
    """Return the offset to add to the times of each profile; zeros if a profile's Unix time is unknown."""
    zeros = [profile.facts.zero_unix_us for profile in profiles]
    known_zeros = [zero for zero in zeros if zero is not None]
    if len(known_zeros) < len(zeros):
        return [0.0] * len(zeros)
    return [zero - min(known_zeros) for zero in known_zeros]


def start_at_zero(profile: Profile, zero_unix_us: float | None) -> Profile:
    """Return the profile with its earliest time as 0; `zero_unix_us` is the Unix time of that moment, if known."""
    facts = replace(profile.facts, zero_unix_us=zero_unix_us)
    return shift_profile(replace(profile, facts=facts), -profile.start_us)


def start_read_times_at_zero(profile: Profile) -> Profile:
    """Return another tool's profile with its earliest time as 0; if that was a Unix time, it becomes `zero_unix_us`."""
    start = profile.start_us
    return start_at_zero(profile, start if start > UNIX_FROM_US else None)


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
        collectives=tuple(replace(row, start_us=row.start_us + offset) for row in step.collectives),
    )


def merge_facts(profiles: Sequence[Profile]) -> Facts:
    """Return the first rank's facts, with the numbers of steps that every rank has, and the notes of all ranks.

    The batch is unknown if the ranks differ in it, and the phases are unknown if they are unknown on one rank.
    """
    first = profiles[0].facts
    all_facts = [profile.facts for profile in profiles]
    zeros = [facts.zero_unix_us for facts in all_facts if facts.zero_unix_us is not None]
    recorded = [facts.recorded_step_us for facts in all_facts if facts.recorded_step_us is not None]
    batches = {facts.batch for facts in all_facts}
    return replace(
        first,
        ranks=max(len(profiles), first.ranks),
        batch=first.batch if len(batches) == 1 else None,
        timed_steps=min(facts.timed_steps for facts in all_facts),
        recorded_steps=min(facts.recorded_steps for facts in all_facts),
        recorded_step_us=median(recorded) if recorded else None,
        phases_found_by=merge_sentences([(name_rank(p), p.facts.phases_found_by) for p in profiles]),
        notes=(*merge_sentences([(name_rank(p), p.facts.notes) for p in profiles]), *describe_merge(profiles)),
        ended="; ".join(dict.fromkeys(f"{name_rank(p)}: {p.facts.ended}" for p in profiles if p.facts.ended)),
        phases_measured=all(facts.phases_measured for facts in all_facts),
        zero_unix_us=min(zeros) if len(zeros) == len(all_facts) else None,
    )


def name_rank(profile: Profile) -> str:
    """Return "rank 3" for the profile of one rank, for messages."""
    ranks = sorted(find_ranks(profile))
    return f"rank {ranks[0]}" if ranks else "a rank without steps"


def merge_sentences(by_rank: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return each sentence that all ranks have once, and any other sentence with the rank's name in front."""
    common = set.intersection(*(set(sentences) for _, sentences in by_rank))
    merged = [text if text in common else f"{name}: {text}" for name, sentences in by_rank for text in sentences]
    return tuple(dict.fromkeys(merged))


def describe_merge(profiles: Sequence[Profile]) -> list[str]:
    """Return notes about clocks, missing ranks, samples and differing facts."""
    notes = []
    if len(profiles) > 1 and any(profile.facts.zero_unix_us is None for profile in profiles):
        notes.append("The ranks' clocks have no common origin: times of different ranks cannot be compared.")
    if len(profiles) < profiles[0].facts.ranks:
        notes.append(f"Profiles of {len(profiles)} of {profiles[0].facts.ranks} ranks were merged.")
    sampled = [profile for profile in profiles if profile.samples]
    if len(sampled) > 1:
        notes.append(f"The figures of the system are those that {name_rank(sampled[0])} sampled.")
    for name in SHARED_FACTS:
        values = dict.fromkeys(str(getattr(profile.facts, name)) for profile in profiles)
        if len(values) > 1:
            notes.append(f"The ranks differ in {name}: {', '.join(values)}.")
    return notes


def merge_tables(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Return the tables of all ranks; tables with the same name and columns are joined, with a column for the rank."""
    names = dict.fromkeys(name for profile in profiles for name in profile.tables)
    merged: dict[str, Any] = {}
    for name in names:
        owners = [profile for profile in profiles if name in profile.tables]
        columns = [owner.tables[name]["columns"] for owner in owners]
        if len(owners) > 1 and all(header == columns[0] for header in columns):
            ranks = [name_rank(owner).removeprefix("rank ") for owner in owners]
            rows = [
                [rank, *row] for rank, owner in zip(ranks, owners, strict=True) for row in owner.tables[name]["rows"]
            ]
            merged[name] = {"columns": ["Rank", *columns[0]], "rows": rows}
        else:
            for owner in owners:
                merged[f"{name} ({name_rank(owner)})" if len(owners) > 1 else name] = owner.tables[name]
    return merged
