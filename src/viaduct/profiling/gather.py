"""Read the files that the processes of a profiled script have written (script_job.py): one profile for each rank."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from viaduct.profiling.collector import clear_constant_interruptions, convert_to_unix
from viaduct.profiling.json_fields import decode_record
from viaduct.profiling.merge import start_at_zero
from viaduct.profiling.record import Facts, Profile, Step
from viaduct.profiling.script_job import ENDED_FILE, FINISHED_FILE, STEPS_FILE, ScriptJob


@dataclass(frozen=True)
class RankProfile:
    """Profile of one rank, from the files of its process."""

    rank: int
    profile: Profile
    events: list[dict[str, Any]]
    taken: int  # steps, warm-up included
    done: bool = False  # all steps of the plan were taken


@dataclass(frozen=True)
class ScriptEnd:
    """End of the script in one process, as that process reported it before Python shut down."""

    code: int  # exit code of the script, or of its process where that reported nothing
    failure: str = ""  # the last line of a traceback
    absence: str = ""  # why no step was found
    rank: int | None = None
    time_s: float = 0.0  # when it ended
    killed_by: int = 0  # the signal that ended its process while Python shut down


def gather_ranks(job: ScriptJob) -> list[RankProfile]:
    """Return a profile for each rank, in their order; of several processes of one rank that with the most steps."""
    candidates = [rank for folder in list_folders(job) if (rank := read_folder(job, folder)) is not None]
    best: dict[int, RankProfile] = {}
    for candidate in candidates:
        if candidate.rank not in best or candidate.taken > best[candidate.rank].taken:
            best[candidate.rank] = candidate
    left_out = [candidate for candidate in candidates if best[candidate.rank] is not candidate]
    return [complete_facts(best[rank], left_out, len(best)) for rank in sorted(best)]


def complete_facts(rank: RankProfile, left_out: Sequence[RankProfile], ranks: int) -> RankProfile:
    """Set the number of ranks; add a note about other processes that trained under the same rank and are not shown."""
    facts = rank.profile.facts
    facts = replace(facts, ranks=max(ranks, facts.ranks))
    others = sum(other.rank == rank.rank for other in left_out)
    if others:
        more = "1 more process" if others == 1 else f"{others} more processes"
        note = f"{more} took steps as rank {rank.rank}; that with the most steps is shown."
        facts = replace(facts, notes=(*facts.notes, note))
    return replace(rank, profile=replace(rank.profile, facts=facts))


def has_all_profiles(job: ScriptJob) -> bool:
    """Return True if every process that trains has written its whole profile."""
    folders = [folder for folder in list_folders(job) if (folder / STEPS_FILE).exists()]
    return bool(folders) and all((folder / FINISHED_FILE).exists() for folder in folders)


def list_folders(job: ScriptJob) -> list[Path]:
    """Return the folders of the script's processes, which are named by process id."""
    return sorted(path for path in Path(job.record).iterdir() if path.name.isdigit())


def read_folder(job: ScriptJob, folder: Path) -> RankProfile | None:
    """Return the profile that a process wrote, or its steps until it was killed; None where it wrote nothing."""
    lines = list(read_lines(folder / STEPS_FILE))
    taken = sum(line["kind"] == "step" for line in lines)
    rank = next((int(line["rank"]) for line in lines if line["kind"] == "facts"), 0)
    if (folder / FINISHED_FILE).exists():
        profile, events, done = pickle.loads((folder / FINISHED_FILE).read_bytes())  # written by our own process
        return RankProfile(rank, profile, events, taken, done)
    return RankProfile(rank, rebuild_profile(job, lines), [], taken) if lines else None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of steps.jsonl (session.Session writes them) up to a line that is cut off."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            return


def rebuild_profile(job: ScriptJob, lines: Sequence[dict[str, Any]]) -> Profile:
    """Return the profile of a process that was killed, from the lines it had written (session.Session)."""
    known = [decode_record(Facts, line["facts"]) for line in lines if line["kind"] == "facts"]
    facts = known[-1] if known else Facts(job.target, "script")
    steps = [(line["part"], decode_record(Step, line["step"])) for line in lines if line["kind"] == "step"]
    recorded = [step for part, step in steps if part == "recorded"]
    notes = ["the process was killed: operators, kernels, memory and system figures are lost."]
    facts = replace(
        facts,
        warmup_steps=sum(part == "skip" for part, _ in steps),
        timed_steps=sum(part == "timed" for part, _ in steps),
        recorded_steps=len(recorded),
        recorded_step_us=median(step.iteration_us for step in recorded) if recorded else None,
        notes=(*facts.notes, *notes),
    )
    profile = Profile(facts, steps=[step for part, step in steps if part != "skip"])
    return clear_constant_interruptions(start_at_zero(profile, convert_to_unix(profile.start_us)))


def find_first_end(job: ScriptJob, failures: Mapping[int | None, int]) -> ScriptEnd:
    """Return the end of the rank that failed first, or any end where none failed.

    `failures` has the exit code of each failed rank, the most likely cause first; None stands for the only process.
    A rank that reported no end was killed or left by `os._exit`, and the others failed because of it.
    """
    ends = read_ends(job)
    if not failures:
        return ends[0] if ends else ScriptEnd(0)
    found = {rank: match_end(ends, rank, code) for rank, code in failures.items()}
    for rank, end in found.items():
        if end is None:
            return ScriptEnd(failures[rank], rank=rank)
    return min((end for end in found.values() if end is not None), key=lambda end: end.time_s)


def match_end(ends: Sequence[ScriptEnd], rank: int | None, code: int) -> ScriptEnd | None:
    """Return the end that a rank reported whose process had this exit code; None where it reported none.

    A script that failed may still be ended by a signal while Python shuts down: threads of gloo sometimes abort it.
    """
    own = [end for end in ends if rank is None or end.rank == rank]
    for end in own:
        if end.code == code:
            return end
    return next((replace(end, killed_by=-code) for end in own if end.code != 0 and code < 0), None)


def read_ends(job: ScriptJob) -> list[ScriptEnd]:
    """Return how the script ended in each process that ran it, the first end first."""
    files = [folder / ENDED_FILE for folder in list_folders(job)]
    ends = [ScriptEnd(**json.loads(file.read_text(encoding="utf-8"))) for file in files if file.exists()]
    return sorted(ends, key=lambda end: end.time_s)
