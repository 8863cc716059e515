"""State of a run, judged from its lock (RUN/.lock) and its files. Training that is stopped or fails writes ending.json.

running       a live process holds RUN/.lock
finished      summary.json was written for the recipe's length, perhaps after fewer steps (`stop_threshold`, a callback)
interrupted   it was stopped and saved a checkpoint: `viaduct train --run RUN` resumes it
pruned        interrupted by `viaduct search`, which stopped this trial early
crashed       it ended in an error, or it had begun, its lock is free, and there is no ending.json
never begun   no step was logged or saved, there is no ending.json, and no process holds the lock
unknown       none of these is shown, because a file is damaged or missing, or the lock cannot be tested
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from viaduct.errors import BadRun
from viaduct.run_files import ENDING, read_json_object
from viaduct.runs.facts import RunFacts, State

FINAL_WEIGHTS = "model.safetensors"
TRIAL_FILE = "trial.json"
"""File that a search writes into the run directory of each of its trials."""
KILLED = (
    "no ending was written: probably the process was killed (SIGKILL, out of memory), lost a rank or filled the disk, "
    "or the machine went down"
)


def is_locked(folder: str) -> bool | None:
    """Return True while a process holds the run's lock; None if that cannot be tested.

    A shared lock is taken and released at once; a process that wants the lock at this moment tries again
    (training/rundir.py).
    """
    try:
        descriptor = os.open(f"{folder}/.lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)  # this releases the lock
    return False


def set_state(run: RunFacts) -> None:
    """Set a run's state and the reason for it, from its lock and its files."""
    locked = is_locked(run.path)
    if locked:
        run.state, run.reason = "running", describe_process(run)
    elif run.is_complete:
        run.state, run.reason = "finished", ""
        if not any(os.path.exists(f"{run.path}/{name}") for name in (FINAL_WEIGHTS, "checkpoints")):
            run.damage = [*run.damage, f"neither {FINAL_WEIGHTS} nor checkpoints: its weights are gone"]
    elif locked is None:
        run.state, run.reason = "unknown", "its .lock cannot be opened or tested: a process may be at work"
    else:
        run.state, run.reason = judge_stopped(run)


def describe_process(run: RunFacts) -> str:
    """Describe the process that holds the lock, by the id in the lock file; empty if the file has none."""
    try:
        with open(f"{run.path}/.lock", "rb") as file:
            number = file.read(32).decode("ascii", "replace").strip()
    except OSError:
        number = ""
    host = f" on {run.host}" if run.host else ""
    return f"process {number}{host}" if number.isdigit() else ""


def judge_stopped(run: RunFacts) -> tuple[State, str]:
    """Return state and reason of a run that no process holds and whose summary does not show that it finished."""
    ending = run.ending
    if ending is not None and ending["outcome"] == "interrupted":
        pruning = read_pruning(run.path)
        return ("interrupted", ending["reason"]) if pruning is None else ("pruned", pruning)
    if ending is not None:
        return "crashed", ending["reason"] or "an error"
    if gap := describe_gap(run):
        return "unknown", f"{gap}; {describe_progress(run)}"
    if run.steps == 0 and run.newest_checkpoint is None:
        return "never begun", "no step was logged or saved"
    if run.newest_checkpoint is not None and run.newest_checkpoint >= run.steps and not run.has_provenance:
        # Early versions wrote no endings. A stopped run saves a checkpoint of its last logged step.
        return "interrupted", f"saved after step {run.newest_checkpoint:,}"
    return "crashed", describe_crash(run)


def describe_gap(run: RunFacts) -> str:
    """Return why the files of a run without a readable ending do not show how it ended; empty if they do."""
    if "summary.json" in run.unreadable:
        return "summary.json cannot be read, so that it is not known whether the run finished"
    if ENDING in run.unreadable:
        return f"it was stopped or failed: {ENDING}, which says why, cannot be read"
    if "metrics.jsonl" in run.unreadable:
        return "metrics.jsonl cannot be read"
    if not run.steps:
        return ""
    present = {name for name in (".lock", "summary.json", FINAL_WEIGHTS) if os.path.lexists(f"{run.path}/{name}")}
    if FINAL_WEIGHTS in present and "summary.json" not in present:
        return f"it has {FINAL_WEIGHTS}, which is written after the last step, but no summary.json"
    if run.has_provenance and ".lock" not in present:
        return f"it has no summary.json, {ENDING} or .lock: perhaps a part of a run was copied"
    return ""


def describe_progress(run: RunFacts) -> str:
    """Return how far the metrics and checkpoints reach, for a run whose end is not known."""
    total = f" of {run.steps_total:,}" if run.steps_total else ""
    saved = "no checkpoint" if run.newest_checkpoint is None else f"a checkpoint of step {run.newest_checkpoint:,}"
    return f"its metrics reach step {run.steps:,}{total}, and it has {saved}"


def read_pruning(folder: str) -> str | None:
    """Return the reason why a search stopped this trial early; None if no search did."""
    try:
        trial = read_json_object(Path(folder, TRIAL_FILE))
    except (OSError, BadRun):
        return None
    return str(trial.get("reason") or "given up by the search") if trial.get("state") == "pruned" else None


def describe_crash(run: RunFacts) -> str:
    lost = "" if run.lost_step is None else f"the loss was NaN or infinite at step {run.lost_step:,}"
    if run.has_provenance:  # a loss that diverged would have been written as the ending
        return f"{KILLED}; {lost}" if lost else KILLED
    return lost or "neither an ending nor a checkpoint of the last step"
