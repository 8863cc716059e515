"""Read the files that the processes of a profiled script wrote (script_job.py), and build a profile for each rank."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from viaduct.json_records import decode_record, load_object
from viaduct.profiling.collector import clear_constant_interruptions, convert_to_unix, measure_recorded_us
from viaduct.profiling.merge import start_at_zero
from viaduct.profiling.record import Facts, Profile, Step
from viaduct.profiling.script_job import ENDED_FILE, FINISHED_FILE, STEPS_FILE, ScriptJob


@dataclass(frozen=True)
class RankProfile:
    """Profile of one rank, read from the files of its process."""

    rank: int
    profile: Profile
    events: list[dict[str, Any]]
    step_count: int  # number of steps, including warm-up
    done: bool = False  # True if all steps of the job's plan were taken


@dataclass(frozen=True)
class ScriptEnd:
    """End of the script in one process, as the process reported it."""

    code: int  # exit code of the script, or of its process if the script's is unknown
    failure: str = ""  # the last line of a traceback
    missing_steps: str = ""  # the reason if no step was found
    rank: int | None = None
    time_s: float = 0.0  # when it ended
    killed_by: int = 0  # number of the signal that killed the process after the script had ended; 0: none


def gather_ranks(job: ScriptJob) -> list[RankProfile]:
    """Return a profile for each rank, in order."""
    by_rank: dict[int, list[RankProfile]] = defaultdict(list)
    for folder in list_folders(job):
        if (profile := read_folder(job, folder)) is not None:
            by_rank[profile.rank].append(profile)
    return [choose_longest(by_rank[rank], len(by_rank)) for rank in sorted(by_rank)]


def choose_longest(candidates: Sequence[RankProfile], ranks: int) -> RankProfile:
    """Return the profile with the most steps among processes that have the same rank; a note counts the rest.

    `ranks` is the number of ranks that have a profile.
    """
    chosen = max(candidates, key=lambda candidate: candidate.step_count)
    facts = replace(chosen.profile.facts, ranks=max(ranks, chosen.profile.facts.ranks))
    if len(candidates) > 1:
        count = "1 more process" if len(candidates) == 2 else f"{len(candidates) - 1} more processes"
        note = f"{count} took steps as rank {chosen.rank}; the one with the most steps is shown."
        facts = replace(facts, notes=(*facts.notes, note))
    return replace(chosen, profile=replace(chosen.profile, facts=facts))


def has_all_profiles(job: ScriptJob) -> bool:
    """Return True if every process that trains has written its complete profile."""
    folders = [folder for folder in list_folders(job) if (folder / STEPS_FILE).exists()]
    return bool(folders) and all((folder / FINISHED_FILE).exists() for folder in folders)


def list_folders(job: ScriptJob) -> list[Path]:
    """Return the folders of the script's processes, which are named by process id."""
    return sorted(path for path in Path(job.record_folder).iterdir() if path.name.isdigit())


def read_folder(job: ScriptJob, folder: Path) -> RankProfile | None:
    """Return the profile that a process wrote; if it wrote none, a profile of its steps; None if it wrote neither."""
    records = list(read_records(folder / STEPS_FILE))
    step_count = sum(record["kind"] == "step" for record in records)
    rank = next((int(record["rank"]) for record in records if record["kind"] == "facts"), 0)
    if (folder / FINISHED_FILE).exists():
        profile, events, done = pickle.loads((folder / FINISHED_FILE).read_bytes())  # written by our own process
        return RankProfile(rank, profile, events, step_count, done)
    return RankProfile(rank, rebuild_profile(job, records), [], step_count) if records else None


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records that session.Session wrote into steps.jsonl, up to a damaged line; none without the file."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            return


def rebuild_profile(job: ScriptJob, records: Sequence[dict[str, Any]]) -> Profile:
    """Return the profile of a process that ended before it wrote one, from the records in its steps.jsonl."""
    known_facts = [decode_record(Facts, record["facts"]) for record in records if record["kind"] == "facts"]
    facts = known_facts[-1] if known_facts else Facts(job.target, "script")
    steps = [(record["part"], decode_record(Step, record["step"])) for record in records if record["kind"] == "step"]
    recorded = [step for part, step in steps if part == "recorded"]
    facts = replace(
        facts,
        warmup_steps=sum(part == "skip" for part, _ in steps),
        timed_steps=sum(part == "timed" for part, _ in steps),
        recorded_steps=len(recorded),
        recorded_step_us=measure_recorded_us(recorded),
        notes=(*facts.notes, "the process ended early: operators, kernels, memory and system figures are lost."),
    )
    profile = Profile(facts, steps=[step for part, step in steps if part != "skip"])
    return clear_constant_interruptions(start_at_zero(profile, convert_to_unix(profile.start_us)))


def find_first_end(job: ScriptJob, failures: Mapping[int | None, int]) -> ScriptEnd:
    """Return the end of the rank that failed first, or any end if none failed.

    `failures` has the exit code of each failed rank, the most likely cause first; a single process has the rank None.
    """
    ends = read_ends(job)
    if not failures:
        return ends[0] if ends else ScriptEnd(0)
    end_by_rank = {rank: match_end(ends, rank, code) for rank, code in failures.items()}
    for rank, end in end_by_rank.items():
        if end is None:  # killed, or ended by os._exit, which is the likely cause of the other failures
            return ScriptEnd(failures[rank], rank=rank)
    return min((end for end in end_by_rank.values() if end is not None), key=lambda end: end.time_s)


def match_end(ends: Sequence[ScriptEnd], rank: int | None, code: int) -> ScriptEnd | None:
    """Return the end that a rank reported, given the exit code of its process; None if there is no report.

    A script that failed may be killed by a signal while Python shuts down: threads of gloo sometimes abort it.
    """
    candidates = [end for end in ends if rank is None or end.rank == rank]
    for end in candidates:
        if end.code == code:
            return end
    return next((replace(end, killed_by=-code) for end in candidates if end.code != 0 and code < 0), None)


def read_ends(job: ScriptJob) -> list[ScriptEnd]:
    files = [folder / ENDED_FILE for folder in list_folders(job)]
    ends: list[ScriptEnd] = [decode_record(ScriptEnd, load_object(file)) for file in files if file.exists()]
    return sorted(ends, key=lambda end: end.time_s)
