"""Streams and events of a card. Work is done when its call returns, so waiting does nothing."""

from __future__ import annotations

import time
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, resolve_card_index


class Stream(torch.Stream):
    """A stream of one card. All methods that wait do nothing: work is done when its call returns."""

    _count = 0  # streams made so far
    _index: int  # the card's
    _number: int  # the stream's; 0 is the default stream
    _priority: int

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        stream = super().__new__(cls, device=torch.device(cards.device_name, 0), priority=0)
        stream._index = resolve_card_index(device)
        stream._priority = priority
        stream._number = kwargs.get("number", -1)
        if stream._number < 0:
            Stream._count += 1
            stream._number = Stream._count
        return stream

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(cards.name_in_script, self._index)

    @property
    def device_index(self) -> int:  # type: ignore[override]
        return int(self._index)

    @property
    def stream_id(self) -> int:  # type: ignore[override]
        return int(self._number)

    @property
    def priority(self) -> int:
        return int(self._priority)

    def wait_event(self, event: Any) -> None: ...
    def wait_stream(self, stream: Any) -> None: ...
    def synchronize(self) -> None: ...
    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Any:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._index, self._number) == (other._index, other._number)

    def __hash__(self) -> int:
        return hash((self._index, self._number))

    def __repr__(self) -> str:
        return f"<torch.{cards.name_in_script}.Stream device={self.device} stream={self._number:#x}>"


def _handle(stream: Any) -> int:
    """Return a stream's number; getter of the property npu_stream, mlu_stream or cuda_stream."""
    return int(stream._number)


class ExternalStream(Stream):
    """A stream of another library, by its handle."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Any:
        return super().__new__(cls, device, number=int(stream_ptr))


class Event(torch.Event):
    """A point in a stream, here a point in time."""

    _has_timing: bool
    _recorded_ns: int | None  # time of the record; None before it

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        event = super().__new__(cls, device=torch.device(cards.device_name, 0))
        event._has_timing = enable_timing
        event._recorded_ns = None
        return event

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(cards.name_in_script, cards.current_index)

    def record(self, stream: Any = None) -> None:
        self._recorded_ns = time.perf_counter_ns()

    def wait(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def recorded_time(self) -> int:
        """Return the time of the record in microseconds."""
        return self._time() // 1000

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds between two events; raise RuntimeError if one has no timing or was not recorded."""
        return float(end_event._time() - self._time()) / 1e6

    def _time(self) -> int:
        if not self._has_timing:
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded_ns is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return int(self._recorded_ns)

    def __repr__(self) -> str:
        time_text = "uninitialized" if self._recorded_ns is None else self._recorded_ns
        return f"<torch.{cards.name_in_script}.Event {time_text}>"


class StreamContext:
    """Context in which a stream and its card are the current ones."""

    def __init__(self, stream_ctx: Any) -> None:
        self.stream = stream_ctx

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._previous_card = cards.current_index
        cards.select(self.stream.device_index)
        self._previous_stream = current_stream()
        set_stream(self.stream)

    def __exit__(self, exec_type: Any, exec_value: Any, traceback: Any) -> None:
        if self.stream is None:
            return
        set_stream(self._previous_stream)
        cards.select(self._previous_card)


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    """Make a stream and its card the current ones."""
    if stream is not None:
        _current_streams()[stream.device_index] = stream
        cards.select(stream.device_index)


def current_stream(device: Any = None) -> Any:
    index = resolve_card_index(device)
    return _current_streams().get(index) or default_stream(index)


def default_stream(device: Any = None) -> Any:
    """Return the card's stream number 0."""
    return Stream(torch.device(cards.device_name, resolve_card_index(device)), number=0)


def _current_streams() -> dict[int, Any]:
    """Return this thread's current streams by card, without cards on which none was set."""
    if not hasattr(cards.thread_state, "streams"):
        cards.thread_state.streams = {}
    return cards.thread_state.streams  # type: ignore[no-any-return]
