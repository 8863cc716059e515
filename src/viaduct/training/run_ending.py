"""RUN/ending.json: how the last session of a run ended before its last step; a finished run has summary.json instead.

    {"outcome": "interrupted", "step": 40, "steps": 600, "reason": "SIGTERM", "time": …}
    {"outcome": "failed", "step": 41, "steps": 600, "reason": "the loss became nan at step 42 …", "time": …}

A process that is killed writes neither file: whoever reads the run sees that it has no ending.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viaduct.errors import LostRank, ViaductError
from viaduct.run_files import ENDING
from viaduct.training.rundir import RunDir, write_json

if TYPE_CHECKING:
    from viaduct.training.loop import Training


def write_ending(training: Training, outcome: str, reason: str) -> None:
    """Write down how this session ended; of several ranks the first does."""
    run = training.run
    if not training.group.first or training.recipe.evaluation.eval_only or not run.begun:
        return
    record = {"outcome": outcome, "step": training.step, "steps": training.steps, "reason": reason, "time": time.time()}
    with contextlib.suppress(OSError):  # a full disk has its own message
        write_json(run.path / ENDING, record)


def remove_ending(run: RunDir) -> None:
    """Forget how the session before ended; the run goes on."""
    (run.path / ENDING).unlink(missing_ok=True)


@contextlib.contextmanager
def failure_recorded(training: Training) -> Iterator[None]:
    """Record an error that ends the run, and pass it on. A lost rank is no end: the ranks are started again."""
    try:
        yield
    except LostRank:
        raise
    except ViaductError as error:
        write_ending(training, "failed", error.what)
        raise
    except Exception as error:
        write_ending(training, "failed", f"{type(error).__name__}: {error}")
        raise
