"""Files of a script's processes as one profile for each rank."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from viaduct.profiling.gather import ScriptEnd, gather_ranks, has_all_profiles, read_end
from viaduct.profiling.record import Facts, Step
from viaduct.profiling.script_job import ENDED, FINISHED, STEPS, ScriptJob


def make_job(folder: Path) -> ScriptJob:
    (folder / "record").mkdir()
    return ScriptJob(str(folder / "train.py"), (), False, str(folder / "record"), str(folder), 0, 4, 0)


def write_steps(job: ScriptJob, process: int, rank: int, count: int) -> Path:
    """Write what a process of a rank had logged when it was killed."""
    folder = Path(job.record) / str(process)
    folder.mkdir()
    steps = [Step(rank, number, number + 0.2, number + 0.7, number + 1.0, float(number)) for number in range(count)]
    lines: list[dict[str, Any]] = [
        {"kind": "facts", "rank": rank, "facts": asdict(Facts("train.py", "script", batch=8))},
        *({"kind": "step", "part": "timed", "step": asdict(step)} for step in steps),
    ]
    (folder / STEPS).write_text("\n".join(json.dumps(line) for line in lines))
    return folder


def test_a_line_that_was_torn_by_a_kill_is_left_out(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with (write_steps(job, 7, rank=1, count=2) / STEPS).open("a") as file:
        file.write('\n{"kind": "step", "part": "ti')
    (rank,) = gather_ranks(job)
    assert (rank.rank, rank.taken, rank.done) == (1, 2, False)
    assert [step.iteration_us for step in rank.profile.steps] == [1.0, 1.0]
    assert rank.profile.facts.batch == 8
    assert "the process was killed" in rank.profile.facts.notes[0]


def test_of_two_processes_of_a_rank_the_one_with_the_most_steps_is_shown(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    for process, rank, count in ((7, 0, 1), (8, 0, 3), (9, 1, 2)):
        write_steps(job, process, rank, count)
    first, second = gather_ranks(job)
    assert [len(each.profile.steps) for each in (first, second)] == [3, 2]
    assert "1 more process took steps as rank 0; that with the most steps is shown." in first.profile.facts.notes
    assert not any("more process" in note for note in second.profile.facts.notes)
    assert first.profile.facts.ranks == 2


def test_a_run_is_complete_only_when_every_process_that_trains_has_written_its_profile(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    assert not has_all_profiles(job)
    folders = [write_steps(job, process, 0, 1) for process in (7, 8)]
    (Path(job.record) / "9").mkdir()  # a process that took no step
    (folders[0] / FINISHED).touch()
    assert not has_all_profiles(job)
    (folders[1] / FINISHED).touch()
    assert has_all_profiles(job)


def test_the_end_is_that_of_the_process_with_this_exit_code(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    for process, code in ((7, 0), (8, 3)):
        note = {"code": code, "failure": f"error of {process}", "absence": "", "rank": process}
        (write_steps(job, process, 0, 1) / ENDED).write_text(json.dumps(note))
    assert read_end(job, 3) == ScriptEnd("error of 8", "", 8)
    assert read_end(job, 9) == ScriptEnd()
