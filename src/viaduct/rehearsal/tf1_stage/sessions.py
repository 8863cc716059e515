"""Session observers: all hooks between a script and TensorFlow's sessions.

All runs of a graph come through this module: Session.run, which MonitoredSession and Estimator call too, the callables
of make_callable, and those that Keras makes. A `GraphRun` describes one run that the script requests. Before the run,
observers name tensors to fetch beside the script's own fetches; after it, they receive the values. A run of N steps on
the device (`loops.py`) is executed and observed N times.
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import gradients, loops, options, state
from viaduct.rehearsal.tf1_stage.subgraph import Subgraph, find_subgraph

THREADS_OF_RANKS = 64  # of a session with several ranks, where a collective that waits for another rank holds a thread


@dataclass
class SessionRecord:
    """What the observers know of one session."""

    session: Any  # None when it is closed
    location: tuple[str, int] | None  # the script's file and line that opened the session
    npu_options: options.SessionOptions
    steps: int = 0  # runs that trained
    is_closed: bool = False
    is_closed_by_keras: bool = False  # given to Keras, which will close it
    has_device_graph: bool = False  # a run has done more than to start or end the communication between ranks


@dataclass(frozen=True)
class GraphRun:
    """One run of a graph."""

    session_record: SessionRecord
    graph: Any
    subgraph: Subgraph  # the operators that the run executes
    feeds: dict[str, Any] = field(default_factory=dict)  # by tensor name; None for parts of a composite tensor
    is_by_keras: bool = False  # run by one of Keras' own loops
    # By an observer's id: what its `select_tensors` notes for its `receive_values`. The observer itself cannot store
    # this, because several threads may run graphs at the same time.
    notes: dict[int, Any] = field(default_factory=dict)

    @property
    def is_training(self) -> bool:
        return self.subgraph.is_training


class Observer:
    """Base class of observers of runs."""

    def before_run(self, run: GraphRun) -> None:
        """Prepare for a run, before anything is executed; an exception ends the run."""

    def select_tensors(self, run: GraphRun) -> list[Any]:
        """Return tensors to fetch in this run in addition to the script's."""
        return []

    def receive_values(self, run: GraphRun, values: list[Any]) -> None:
        """Receive the values of the selected tensors, in their order, after the run."""

    def receive_result(self, run: GraphRun, result: Any) -> None:
        """Receive the result of the run for the script."""

    def before_close(self, record: SessionRecord) -> None:
        """Prepare for the end of a session, before it is closed."""


CLOSING_FUNCTIONS = {"close", "close_session", "shutdown_resource", "closing"}  # names of functions that close sessions
# Names with which the operators begin that start and end communication between ranks (npu_ops.py).
COMMUNICATION_PREFIXES = ("NPUInit", "NPUShutdown")
exit_functions: list[Any] = []  # functions that the script registered with atexit
observers: list[Observer] = []
session_records: list[SessionRecord] = []
_internal = threading.local()  # `.active`: runs of this thread are viaduct's


@contextmanager
def mark_internal() -> Iterator[None]:
    """Mark runs inside the block as viaduct's."""
    previous, _internal.active = getattr(_internal, "active", False), True
    try:
        yield
    finally:
        _internal.active = previous


def install() -> None:
    """Wrap TensorFlow's sessions so that the observers see the script's runs."""
    from tensorflow.python.client import session

    base: Any = session.BaseSession
    base.__init__ = wrap_session_init(base.__init__)
    base.run = wrap_run(base.run)
    base.close = wrap_close(base.close)
    base.make_callable = make_callable
    base._make_callable_from_options = wrap_make_callable(base._make_callable_from_options)
    wrap_set_session()
    record_exit_functions()
    gradients.install()


def wrap_set_session() -> None:
    """Wrap tf.keras.backend.set_session: Keras closes the session that it is given."""
    import tensorflow.compat.v1 as tf

    backend: Any = tf.keras.backend
    plain = backend.set_session

    @functools.wraps(plain)
    def set_session(session: Any) -> None:
        session._viaduct.is_closed_by_keras = True
        plain(session)

    backend.set_session = set_session


def record_exit_functions() -> None:
    """Record the functions that the script registers with atexit; they may close a session."""
    plain: Any = atexit.register

    @functools.wraps(plain)
    def register(function: Any, *args: Any, **kwargs: Any) -> Any:
        if limits.find_users_line() is not None:
            exit_functions.append(function)
        return plain(function, *args, **kwargs)

    atexit.register = register  # type: ignore[assignment]


def is_closed_at_exit(session: Any) -> bool:
    """Return True if a method of the session, or a function that names one of CLOSING_FUNCTIONS, runs at exit."""
    for function in exit_functions:
        function = getattr(function, "func", function)  # unwrap functools.partial
        if getattr(function, "__self__", None) is session:
            return True
        code = getattr(function, "__code__", None)
        if code is not None and CLOSING_FUNCTIONS & {*code.co_names}:
            return True
    return False


def wrap_session_init(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Session's constructor so that each session has a record."""

    @functools.wraps(plain)
    def init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        line = limits.find_users_line()
        location = (line.file, line.line) if line else None
        config = options.prepare_config(config, THREADS_OF_RANKS if state.size() > 1 else 0)
        npu_options = options.read_options(config, location)
        plain(self, target, graph, config)
        self._viaduct = SessionRecord(self, location, npu_options)  # where the other wrappers find it
        session_records.append(self._viaduct)

    return init


def wrap_run(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Session.run so that observers see the script's runs."""
    from viaduct.rehearsal.tf1_stage import tracing

    @functools.wraps(plain)
    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        if getattr(_internal, "active", False):
            return plain(self, fetches, feed_dict, options, run_metadata)
        graph_run = describe_run(self, fetches, feed_dict)

        def execute(extra: list[Any]) -> tuple[Any, list[Any]]:
            def call(run_options: Any, metadata: Any) -> Any:
                return plain(self, (fetches, extra), feed_dict, run_options, metadata)

            with mark_internal():
                result: tuple[Any, list[Any]] = tracing.run_traced(graph_run, call, options, run_metadata)
            return result

        return run_observed(graph_run, execute)

    return run


def describe_run(session: Any, fetches: Any, feed_dict: Any) -> GraphRun:
    """Return the description of a run; TensorFlow resolves the fetches."""
    from tensorflow.python.client.session import _FetchHandler
    from tensorflow.python.util import nest

    graph = session.graph
    handler = _FetchHandler(graph, fetches, {}, {})
    ops = [tensor.op for tensor in handler.fetches()] + list(handler.targets())
    feeds: dict[str, Any] = {}
    for key, value in (feed_dict or {}).items():
        parts = nest.flatten(key, expand_composites=True)
        feeds.update({graph.as_graph_element(part).name: value if len(parts) == 1 else None for part in parts})
    with blame_viaduct():
        return GraphRun(session._viaduct, graph, find_subgraph(graph, ops, feeds), feeds)


def run_observed(run: GraphRun, execute: Callable[[list[Any]], tuple[Any, list[Any]]]) -> Any:
    """Execute a run with its observers, N times if it is a loop of N steps; return the last result.

    `execute` takes the observers' tensors and returns the script's result and the values of these tensors.
    """
    result: Any = None
    for _ in range(loops.count_steps(run)):
        with blame_viaduct():
            for observer in observers:
                observer.before_run(run)
            selected = [(observer, observer.select_tensors(run)) for observer in observers]
        result, values = execute([tensor for _, tensors in selected for tensor in tensors])
        with blame_viaduct():
            record_run(run)
            remaining = iter(values)
            for observer, tensors in selected:
                observer.receive_values(run, [next(remaining) for _ in tensors])
            for observer in observers:
                observer.receive_result(run, result)
    return result


@contextmanager
def blame_viaduct() -> Iterator[None]:
    """Turn an exception in the block, which is viaduct's code, into StandInFails.

    CardRefuses, TensorFlow's errors and StopScript, which is no Exception, are raised unchanged.
    """
    from tensorflow.python.framework.errors_impl import OpError

    try:
        yield
    except (limits.CardRefuses, OpError):
        raise
    except Exception as error:
        raise limits.StandInFails(f"{type(error).__name__}: {error}") from error


def record_run(run: GraphRun) -> None:
    """Update the session's record after a run, and the state of communication."""
    record = run.session_record
    names = (op.name.rpartition("/")[2] for op in run.subgraph.ops)
    computes = not all(name.startswith(COMMUNICATION_PREFIXES) for name in names)
    record.has_device_graph = record.has_device_graph or computes
    record.steps += run.is_training
    if computes and record.npu_options.is_on_npu:
        state.set_communication(True)  # an NPU session starts communication with its first run


def wrap_close(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a session's close so that observers are called first."""

    @functools.wraps(plain)
    def close(self: Any) -> None:
        record = getattr(self, "_viaduct", None)
        if record is not None and not record.is_closed:
            for observer in observers:
                observer.before_close(record)
            record.is_closed, record.session = True, None
        plain(self)

    return close


def make_callable(self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
    """Replace BaseSession.make_callable by one whose callable uses Session.run.

    `accept_options` is ignored: the callable always takes the keyword arguments options and run_metadata.
    """
    keys = list(feed_list or [])

    def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
        if len(values) != len(keys):
            raise ValueError(f"this callable takes {len(keys)} values and got {len(values)}")
        return self.run(fetches, dict(zip(keys, values, strict=True)), options, run_metadata)

    return call


def wrap_make_callable(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the method with which Keras makes its callables."""
    return functools.wraps(plain)(lambda session, callable_options: KerasCallable(plain, session, callable_options))


class KerasCallable:
    """Callable through which Keras runs its graphs.

    The fetches of TensorFlow's callable are fixed. If observers select tensors, another callable fetches them too.
    """

    def __init__(self, plain: Callable[..., Any], session: Any, callable_options: Any) -> None:
        self.plain, self.session, self.options = plain, session, callable_options
        self.callables: dict[tuple[str, ...], Any] = {}  # by the names of the additional tensors

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        graph = self.session.graph
        ops = [graph.as_graph_element(name) for name in (*self.options.fetch, *self.options.target)]
        ops = [getattr(element, "op", element) for element in ops]
        feeds = dict(zip(self.options.feed, args, strict=False))
        with blame_viaduct():
            run = GraphRun(self.session._viaduct, graph, find_subgraph(graph, ops, feeds), feeds, is_by_keras=True)

        def execute(extra: list[Any]) -> tuple[Any, list[Any]]:
            fetched = self.find_callable(tuple(tensor.name for tensor in extra))(*args, **kwargs)
            own_count = len(self.options.fetch)
            return fetched[:own_count], list(fetched[own_count:])

        return run_observed(run, execute)

    def find_callable(self, names: tuple[str, ...]) -> Any:
        """Return a cached callable that also fetches the named tensors."""
        if names not in self.callables:
            copy = type(self.options)()
            copy.CopyFrom(self.options)
            copy.fetch.extend(names)
            self.callables[names] = self.plain(self.session, copy)
        return self.callables[names]


# ---- sessions that were left open


def report_open_sessions() -> None:
    """Report NPU sessions that computed something and that neither the script, Keras nor a function at exit closes."""
    for record in session_records:
        is_closed = record.is_closed or record.is_closed_by_keras
        is_checked = record.has_device_graph and record.npu_options.is_on_npu
        if is_checked and not is_closed and not is_closed_at_exit(record.session):
            limits.report_violation("session-not-closed", at=record.location, fatal=False)
