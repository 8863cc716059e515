"""Watches the training steps of a script: counts them, ends the script after a number of them, records their results.

    script_watch = watch.start_watching(steps=20)  # after tf1_stage.install(), before the script
    ...                                            # the script
    script_watch.store_last_variables()            # reads the weights of a session that is still open
    script_watch.losses, script_watch.first_gradients, script_watch.last_variables

A step is a run of a graph that trains (`subgraph.py`). After the last step, loops that check for a stop (`should_stop`,
Estimator.train, Keras fit) end, and the script continues after them. Other loops are ended at their next step with
StopScript. Evaluations and predictions are bounded by the same number of batches (`evaluations.py`). Variables and
gradients have the names of variables in the graph.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from viaduct.rehearsal.tf1_stage import evaluations, sessions
from viaduct.rehearsal.tf1_stage.gradients import Gradients, find_recorded_gradients, get_dense_tensor
from viaduct.rehearsal.tf1_stage.sessions import GraphRun, SessionRecord
from viaduct.rehearsal.tf1_stage.subgraph import find_dependencies, find_perhaps_dead, is_fetchable
from viaduct.rehearsal.tf1_stage.variables import find_variables, read_tensor
from viaduct.rehearsal.wrapping import wrap
from viaduct.scripts.runner import StopScript


@dataclass
class ScriptWatch(sessions.Observer):
    """Counts, bounds and records the training steps of a script."""

    max_steps: int | None = None  # training steps, and batches of an evaluation; None: no limit
    # With --step-at a step ends when `on_step_end` is called, not with a run that trains.
    uses_step_at: bool = False
    losses: list[float | None] = field(default_factory=list)  # the mean loss of each step; None if unknown
    end_times: list[tuple[float, float]] = field(default_factory=list)  # of the steps: monotonic(), process_time()
    first_gradients: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    last_variables: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    stop_requested_at: float | None = None  # time.monotonic() when StopScript was first raised
    _unsaved: SessionRecord | None = None  # the session of the last step, until its variables are stored
    # The loss of the present step if it is known before the step's end: from a run before the step
    # (`compute_loss_before_step`), or with `uses_step_at` from a run within the step.
    _loss: float | None = None

    @property
    def steps(self) -> int:
        return len(self.losses)

    @property
    def is_limit_reached(self) -> bool:
        """Return True if `max_steps` steps were taken."""
        return self.max_steps is not None and self.steps >= self.max_steps

    # ---- before and after each run

    def before_run(self, run: GraphRun) -> None:
        if run.is_training and self.is_limit_reached and not self.uses_step_at:
            self.stop()

    def stop(self) -> None:
        """Raise the exception that ends the script."""
        self.stop_requested_at = self.stop_requested_at or time.monotonic()
        raise StopScript

    def select_tensors(self, run: GraphRun) -> list[Any]:
        """Return the tensors of the loss and, in the first step, of the gradients.

        A loss is left out if fetching it has side effects, or if its value is known before the step.
        """
        # For each tensor: ("loss", ""), or its part of a gradient (see split_gradient) and the variable's name.
        labels: list[tuple[str, str]] = []
        run.notes[id(self)] = labels
        if not self.is_part_of_step(run):
            return []
        tensors: list[Any] = []
        self._loss = None
        loss = choose_loss(run)
        if loss is not None and reads_reference_variables(find_extra_dependencies(run, loss)):
            # In this run the operators of the loss might read variables that are already updated.
            self._loss = compute_loss_before_step(run, loss)
        elif loss is not None:
            labels.append(("loss", ""))
            tensors.append(loss)
        for name, gradient in find_gradients(run) if not self.steps else []:
            for part, tensor in split_gradient(gradient):
                labels.append((part, name))
                tensors.append(tensor)
        return tensors

    def is_part_of_step(self, run: GraphRun) -> bool:
        """Return True for a run that trains, and with `uses_step_at` for a run that computes gradients."""
        records = find_recorded_gradients(run.graph) if self.uses_step_at else []
        return run.is_training or any(record.has_any_from(run.subgraph.ops) for record in records)

    def receive_values(self, run: GraphRun, values: list[Any]) -> None:
        if self.uses_step_at and not run.session_record.is_closed:
            self._unsaved = run.session_record
        if not self.is_part_of_step(run):
            return
        loss = self._loss
        parts: dict[str, dict[str, Any]] = {}  # by variable, then by part: the arrays of a gradient
        for (part, name), value in zip(run.notes[id(self)], values, strict=True):
            if part == "loss":
                loss = float(np.mean(value))
            else:
                parts.setdefault(name, {})[part] = np.array(value)
        self.first_gradients.update({name: densify_gradient(arrays) for name, arrays in parts.items()})
        if self.uses_step_at:
            self._loss = loss
        else:
            self._end_step(run.session_record, loss)

    def on_step_end(self) -> None:
        """End a step; called at the line or function at which steps end according to --step-at."""
        if self.is_limit_reached:
            self.stop()
        loss, self._loss = self._loss, None
        self._end_step(self._unsaved, loss)
        if self.is_limit_reached:
            self.stop()

    def _end_step(self, record: SessionRecord | None, loss: float | None) -> None:
        """Record a step; after the last one store the session's variables."""
        self.losses.append(loss)
        self.end_times.append((time.monotonic(), time.process_time()))
        self._unsaved = record
        if record is not None and self.is_limit_reached:
            self.store_variables(record)

    # ---- weights

    def before_close(self, record: SessionRecord) -> None:
        if record is self._unsaved:
            self.store_variables(record)

    def store_last_variables(self) -> None:
        """Store the variables of the last step's session if it is still open; called when the script is over."""
        if self._unsaved is not None and not self._unsaved.is_closed:
            self.store_variables(self._unsaved)

    def store_variables(self, record: SessionRecord) -> None:
        """Read the session's variables into `last_variables`."""
        with sessions.mark_internal():
            self.last_variables = read_variables(record.session.graph, record.session)
        self._unsaved = None


def choose_loss(run: GraphRun) -> Any:
    """Return the loss with the most gradients in this run that can be fetched; None if there is none."""
    candidates = [
        record
        for record in find_recorded_gradients(run.graph)
        if record.loss is not None
        and record.has_any_from(run.subgraph.ops)
        and is_fetchable(record.loss)
        and not any(has_side_effects(op) for op in find_extra_dependencies(run, record.loss))
    ]
    return max(candidates, key=lambda record: len(record.pairs)).loss if candidates else None


def has_side_effects(op: Any) -> bool:
    """Return True if an operator has state (reads data, draws random numbers) or must be fed."""
    return bool(op.op_def.is_stateful) or op.type.startswith("Placeholder")


def find_extra_dependencies(run: GraphRun, loss: Any) -> set[Any]:
    """Return the operators that a loss needs and the run does not execute: gradients do not need the loss itself."""
    return find_dependencies([loss.op], run.subgraph.fed_names) - run.subgraph.ops


def reads_reference_variables(ops: set[Any]) -> bool:
    """Return True if operators read reference variables: their memory, to which an update may already be written."""
    sources = [tensor for op in ops for tensor in op.inputs]
    sources += [tensor for source in sources if source.op.type == "Identity" for tensor in source.op.inputs]
    return any(tensor.dtype._is_ref_dtype for tensor in sources)


def compute_loss_before_step(run: GraphRun, loss: Any) -> float | None:
    """Compute the loss in a separate run before the step.

    Return None if the loss needs stateful operators other than reference variables, or if a sparse tensor is fed.
    """
    ops = find_dependencies([loss.op], run.subgraph.fed_names)
    has_state = any(op.op_def.is_stateful and not op.type.startswith("Variable") for op in ops)
    if has_state or any(value is None for value in run.feeds.values()):  # None: part of a sparse tensor
        return None
    with sessions.mark_internal():
        return float(np.mean(run.session_record.session.run(loss, feed_dict=run.feeds)))


def find_gradients(run: GraphRun) -> list[tuple[str, Any]]:
    """Return the gradients that optimizers apply in this run; without an optimizer, the largest set of tf.gradients.

    Records with gradients that the run does not compute are ignored.
    """
    alive = run.subgraph.ops - find_perhaps_dead(run.subgraph.ops)
    records = [record for record in find_recorded_gradients(run.graph) if record.has_all_from(run.subgraph.ops)]
    applied = [record for record in records if record.is_applied]
    if applied:
        return [pair for record in applied for pair in select_readable_pairs(record, alive)]
    return max((select_readable_pairs(record, alive) for record in records), key=len, default=[])


def select_readable_pairs(record: Gradients, alive: frozenset[Any]) -> list[tuple[str, Any]]:
    """Return the gradients that surely have a value; a gradient from a branch may have none."""
    tensors = [(name, gradient, get_dense_tensor(gradient)) for name, gradient in record.pairs]
    return [(name, gradient) for name, gradient, tensor in tensors if tensor.op in alive and is_fetchable(tensor)]


def split_gradient(gradient: Any) -> list[tuple[str, Any]]:
    """Return the tensors of a gradient: "dense", or for IndexedSlices "values", "indices" and, if known, "shape"."""
    if not hasattr(gradient, "indices"):
        return [("dense", gradient)]
    parts = [("values", gradient.values), ("indices", gradient.indices)]
    return parts if gradient.dense_shape is None else [*parts, ("shape", gradient.dense_shape)]


def densify_gradient(parts: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return a gradient as one array, from the values of `split_gradient`.

    Equal indices of a sparse gradient add up. Without a shape the array ends at the last index.
    """
    if "dense" in parts:
        return np.asarray(parts["dense"])
    values, indices = parts["values"], parts["indices"]
    rows = int(parts["shape"][0]) if "shape" in parts else int(indices.max(initial=-1)) + 1
    dense = np.zeros((rows, *values.shape[1:]), values.dtype)
    np.add.at(dense, indices, values)
    return dense


def read_variables(graph: Any, session: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the value of every initialised global variable, without adding tensors to the graph."""
    tensors = {variable.op.name: read_tensor(variable) for variable in find_variables(graph, "variables")}
    try:
        return {name: np.array(value) for name, value in session.run(tensors).items()}
    except Exception:  # a variable was never initialised
        values = {name: try_run(session, tensor) for name, tensor in tensors.items()}
        return {name: np.array(value) for name, value in values.items() if value is not None}


def try_run(session: Any, tensor: Any) -> Any:
    try:
        return session.run(tensor)
    except Exception:
        return None


# ---- ending loops that check for a stop


def start_watching(steps: int | None = None) -> ScriptWatch:
    """Install a ScriptWatch and return it; `steps` bounds training, evaluations and predictions."""
    script_watch = ScriptWatch(steps)
    sessions.observers += [script_watch, evaluations.EvaluationBounds(script_watch)]
    bound_monitored_sessions(script_watch)
    bound_keras_fit(script_watch)
    evaluations.bound_keras_evaluations(script_watch)
    return script_watch


def bound_monitored_sessions(script_watch: ScriptWatch) -> None:
    """Bound the loops over monitored sessions: the script's and the Estimators'."""
    from tensorflow.python.training import monitored_session

    @wrap(monitored_session._MonitoredSession, "__init__")
    def init(plain: Any, self: Any, session_creator: Any, hooks: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, session_creator, [*(hooks or []), make_bounding_hook(script_watch)], *args, **kwargs)

    @wrap(monitored_session._MonitoredSession, "run")
    def run(plain: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if script_watch.is_limit_reached and self.should_stop():  # the loop ignores the request to stop
            script_watch.stop()
        return plain(self, *args, **kwargs)


def make_bounding_hook(script_watch: ScriptWatch) -> Any:
    from tensorflow.python.training.session_run_hook import SessionRunHook

    class Bound(SessionRunHook):  # type: ignore[misc]
        """Requests a stop after the last training step, or after `max_steps` batches of a loop without training."""

        def begin(self) -> None:
            self.batches, self.steps_at_begin = 0, script_watch.steps

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.batches += 1
            trained = script_watch.steps > self.steps_at_begin
            at_limit = script_watch.max_steps is not None and self.batches >= script_watch.max_steps
            if (trained and script_watch.is_limit_reached) or (not trained and at_limit):
                run_context.request_stop()

    return Bound()


def bound_keras_fit(script_watch: ScriptWatch) -> None:
    """Bound Keras fit and fit_generator by stop_training, which they check after each batch and each epoch.

    With stop_training set Keras skips the validation of an epoch, so it is cleared before the validation and set again
    after it.
    """
    import keras.src.callbacks as callbacks

    class Bound(callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = self.model.stop_training or script_watch.is_limit_reached

        on_epoch_end = on_train_batch_end

    @wrap(callbacks, "configure_callbacks")
    def configure(plain: Any, requested: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(requested, callbacks.CallbackList):
            return plain(requested, *args, **kwargs)
        own = requested if isinstance(requested, (list, tuple)) else [] if requested is None else [requested]
        return plain([*own, Bound()], *args, **kwargs)

    @wrap(callbacks.CallbackList, "make_logs")
    def make_logs(plain: Any, self: Any, model: Any, logs: Any, outputs: Any, mode: Any, prefix: str = "") -> Any:
        is_epoch = mode == "train" and "batch" not in logs and not prefix  # the call just before the validation
        if script_watch.is_limit_reached and is_epoch:
            self.model.stop_training = False
        return plain(self, model, logs, outputs, mode, prefix)
