"""Bounds on evaluation loops: they take at most as many batches as training steps are allowed.

That number is `ScriptWatch.max_steps`, here called the limit.

- Keras: evaluate, and the validation of fit, take at most `limit` batches; so does predict for a dataset, a Sequence
  or a number of steps. Arrays are predicted completely: a script expects one row of output for each row.
- A loop of the script that reads a dataset until its end, and catches this (`except tf.errors.OutOfRangeError`), gets
  this error after `limit` batches.
- Any other loop of the script cannot be left from outside. If no training can follow it (the last step is taken, or no
  step was taken and the graph has no gradients), the script is stopped after MIN_EVALUATION_BATCHES batches, or after
  `limit` if that is larger, so that a short evaluation at the end of a script is complete.
- Loops of monitored sessions, and so of Estimators, are bounded in `watch.py`.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import gradients, sessions
from viaduct.rehearsal.tf1_stage.sessions import GraphRun
from viaduct.scripts.notebook_runs import parse_source

if TYPE_CHECKING:
    from viaduct.rehearsal.tf1_stage.watch import ScriptWatch

MIN_EVALUATION_BATCHES = 100  # before a loop is stopped, even if the limit is smaller
RESETTING_OPERATORS = ("MakeIterator", "InitializeTableV2")  # operators with which the script begins another loop
END_OF_DATA_ERRORS = ("OutOfRangeError", "OpError")  # the error at the end of a dataset, and its base class
Line = tuple[str, int]  # file and line number


class EvaluationBounds(sessions.Observer):
    """Counts runs without training that read data or are fed, for each session and each stack of the script's lines.

    A training step, or an operator of RESETTING_OPERATORS, resets the counts.
    """

    def __init__(self, script_watch: ScriptWatch) -> None:
        self.script_watch = script_watch
        self.counted: Counter[tuple[int, tuple[Line, ...]]] = Counter()  # runs by session and stack

    def before_run(self, run: GraphRun) -> None:
        """Count a run of an evaluation loop, or reset the counts."""
        if run.is_training or any(op.type in RESETTING_OPERATORS for op in run.subgraph.ops):
            self.counted.clear()
        elif self.script_watch.max_steps is not None and not run.is_by_keras and (run.subgraph.reads_data or run.feeds):
            self.count(run, self.script_watch.max_steps)

    def count(self, run: GraphRun, limit: int) -> None:
        """Count a run of one loop, and end the loop at its limit."""
        frames = (frame for frame in limits.iterate_frames() if limits.is_users_file(frame.f_code.co_filename))
        stack = tuple((frame.f_code.co_filename, frame.f_lineno) for frame in frames)
        loop = (id(run.session_record), stack)  # ids are unique, since sessions.session_records keeps every record
        self.counted[loop] += 1
        if self.counted[loop] > limit and run.subgraph.reads_data and any(map(is_end_of_data_caught, stack)):
            import tensorflow.compat.v1 as tf

            self.counted[loop] = 0
            message = f"End of sequence: a rehearsal's loop ends after {limit} batches"
            raise tf.errors.OutOfRangeError(None, None, message)
        has_training = self.script_watch.steps or gradients.find_recorded_gradients(run.graph)
        can_stop = self.script_watch.is_limit_reached or not has_training
        if can_stop and self.counted[loop] > max(limit, MIN_EVALUATION_BATCHES):
            self.script_watch.stop()


def is_end_of_data_caught(line: Line) -> bool:
    """Return True if a line is in a `try` that catches the end of a dataset."""
    file, number = line
    return any(first <= number <= last for first, last in find_guarded_lines(file))


@functools.cache
def find_guarded_lines(file: str) -> list[tuple[int, int]]:
    """Return the line ranges of `try` blocks that expect the end of a dataset."""
    tries = [node for node in ast.walk(parse_source(file)) if isinstance(node, ast.Try)]
    blocks = [node for node in tries if any(map(catches_end_of_data, node.handlers))]
    return [(block.body[0].lineno, block.body[-1].end_lineno or 0) for block in blocks]


def catches_end_of_data(handler: ast.ExceptHandler) -> bool:
    """Return True if an except clause names the error at the end of a dataset; `except:` and `Exception` do not."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is not None and ast.unparse(kind).rpartition(".")[2] in END_OF_DATA_ERRORS for kind in kinds)


# ---- Keras


def bound_keras_evaluations(script_watch: ScriptWatch) -> None:
    """Wrap Keras' two loops, for arrays and datasets and for generators, under every name in their modules."""
    from keras.src.engine import training_arrays_v1, training_generator_v1

    for module, cap in ((training_arrays_v1, cap_arrays), (training_generator_v1, cap_generator)):
        plain = module.model_iteration
        bounded = bound_iteration(plain, script_watch, cap)
        for name, value in list(vars(module).items()):
            if value is plain:
                setattr(module, name, bounded)
            elif isinstance(value, functools.partial) and value.func is plain:
                setattr(module, name, functools.partial(bounded, *value.args, **value.keywords))


def bound_iteration(
    plain: Callable[..., Any], script_watch: ScriptWatch, cap: Callable[[dict[str, Any], int], None]
) -> Callable[..., Any]:
    """Wrap a loop of Keras so that evaluation and prediction take at most `script_watch.max_steps` batches.

    `cap` bounds the input if the script gives no number of steps.
    """
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def iterate(*args: Any, **kwargs: Any) -> Any:
        if "steps" in kwargs:
            kwargs["steps_per_epoch"] = kwargs.pop("steps")
        arguments = signature.bind(*args, **kwargs).arguments
        if script_watch.max_steps is not None and str(arguments.get("mode", "train")) != "train":
            if arguments.get("steps_per_epoch") is not None:
                arguments["steps_per_epoch"] = min(arguments["steps_per_epoch"], script_watch.max_steps)
            else:
                cap(arguments, script_watch.max_steps)
        return plain(**arguments)

    return iterate


def cap_arrays(arguments: dict[str, Any], limit: int) -> None:
    """Shorten the inputs of the array loop to `limit` batches: a dataset always, arrays only in an evaluation."""
    import tensorflow.compat.v1 as tf

    if isinstance(arguments["inputs"], tf.data.Dataset):
        arguments["inputs"] = arguments["inputs"].take(limit)
    elif str(arguments["mode"]) == "test" and not arguments.get("prepared_feed_values_from_dataset"):
        rows = limit * (arguments.get("batch_size") or 32)  # 32 is Keras' default
        for name in ("inputs", "targets", "sample_weights"):
            if arguments.get(name) is not None:
                arguments[name] = tf.nest.map_structure(
                    lambda array: array[:rows] if isinstance(array, np.ndarray) else array, arguments[name]
                )


def cap_generator(arguments: dict[str, Any], limit: int) -> None:
    """Bound a Sequence or a dataset to `limit` batches; for other generators Keras needs a number of steps anyway."""
    import tensorflow.compat.v1 as tf
    from keras.src.utils.data_utils import Sequence

    data = arguments["data"]
    if isinstance(data, Sequence):
        arguments["steps_per_epoch"] = min(len(data), limit)
    elif isinstance(data, tf.data.Dataset):
        arguments["data"] = data.take(limit)
