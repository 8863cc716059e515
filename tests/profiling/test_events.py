from __future__ import annotations

import random

from profiling.traces import make_event
from viaduct.profiling.events import drop_idle_functions, join_spans, nest_events, remove_spans, sum_children, sum_spans


def test_events_without_a_time_are_left_out() -> None:
    damaged = [{"ph": "X", "name": "a", "ts": "x", "dur": 1}, {"ph": "i", "ts": 1}, {"ph": "X", "ts": 1}, {}]
    assert nest_events(damaged) == []


def test_an_event_of_another_thread_is_no_parent() -> None:
    outer, other = make_event("outer", 0, 100), make_event("other", 10, 10, thread=2)
    assert [event.parent for event in nest_events([outer, other])] == [None, None]


def test_operators_nest_by_time_and_have_time_of_their_own() -> None:
    raw = [
        make_event("inner", 20, 30),
        make_event("outer", 0, 100),
        make_event("innermost", 25, 5),
        make_event("next", 100, 9),
    ]
    outer, inner, innermost, following = nest_events(raw)
    assert (inner.parent, innermost.parent, following.parent) == (outer, inner, None)
    assert sum_children([outer, inner, innermost, following]) == {id(outer): 30, id(inner): 5}


def test_of_two_events_with_the_same_times_the_annotation_is_outside() -> None:
    operator, annotation = nest_events([make_event("op", 5, 5), make_event("mark", 5, 5, "user_annotation")])[::-1]
    assert operator.parent is annotation


def test_spans_are_joined_and_removed_as_sets_of_moments() -> None:
    rng = random.Random(0)
    for _ in range(50):
        spans, removed = ([(start, start + rng.randint(1, 9)) for start in rng.sample(range(60), 8)] for _ in range(2))
        moments = {moment for start, end in spans for moment in range(start, end)}
        gone = {moment for start, end in removed for moment in range(start, end)}
        assert sum_spans(join_spans(spans)) == len(moments)
        assert sum_spans(remove_spans(join_spans(spans), join_spans(removed))) == len(moments - gone)


def test_python_functions_without_operators_are_dropped() -> None:
    functions = [
        make_event(name, start, 10, "python_function") for name, start in (("idle", 0), ("busy", 20), ("later", 40))
    ]
    other_thread = make_event("idle in another thread", 20, 10, "python_function", thread=2)
    kept = drop_idle_functions([*functions, other_thread, make_event("aten::add", 25, 1)])
    assert [event["name"] for event in kept] == ["busy", "aten::add"]
