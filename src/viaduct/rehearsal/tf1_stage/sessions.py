"""Session observers: the only place between a script and TensorFlow's sessions.

Every way to run a graph passes here: Session.run, those beneath MonitoredSession and Estimator, and the callables that
Keras makes. A `Pass` is one run as the script asked for it. Observers say which tensors they want to see beside
what the script fetches, before, and get their values, after; a run that is a loop (`loops.py`) is as many passes.
"""

from __future__ import annotations

import ast
import atexit
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import gradients, loops, options, state
from viaduct.rehearsal.tf1_stage.reach import Reach, reach

THREADS = 64  # a collective that waits for other ranks holds one


@dataclass
class Opened:
    """A session as we know it: where it was made, with which options, how far it came."""

    session: Any
    location: tuple[str, int] | None
    chosen: options.SessionOptions
    steps: int = 0
    ran: bool = False
    closed: bool = False
    held_by_keras: bool = False  # which lets go of it by itself
    computes: bool = False  # ran more than the operations that start and end communication: it holds a device graph


@dataclass(frozen=True)
class Pass:
    """One run of a graph."""

    opened: Opened
    graph: Any
    reach: Reach
    feeds: dict[str, Any] = field(default_factory=dict)
    by_keras: bool = False  # in a loop of its own
    notes: dict[int, Any] = field(default_factory=dict)  # of observers, from `wanted` to `seen`: threads run at a time

    @property
    def training(self) -> bool:
        """Return True if the run trains."""
        return self.reach.training


class Observer:
    """Looks at runs; subclass it and define what you want."""

    def begins(self, run: Pass) -> None:
        """Before anything is executed; may raise."""

    def select_tensors(self, run: Pass) -> list[Any]:
        """Return further tensors to fetch with this run."""
        return []

    def receive_values(self, run: Pass, values: list[Any]) -> None:
        """Receive their values after the run."""

    def receive_result(self, run: Pass, result: Any) -> None:
        """Receive what the script itself gets."""

    def closes(self, opened: Opened) -> None:
        """A session is about to be closed."""


CLOSERS = {"close", "close_session", "shutdown_resource", "closing"}
COMMUNICATION = ("NPUInit", "NPUShutdown")
left_to_exit: list[Any] = []  # functions that the script gave to atexit
observers: list[Observer] = []
opened_sessions: list[Opened] = []
_ours = threading.local()


@contextmanager
def internal_run() -> Iterator[None]:
    """Mark runs inside the block as viaduct's, not the script's."""
    before, _ours.now = getattr(_ours, "now", False), True
    try:
        yield
    finally:
        _ours.now = before


def install() -> None:
    """Wrap TensorFlow's sessions so that the observers see every run."""
    from tensorflow.python.client import session

    base: Any = session.BaseSession
    base.__init__ = wrap_session_init(base.__init__)
    base.run = wrap_run(base.run)
    base.close = closing(base.close)
    base.make_callable = make_callable
    base._make_callable_from_options = wrap_make_callable(base._make_callable_from_options)
    watch_keras()
    watch_exit()
    gradients.install()


def watch_keras() -> None:
    """A session that Keras was given is Keras' to end."""
    import tensorflow.compat.v1 as tf

    backend: Any = tf.keras.backend
    plain = backend.set_session

    @functools.wraps(plain)
    def set_session(session: Any) -> None:
        """Note that Keras holds the session, then set it."""
        session._viaduct.held_by_keras = True
        plain(session)

    backend.set_session = set_session


def watch_exit() -> None:
    """Remember what the script leaves to the end of the process: a session may be closed there."""
    plain: Any = atexit.register

    @functools.wraps(plain)
    def register(function: Any, *args: Any, **named: Any) -> Any:
        """Note functions of the script that are left to the interpreter's exit."""
        if limits.users_line() is not None:
            left_to_exit.append(function)
        return plain(function, *args, **named)

    atexit.register = register  # type: ignore[assignment]


def is_closed_at_exit(session: Any) -> bool:
    """Return True if `atexit` closes a session, by its own close or through a function of the script."""
    for function in left_to_exit:
        function = getattr(function, "func", function)  # of functools.partial
        if getattr(function, "__self__", None) is session:
            return True
        code = getattr(function, "__code__", None)
        if code is not None and CLOSERS & {*code.co_names}:
            return True
    return False


def wrap_session_init(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return Session's constructor with observers."""

    @functools.wraps(plain)
    def init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        """Open a session with a prepared config, and note the line of the script that opens it."""
        location = limits.users_line()
        at = (location.file, location.line) if location else None
        config = options.prepare_config(config, THREADS if state.size() > 1 else 0)
        chosen = options.read_options(config, at)
        plain(self, target, graph, config)
        self._viaduct = Opened(self, at, chosen)
        opened_sessions.append(self._viaduct)

    return init


def wrap_run(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return Session.run with observers."""
    from viaduct.rehearsal.tf1_stage import tracing

    @functools.wraps(plain)
    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run the fetches, with those that observers add."""
        if getattr(_ours, "now", False):
            return plain(self, fetches, feed_dict, options, run_metadata)
        asked = make_pass(self, fetches, feed_dict)

        def run_once(extra: list[Any]) -> tuple[Any, list[Any]]:
            """Run fetches and extra tensors together; return both results."""

            def call(chosen: Any, metadata: Any) -> Any:
                return plain(self, (fetches, extra), feed_dict, chosen, metadata)

            with internal_run():
                result: tuple[Any, list[Any]] = tracing.run_traced(asked, call, options, run_metadata)
            return result

        return conduct(asked, run_once)

    return run


def make_pass(session: Any, fetches: Any, feed_dict: Any) -> Pass:
    """Return what a run would execute; TensorFlow itself resolves the fetches."""
    from tensorflow.python.client.session import _FetchHandler
    from tensorflow.python.util import nest

    graph = session.graph
    handler = _FetchHandler(graph, fetches, {}, {})
    ops = [tensor.op for tensor in handler.fetches()] + list(handler.targets())
    feeds: dict[str, Any] = {}
    for key, value in (feed_dict or {}).items():
        parts = nest.flatten(key, expand_composites=True)
        feeds.update({graph.as_graph_element(part).name: value if len(parts) == 1 else None for part in parts})
    with own_bookkeeping():
        return Pass(session._viaduct, graph, reach(graph, ops, feeds), feeds)


def conduct(asked: Pass, once: Callable[[list[Any]], tuple[Any, list[Any]]]) -> Any:
    """The run with everything that is done around it; a loop on the device is a loop here."""
    result: Any = None
    for _ in range(loops.count(asked)):
        with own_bookkeeping():
            for observer in observers:
                observer.begins(asked)
            wishes = [(observer, observer.select_tensors(asked)) for observer in observers]
        result, values = once([tensor for _, tensors in wishes for tensor in tensors])
        with own_bookkeeping():
            settle(asked)
            remaining = iter(values)
            for observer, tensors in wishes:
                observer.receive_values(asked, [next(remaining) for _ in tensors])
            for observer in observers:
                observer.receive_result(asked, result)
    return result


@contextmanager
def own_bookkeeping() -> Iterator[None]:
    """Let nobody take a mistake in what we do around a run for one of the script."""
    from tensorflow.python.framework.errors_impl import OpError

    try:
        yield
    except (limits.CardRefuses, OpError):
        raise
    except Exception as error:
        raise limits.StandInFails(f"{type(error).__name__}: {error}") from error


def settle(asked: Pass) -> None:
    """Note what a run has computed and update the session's record."""
    opened = asked.opened
    opened.ran = True
    opened.computes = opened.computes or not all(is_communication(op.name) for op in asked.reach.ops)
    opened.steps += asked.training
    if opened.chosen.npu:
        state.set_communication(True)


def is_communication(name: str) -> bool:
    """Return True for operations that only start or end communication."""
    return name.rpartition("/")[2].startswith(COMMUNICATION)


def closing(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a session's close, so that observers hear of it once."""

    @functools.wraps(plain)
    def close(self: Any) -> None:
        """Tell the observers before the session is closed."""
        opened = getattr(self, "_viaduct", None)
        if opened is not None and not opened.closed:
            for observer in observers:
                observer.closes(opened)
            opened.closed, opened.session = True, None
        plain(self)

    return close


def make_callable(self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
    """Return a callable that goes through run, like TensorFlow's."""
    keys = list(feed_list or [])

    def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
        """Run the fetches with the values for the feeds, in order."""
        if len(values) != len(keys):
            raise ValueError(f"this callable takes {len(keys)} values, and got {len(values)}")
        return self.run(fetches, dict(zip(keys, values, strict=True)), options, run_metadata)

    return call


def wrap_make_callable(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the callable that Keras makes of a session."""

    @functools.wraps(plain)
    def make_callable_object(self: Any, callable_options: Any) -> Any:
        return KerasCallable(plain, self, callable_options)

    return make_callable_object


class KerasCallable:
    """Callable through which Keras runs its graphs.

    Its fetches are fixed when it is made; to see other tensors, another one is made.
    """

    def __init__(self, plain: Callable[..., Any], session: Any, callable_options: Any) -> None:
        self.plain, self.session, self.options = plain, session, callable_options
        self.made: dict[tuple[str, ...], Any] = {}

    def __call__(self, *args: Any, **named: Any) -> Any:
        graph = self.session.graph
        ops = [graph.as_graph_element(name) for name in (*self.options.fetch, *self.options.target)]
        ops = [getattr(found, "op", found) for found in ops]
        feeds = dict(zip(self.options.feed, args, strict=False))
        with own_bookkeeping():
            asked = Pass(self.session._viaduct, graph, reach(graph, ops, feeds), feeds, by_keras=True)

        def run_once(extra: list[Any]) -> tuple[Any, list[Any]]:
            fetched = self.with_extra(tuple(tensor.name for tensor in extra))(*args, **named)
            cut = len(self.options.fetch)
            return fetched[:cut], list(fetched[cut:])

        return conduct(asked, run_once)

    def with_extra(self, names: tuple[str, ...]) -> Any:
        """Return a callable that fetches further tensors, made once for each set of names."""
        if names not in self.made:
            copy = type(self.options)()
            copy.CopyFrom(self.options)
            copy.fetch.extend(names)
            self.made[names] = self.plain(self.session, copy)
        return self.made[names]


# ---- sessions that were left open


def tell_open_ones(stopped: bool = False) -> None:
    """NPU sessions that ran and were not closed. A script that we stopped had perhaps not come to its close: then only
    those are told whose file closes nothing."""
    for opened in opened_sessions:
        left = opened.computes and opened.chosen.npu and not opened.closed and not opened.held_by_keras
        left = left and not is_closed_at_exit(opened.session)
        if left and not (stopped and closes_something(opened.location)):
            limits.report_violation(
                "session-not-closed",
                "This session is never closed.",
                "The device graph is released in close(): without it the NPU's memory stays taken.",
                "Call close() on it when the work is done, or open it with `with`.",
                at=opened.location,
                fatal=False,
            )


def closes_something(location: tuple[str, int] | None) -> bool:
    """Return True if the script at this location calls something that closes sessions, or is unknown."""
    if location is None:
        return True
    tree = ast.parse(Path(location[0]).read_text(encoding="utf-8", errors="replace"))
    calls = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {
        function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "") for function in calls
    }
    return bool(names & CLOSERS)
