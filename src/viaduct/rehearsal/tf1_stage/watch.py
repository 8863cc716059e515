"""Training steps of a script: counts them, ends it after some of them, and keeps what it computed.

    watched = watch.start(steps=20)     # after install(), before the script
    ...                                 # the script
    watched.finish()                    # reads weights that no session has handed over yet
    watched.losses, watched.first_gradients, watched.last_variables

A step is a run of a graph that updates variables (`reach.py`). When the last one is done, loops that ask
(`should_stop`, Estimator.train, Keras fit) end by themselves and the script goes on behind them; a loop of the
script's own is ended at its next step with StopScript. Evaluations and predictions end after as many batches
(`evaluations.py`). Names are those of the graph.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from viaduct.rehearsal.tf1_stage import evaluations, gradients, sessions
from viaduct.rehearsal.tf1_stage.reach import dependencies, is_fetchable, perhaps_dead
from viaduct.rehearsal.tf1_stage.sessions import Opened, Pass
from viaduct.rehearsal.tf1_stage.variables import find_variables
from viaduct.scripts.runner import StopScript


@dataclass
class Watched(sessions.Observer):
    """Observations of a script. `losses` has one value per step, None where no loss is known."""

    limit: int | None = None
    on_step: Callable[[int, float | None], None] | None = None  # after each step: its number from 0, its loss
    by_line: bool = False  # `take_step` says when a step is over, not a run that trains
    losses: list[float | None] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)  # when each step ended, by clock and processor
    first_gradients: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    last_variables: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    trainable: list[str] = field(default_factory=list)
    stopped: bool = False  # by us
    asked: float | None = None  # when it was first asked to stop: time.monotonic()
    _unsaved: Opened | None = None
    _loss: float | None = None  # of the coming step, where it was computed before it

    @property
    def steps(self) -> int:
        """Return the number of steps taken."""
        return len(self.losses)

    @property
    def full(self) -> bool:
        return self.limit is not None and self.steps >= self.limit

    # ---- before and after each run

    def begins(self, run: Pass) -> None:
        if run.training and self.full and not self.by_line:
            self.stop()

    def stop(self) -> None:
        """Raise the exception that ends the script."""
        self.stopped = True
        self.asked = self.asked or time.monotonic()
        raise StopScript

    def select_tensors(self, run: Pass) -> list[Any]:
        """The loss, and in the first step the gradients; only what the run computes anyway."""
        wishes: list[tuple[str, str]] = []
        run.notes[id(self)] = wishes
        if not self.is_part_of_step(run):
            return []
        tensors: list[Any] = []
        self._loss = None
        loss = loss_of(run)
        if loss is not None and reads_variables(extra_dependencies(run, loss)):
            self._loss = loss_before(run, loss)
        elif loss is not None:
            wishes.append(("loss", ""))
            tensors.append(loss)
        for name, gradient in find_gradients(run) if not self.steps else []:
            for kind, tensor in dense_parts(gradient):
                wishes.append((kind, name))
                tensors.append(tensor)
        return tensors

    def is_part_of_step(self, run: Pass) -> bool:
        """Return True for a run that trains, or, where a line ends a step, one that computes gradients."""
        return run.training or (
            self.by_line and any(found.holds_any(run.reach.ops) for found in gradients.of(run.graph))
        )

    def receive_values(self, run: Pass, values: list[Any]) -> None:
        if self.by_line and not run.opened.closed:
            self._unsaved = run.opened
        if not self.is_part_of_step(run):
            return
        loss = self._loss
        parts: dict[str, dict[str, Any]] = {}
        for (kind, name), value in zip(run.notes[id(self)], values, strict=True):
            if kind == "loss":
                loss = float(np.mean(value))
            else:
                parts.setdefault(name, {})[kind] = np.array(value)
        self.first_gradients.update({name: densify_gradient(found) for name, found in parts.items()})
        if self.by_line:
            self._loss = loss
            return
        self._end_step(run.opened, loss)

    def take_step(self) -> None:
        """The line that ends a step has been executed."""
        if self.full:
            self.stop()
        loss, self._loss = self._loss, None
        if self._unsaved is None:
            self._note_step(loss)
        else:
            self._end_step(self._unsaved, loss)
        if self.full:
            self.stop()

    def _note_step(self, loss: float | None) -> None:
        self.losses.append(loss)
        self.times.append((time.monotonic(), time.process_time()))

    def _end_step(self, opened: Opened, loss: float | None) -> None:
        self._note_step(loss)
        self._unsaved = opened
        if self.on_step is not None:
            self.on_step(self.steps - 1, loss)
        if self.full:
            self.keep_variables(opened)

    # ---- weights

    def closes(self, opened: Opened) -> None:
        if opened is self._unsaved:
            self.keep_variables(opened)

    def finish(self) -> None:
        """The script is over: what its last session still holds is read."""
        if self._unsaved is not None and not self._unsaved.closed:
            self.keep_variables(self._unsaved)

    def keep_variables(self, opened: Opened) -> None:
        """Read all variables of a session."""
        graph, session = opened.session.graph, opened.session
        with sessions.internal_run():
            self.last_variables = read_variables(graph, session)
        self.trainable = [variable.op.name for variable in find_variables(graph, "trainable_variables")]
        self._unsaved = None


def loss_of(run: Pass) -> Any:
    """The loss of most variables among those whose gradients this run computes."""
    known = [found for found in gradients.of(run.graph) if found.loss is not None]
    known = [
        found for found in known if found.holds_any(run.reach.ops) and is_fetchable(found.loss) and harmless(run, found)
    ]
    return max(known, key=lambda found: len(found.pairs)).loss if known else None


def harmless(run: Pass, found: gradients.Gradients) -> bool:
    """A gradient does not need the loss itself, so a run may leave its last operators out. Adding them must change
    nothing: none of them reads data, draws random numbers or waits to be fed."""
    return not any(
        op.op_def.is_stateful or op.type.startswith("Placeholder") for op in extra_dependencies(run, found.loss)
    )


def extra_dependencies(run: Pass, loss: Any) -> set[Any]:
    """Return operators that a loss needs and the run does not execute."""
    return dependencies([loss.op], run.reach.fed) - run.reach.ops


def reads_variables(ops: set[Any]) -> bool:
    """Return True if operators read a variable's memory, which the update may have changed."""
    sources = [tensor for op in ops for tensor in op.inputs]
    sources += [tensor for source in sources if source.op.type == "Identity" for tensor in source.op.inputs]
    return any(tensor.dtype._is_ref_dtype for tensor in sources)


def loss_before(run: Pass, loss: Any) -> float | None:
    """The loss in a run of its own before the step; None where that would read data or draw random numbers."""
    needed = dependencies([loss.op], run.reach.fed)
    drawn = any(op.op_def.is_stateful and not op.type.startswith("Variable") for op in needed)
    if drawn or any(value is None for value in run.feeds.values()):  # None: fed in parts, as sparse tensors are
        return None
    with sessions.internal_run():
        return float(np.mean(run.opened.session.run(loss, feed_dict=run.feeds)))


def find_gradients(run: Pass) -> list[tuple[str, Any]]:
    """Return the gradients that the optimizers get, or those of tf.gradients where none is used."""
    alive = run.reach.ops - perhaps_dead(run.reach.ops)
    held = [(found, readable_pairs(found, alive)) for found in gradients.of(run.graph) if found.held(run.reach.ops)]
    chosen = [pairs for found, pairs in held if found.applied]
    if not chosen:
        chosen = [max((pairs for _, pairs in held), key=len, default=[])]
    return [pair for pairs in chosen for pair in pairs]


def readable_pairs(found: gradients.Gradients, alive: frozenset[Any]) -> list[tuple[str, Any]]:
    """Return the gradients that surely have a value; one that only a branch computes may have none."""
    tensors = [(name, gradient, gradients.part(gradient)) for name, gradient in found.pairs]
    return [(name, gradient) for name, gradient, tensor in tensors if tensor.op in alive and is_fetchable(tensor)]


def dense_parts(gradient: Any) -> list[tuple[str, Any]]:
    if not hasattr(gradient, "indices"):
        return [("dense", gradient)]
    parts = [("values", gradient.values), ("indices", gradient.indices)]
    return parts if gradient.dense_shape is None else [*parts, ("shape", gradient.dense_shape)]


def densify_gradient(parts: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Rows that a sparse gradient names more than once add up."""
    if "dense" in parts:
        return np.asarray(parts["dense"])
    values, indices = parts["values"], parts["indices"]
    rows = int(parts["shape"][0]) if "shape" in parts else int(indices.max(initial=-1)) + 1
    dense = np.zeros((rows, *values.shape[1:]), values.dtype)
    np.add.at(dense, indices, values)
    return dense


def read_variables(graph: Any, session: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Every variable that has a value: a resource through its own reading operator, so that the graph does not grow."""
    tensors: dict[str, Any] = {}
    for variable in find_variables(graph, "variables"):  # local ones count batches and samples: no weights
        tensor = reading(graph, variable)
        if tensor is not None:
            tensors.setdefault(variable.op.name, tensor)
    try:
        return {name: np.array(value) for name, value in session.run(tensors).items()}
    except Exception:  # one of them was never initialised; the others are worth having
        return {
            name: np.array(value) for name, tensor in tensors.items() if (value := try_run(session, tensor)) is not None
        }


def reading(graph: Any, variable: Any) -> Any:
    if hasattr(variable, "_graph_element") and variable._graph_element is not None:
        return variable._graph_element
    return getattr(variable, "_snapshot", None)


def try_run(session: Any, tensor: Any) -> Any:
    """Run a tensor; None if that fails."""
    try:
        return session.run(tensor)
    except Exception:
        return None


# ---- ending loops that ask


def start(steps: int | None = None, on_step: Callable[[int, float | None], None] | None = None) -> Watched:
    """Watch from here on; `steps` bounds training, and evaluations and predictions with it."""
    watched = Watched(steps, on_step)
    sessions.observers += [watched, evaluations.PlainLoops(watched)]
    bound_monitored_sessions(watched)
    bound_keras(watched)
    evaluations.bound_keras(watched)
    return watched


def bound_monitored_sessions(watched: Watched) -> None:
    """Under Estimator.train, evaluate and predict, and under the script's own monitored sessions."""
    from tensorflow.python.training import monitored_session

    kind: Any = monitored_session._MonitoredSession
    plain_init, plain_run = kind.__init__, kind.run

    @functools.wraps(plain_init)
    def init(self: Any, session_creator: Any, hooks: Any, *args: Any, **named: Any) -> None:
        plain_init(self, session_creator, [*(hooks or []), bounding_hook(watched)], *args, **named)

    @functools.wraps(plain_run)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        if watched.full and self.should_stop():  # the loop does not ask
            watched.stop()
        return plain_run(self, *args, **named)

    kind.__init__, kind.run = init, run


def bounding_hook(watched: Watched) -> Any:
    from tensorflow.python.training.session_run_hook import SessionRunHook

    class Bound(SessionRunHook):  # type: ignore[misc]
        """Asks the loop to end: after the last training step, or after as many batches of an evaluation."""

        def begin(self) -> None:
            self.batches, self.before = 0, watched.steps

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.batches += 1
            trained, evaluated = (
                watched.steps > self.before,
                watched.limit is not None and self.batches >= watched.limit,
            )
            if (trained and watched.full) or (not trained and evaluated):
                run_context.request_stop()

    return Bound()


def bound_keras(watched: Watched) -> None:
    """fit and fit_generator look at stop_training after each batch; an epoch that ends so is still validated."""
    import keras.src.callbacks as callbacks

    plain, plain_logs = callbacks.configure_callbacks, callbacks.CallbackList.make_logs

    class Bound(callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = self.model.stop_training or watched.full

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = self.model.stop_training or watched.full

    @functools.wraps(plain)
    def configure(given: Any, *args: Any, **named: Any) -> Any:
        if isinstance(given, callbacks.CallbackList):
            return plain(given, *args, **named)
        return plain([*as_list(given), Bound()], *args, **named)

    @functools.wraps(plain_logs)
    def make_logs(self: Any, model: Any, logs: Any, outputs: Any, mode: Any, prefix: str = "") -> Any:
        if (
            watched.full and mode == "train" and "batch" not in logs and not prefix
        ):  # an epoch's, before it is validated
            self.model.stop_training = False
        return plain_logs(self, model, logs, outputs, mode, prefix)

    callbacks.configure_callbacks, callbacks.CallbackList.make_logs = configure, make_logs


def as_list(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
