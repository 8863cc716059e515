"""Files of a script's processes as one profile for each rank."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from viaduct.profiling.collector import Plan
from viaduct.profiling.gather import ScriptEnd, find_first_end, gather_ranks, has_all_profiles
from viaduct.profiling.record import Facts, Step
from viaduct.profiling.script_job import ENDED_FILE, FINISHED_FILE, STEPS_FILE, ScriptJob


def make_job(folder: Path) -> ScriptJob:
    (folder / "record").mkdir()
    return ScriptJob(str(folder / "train.py"), (), False, str(folder / "record"), str(folder), Plan(0, 4, 0))


def write_steps(job: ScriptJob, process: int, rank: int, count: int) -> Path:
    """Write what a process of a rank had logged when it was killed."""
    folder = Path(job.record_folder) / str(process)
    folder.mkdir()
    steps = [Step(rank, number, number + 0.2, number + 0.7, number + 1.0, float(number)) for number in range(count)]
    lines: list[dict[str, Any]] = [
        {"kind": "facts", "rank": rank, "facts": asdict(Facts("train.py", "script", batch=8))},
        *({"kind": "step", "part": "timed", "step": asdict(step)} for step in steps),
    ]
    (folder / STEPS_FILE).write_text("\n".join(json.dumps(line) for line in lines))
    return folder


def test_a_line_that_was_torn_by_a_kill_is_left_out(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with (write_steps(job, 7, rank=1, count=2) / STEPS_FILE).open("a") as file:
        file.write('\n{"kind": "step", "part": "ti')
    (rank,) = gather_ranks(job)
    assert (rank.rank, rank.step_count, rank.done) == (1, 2, False)
    assert [step.iteration_us for step in rank.profile.steps] == [1.0, 1.0]
    assert rank.profile.facts.batch == 8
    assert "the process ended early" in rank.profile.facts.notes[0]


def test_of_two_processes_of_a_rank_the_one_with_the_most_steps_is_shown(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    for process, rank, count in ((7, 0, 1), (8, 0, 3), (9, 1, 2)):
        write_steps(job, process, rank, count)
    first, second = gather_ranks(job)
    assert [len(each.profile.steps) for each in (first, second)] == [3, 2]
    assert "1 more process took steps as rank 0; the one with the most steps is shown." in first.profile.facts.notes
    assert not any("more process" in note for note in second.profile.facts.notes)
    assert first.profile.facts.ranks == 2


def test_a_run_is_complete_only_when_every_process_that_trains_has_written_its_profile(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    assert not has_all_profiles(job)
    folders = [write_steps(job, process, 0, 1) for process in (7, 8)]
    (Path(job.record_folder) / "9").mkdir()  # a process that took no step
    (folders[0] / FINISHED_FILE).touch()
    assert not has_all_profiles(job)
    (folders[1] / FINISHED_FILE).touch()
    assert has_all_profiles(job)


def write_end(job: ScriptJob, process: int, rank: int, code: int, time_s: float) -> None:
    note = {"code": code, "failure": f"error of {process}", "missing_steps": "", "rank": rank, "time_s": time_s}
    (write_steps(job, process, rank, 1) / ENDED_FILE).write_text(json.dumps(note))


def test_the_end_is_that_of_the_process_with_this_exit_code(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_end(job, 7, rank=0, code=0, time_s=1.0)
    write_end(job, 8, rank=0, code=3, time_s=2.0)
    assert find_first_end(job, {None: 3}) == ScriptEnd(3, "error of 8", "", 0, 2.0)
    assert find_first_end(job, {None: 9}) == ScriptEnd(9)
    assert find_first_end(job, {None: -6}) == ScriptEnd(3, "error of 8", "", 0, 2.0, killed_by=6)


def test_of_failed_ranks_the_end_is_the_earliest(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_end(job, 7, rank=0, code=1, time_s=2.0)
    write_end(job, 8, rank=1, code=9, time_s=1.0)
    assert find_first_end(job, {0: 1, 1: -6}) == ScriptEnd(9, "error of 8", "", 1, 1.0, killed_by=6)
    assert find_first_end(job, {0: 1}).rank == 0


def test_a_rank_that_was_killed_comes_before_one_that_failed_because_of_it(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_end(job, 7, rank=0, code=1, time_s=1.0)
    assert find_first_end(job, {1: -9, 0: 1}) == ScriptEnd(-9, rank=1)
    assert find_first_end(job, {0: 1, 1: 5}) == ScriptEnd(5, rank=1)


def test_a_script_that_succeeded_and_was_aborted_afterwards_has_no_end_of_its_own(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_end(job, 7, rank=0, code=0, time_s=1.0)
    assert find_first_end(job, {None: -6}) == ScriptEnd(-6)
    assert find_first_end(job, {}).failure == "error of 7"
