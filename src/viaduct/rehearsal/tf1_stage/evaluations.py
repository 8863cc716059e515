"""Bounds on evaluation loops: as many batches as there may be training steps.

- Keras: evaluate, and the validation of fit, look at so many batches; predict too where it is given a data set, a
  generator or steps. Of arrays a script expects a row for each row, so these are predicted whole.
- A loop of the script's own that reads a data set until its end, and says so (`except tf.errors.OutOfRangeError`), is
  told that the end has come.
- Any other loop of its own cannot be left from outside. Where no training can follow it (the last step is taken, or
  nothing in the graph trains) the script is stopped, after PATIENCE batches at least: a short evaluation at the end of
  a script is worth seeing.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import gradients, sessions
from viaduct.rehearsal.tf1_stage.sessions import Pass

if TYPE_CHECKING:
    from viaduct.rehearsal.tf1_stage.watch import Watched

PATIENCE = 100
BEGINS_ANEW = ("MakeIterator", "InitializeTableV2")
THE_END = ("OutOfRangeError", "OpError")
Line = tuple[str, int]


class PlainLoops(sessions.Observer):
    """Counts the runs that each line of the script asks for, in each session, since the last training step."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.counted: Counter[tuple[int, tuple[Line, ...]]] = Counter()

    def begins(self, run: Pass) -> None:
        """Count a run of an evaluation loop; a run that trains begins the count anew."""
        if run.training or any(op.type in BEGINS_ANEW for op in run.reach.ops):
            self.counted.clear()
        elif self.watched.limit is not None and not run.by_keras and (run.reach.reads_data or run.feeds):
            self.count(run, self.watched.limit)

    def count(self, run: Pass, limit: int) -> None:
        """Count a run of one loop, and end the loop at its limit."""
        stack = users_lines()
        loop = (id(run.opened), stack)  # the stage holds on to what is opened, so its id stays its own
        self.counted[loop] += 1
        if self.counted[loop] > limit and run.reach.reads_data and any(map(is_guarded, stack)):
            self.counted[loop] = 0
            self.end_of_data(limit)
        if self.counted[loop] > max(limit, PATIENCE) and self.is_last(run):
            self.watched.stop()

    def is_last(self, run: Pass) -> bool:
        """Return True if no training follows this loop."""
        return self.watched.full or (not self.watched.steps and not gradients.of(run.graph))

    @staticmethod
    def end_of_data(limit: int) -> None:
        """Raise the error with which a dataset ends."""
        import tensorflow.compat.v1 as tf

        raise tf.errors.OutOfRangeError(None, None, f"End of sequence: a rehearsal's loop ends after {limit} batches")


def users_lines() -> tuple[Line, ...]:
    """The script's own lines on the stack, the innermost first."""
    frames = (frame for frame in limits.frames() if limits.is_users(frame.f_code.co_filename))
    return tuple((frame.f_code.co_filename, frame.f_lineno) for frame in frames)


def is_guarded(line: Line) -> bool:
    """Return True if a line is in a `try` that expects the end of a dataset."""
    return any(first <= line[1] <= last for first, last in find_guarded_lines(line[0]))


@functools.cache
def find_guarded_lines(file: str) -> list[tuple[int, int]]:
    """Return the line ranges of `try` blocks that expect the end of a dataset."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8", errors="replace"))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and any(map(names_the_end, node.handlers))]
    return [(block.body[0].lineno, block.body[-1].end_lineno or 0) for block in blocks]


def names_the_end(handler: ast.ExceptHandler) -> bool:
    """Return True if an except clause catches the end of a dataset."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is not None and ast.unparse(kind).rpartition(".")[2] in THE_END for kind in kinds)


# ---- Keras


def bound_keras(watched: Watched) -> None:
    """Its two loops, one over arrays and data sets and one over generators, under all the names that they have."""
    from keras.src.engine import training_arrays_v1, training_generator_v1

    for module, cap in ((training_arrays_v1, cap_arrays), (training_generator_v1, cap_generator)):
        plain = module.model_iteration
        bounded = bounded_iteration(plain, watched, cap)
        for name, value in list(vars(module).items()):
            if value is plain:
                setattr(module, name, bounded)
            elif isinstance(value, functools.partial) and value.func is plain:
                setattr(module, name, functools.partial(bounded, *value.args, **value.keywords))


def bounded_iteration(
    plain: Callable[..., Any], watched: Watched, cap: Callable[[dict[str, Any], int], None]
) -> Callable[..., Any]:
    """Wrap a loop of Keras, so that it makes no more steps than the cap."""
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def iterate(*args: Any, **named: Any) -> Any:
        if "steps" in named:
            named["steps_per_epoch"] = named.pop("steps")
        given = signature.bind(*args, **named).arguments
        if watched.limit is not None and str(given.get("mode", "train")) != "train":
            if given.get("steps_per_epoch") is not None:
                given["steps_per_epoch"] = min(given["steps_per_epoch"], watched.limit)
            else:
                cap(given, watched.limit)
        return plain(**given)

    return iterate


def cap_arrays(given: dict[str, Any], limit: int) -> None:
    """A data set is cut off; of arrays, their first rows are evaluated."""
    import tensorflow.compat.v1 as tf

    if isinstance(given["inputs"], tf.data.Dataset):
        given["inputs"] = given["inputs"].take(limit)
    elif str(given["mode"]) == "test" and not given.get("prepared_feed_values_from_dataset"):
        rows = limit * (given.get("batch_size") or 32)
        for name in ("inputs", "targets", "sample_weights"):
            if given.get(name) is not None:
                given[name] = tf.nest.map_structure(lambda array: first(array, rows), given[name])


def first(array: Any, rows: int) -> Any:
    return array[:rows] if isinstance(array, np.ndarray) else array


def cap_generator(given: dict[str, Any], limit: int) -> None:
    """A Sequence knows its length; other generators come with steps."""
    import tensorflow.compat.v1 as tf
    from keras.src.utils.data_utils import Sequence

    data = given["data"]
    if isinstance(data, Sequence):
        given["steps_per_epoch"] = min(len(data), limit)
    elif isinstance(data, tf.data.Dataset):
        given["data"] = data.take(limit)
