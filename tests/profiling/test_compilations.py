"""Counts of compiled graphs, on a stand-in of torch._dynamo's counters."""

from __future__ import annotations

import sys
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from viaduct.profiling import compilations
from viaduct.profiling.compilations import MAX_REASON_CHARS, MAX_REASONS, Compilations, count_graphs, list_reasons


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace what torch._dynamo counts; `start` and `end` are the callbacks that were registered."""
    utils = SimpleNamespace(counters={"stats": {"unique_graphs": 3}}, guard_failures={})
    handler = SimpleNamespace(
        register_start_callback=lambda callback: setattr(utils, "start", callback),
        register_end_callback=lambda callback: setattr(utils, "end", callback),
    )
    callback: Any = ModuleType("torch._dynamo.callback")
    callback.callback_handler = handler
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", callback)
    return utils


def make_code(name: str, line: int) -> CodeType:
    return compile("", "/home/me/train.py", "exec").replace(co_name=name, co_firstlineno=line)


def test_without_the_compiler_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    counts = Compilations()
    counts.register_callbacks()
    assert counts.take_new_counts() == (0, 0.0)
    assert (count_graphs(), list_reasons(), counts.missing_note) == (0, [], "")


def test_graphs_from_before_are_not_counted_and_a_reset_is_no_compilation(dynamo: Any) -> None:
    counts = Compilations()
    counts.register_callbacks()
    assert counts.take_new_counts()[0] == 0
    dynamo.counters["stats"]["unique_graphs"] = 5
    assert counts.take_new_counts()[0] == 2
    dynamo.counters["stats"]["unique_graphs"] = 0  # torch._dynamo.reset()
    assert counts.take_new_counts()[0] == 0
    dynamo.counters["stats"]["unique_graphs"] = 1
    assert counts.take_new_counts()[0] == 1


def test_the_time_of_compilations_adds_up_until_it_is_taken(dynamo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 400.0, 1000.0, 1050.0])
    monkeypatch.setattr(compilations, "read_host_us", lambda: next(times))
    counts = Compilations()
    counts.register_callbacks()
    dynamo.end()  # a compilation that had begun before
    for _ in range(2):
        dynamo.start()
        dynamo.end()
    assert counts.take_new_counts()[1] == 350.0
    assert counts.take_new_counts()[1] == 0.0


def test_a_release_without_callbacks_is_named(dynamo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", ModuleType("torch._dynamo.callback"))
    counts = Compilations()
    counts.register_callbacks()
    assert "this torch has no compilation callbacks" in counts.missing_note


def test_reasons_are_named_once_with_their_line_and_not_those_from_before(dynamo: Any) -> None:
    old, new = make_code("forward", 12), make_code("loss", 30)
    dynamo.guard_failures[old] = ["size mismatch"]
    counts = Compilations()
    dynamo.guard_failures[new] = ["dtype  mismatch\n at x", "dtype mismatch at x"]
    assert counts.list_new_reasons() == ["train.py:30 loss: dtype mismatch at x"]


def test_many_and_long_reasons_are_cut(dynamo: Any) -> None:
    counts = Compilations()
    code = make_code("forward", 12)
    dynamo.guard_failures[code] = [f"{number} {'x' * 1000}" for number in range(MAX_REASONS + 3)]
    reasons = counts.list_new_reasons()
    assert len(reasons) == MAX_REASONS + 1
    assert reasons[-1] == "3 more reasons"
    assert len(reasons[0]) == len("train.py:12 forward: ") + MAX_REASON_CHARS
