"""Session observers: all hooks between a script and TensorFlow's sessions.

All runs of a graph come through this module: Session.run, which MonitoredSession and Estimator call too, the callables
of make_callable, and those that Keras makes. A `GraphRun` describes one run that the script requests. Before the run,
observers name tensors to fetch beside the script's own fetches; after it, they receive the values. A run of N steps on
the device (`loops.py`) is executed and observed N times.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import gradients, loops, options, state
from viaduct.rehearsal.tf1_stage.subgraph import Subgraph, find_subgraph
from viaduct.rehearsal.wrapping import wrap

THREADS_OF_RANKS = 64  # of a session with several ranks, where a collective that waits for another rank holds a thread


@dataclass
class SessionRecord:
    """What the observers know of one session."""

    session: Any  # None when it is closed
    location: limits.Line | None  # the script's line that opened the session
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
    import tensorflow.compat.v1 as tf
    from tensorflow.python.client import session

    wrap(session.BaseSession, "__init__")(init_session)
    wrap(session.BaseSession, "run")(run_session)
    wrap(session.BaseSession, "close")(close_session)
    wrap(session.BaseSession, "_make_callable_from_options")(KerasCallable)  # the method by which Keras makes callables
    session.BaseSession.make_callable = make_callable
    wrap(tf.keras.backend, "set_session")(set_keras_session)
    wrap(atexit, "register")(register_at_exit)
    gradients.install()


def set_keras_session(plain: Callable[..., Any], session: Any) -> None:
    """Give Keras a session, which Keras will close."""
    session._viaduct.is_closed_by_keras = True
    plain(session)


def register_at_exit(plain: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
    """Register a function with atexit, and record it if the script calls this; it may close a session."""
    if limits.find_users_line() is not None:
        exit_functions.append(function)
    return plain(function, *args, **kwargs)


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


def init_session(
    plain: Callable[..., Any], session: Any, target: str = "", graph: Any = None, config: Any = None
) -> None:
    """Initialise a session and make its record."""
    line = limits.find_users_line()
    config = options.prepare_config(config, THREADS_OF_RANKS if state.size() > 1 else 0)
    npu_options = options.read_options(config, line)
    plain(session, target, graph, config)
    session._viaduct = SessionRecord(session, line, npu_options)  # where the other wrappers find it
    session_records.append(session._viaduct)


def run_session(
    plain: Callable[..., Any],
    session: Any,
    fetches: Any,
    feed_dict: Any = None,
    options: Any = None,
    run_metadata: Any = None,
) -> Any:
    """Run a session for the script, and call the observers."""
    from viaduct.rehearsal.tf1_stage import tracing

    if getattr(_internal, "active", False):
        return plain(session, fetches, feed_dict, options, run_metadata)
    graph_run = describe_run(session, fetches, feed_dict)

    def execute(extra: list[Any]) -> tuple[Any, list[Any]]:
        def call(run_options: Any, metadata: Any) -> Any:
            return plain(session, (fetches, extra), feed_dict, run_options, metadata)

        with mark_internal():
            result: tuple[Any, list[Any]] = tracing.run_traced(graph_run, call, options, run_metadata)
        return result

    return run_observed(graph_run, execute)


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


def blame_viaduct() -> AbstractContextManager[None]:
    """Return the context of viaduct's own code (`limits.blame_viaduct`), which passes TensorFlow's errors on."""
    from tensorflow.python.framework.errors_impl import OpError

    return limits.blame_viaduct(OpError)


def record_run(run: GraphRun) -> None:
    """Update the session's record after a run, and the state of communication."""
    record = run.session_record
    names = (op.name.rpartition("/")[2] for op in run.subgraph.ops)
    computes = not all(name.startswith(COMMUNICATION_PREFIXES) for name in names)
    record.has_device_graph = record.has_device_graph or computes
    record.steps += run.is_training
    if computes and record.npu_options.is_on_npu:
        state.set_communication(True)  # an NPU session starts communication with its first run


def close_session(plain: Callable[..., Any], session: Any) -> None:
    """Close a session; observers are called first."""
    record = getattr(session, "_viaduct", None)
    if record is not None and not record.is_closed:
        for observer in observers:
            observer.before_close(record)
        record.is_closed, record.session = True, None
    plain(session)


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
