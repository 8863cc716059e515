"""Answers of the measuring process; test_worker_process.py starts it as a process."""

from __future__ import annotations

from typing import Any

from viaduct.errors import BadValue
from viaduct.tuning import request_server
from viaduct.tuning.measuring import TurnTimes
from viaduct.tuning.request_server import answer
from viaduct.tuning.signature import Signature


def refuse(request: dict[str, Any]) -> dict[str, Any]:
    raise BadValue("no such thing.", "Try another.")


def fail(request: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError(f"{'x' * 500}\nsecond line")


def test_an_error_of_a_variant_is_an_answer_of_one_short_line() -> None:
    error = answer({"fail": fail}, {"do": "fail"})["error"]
    assert error == f"RuntimeError: {'x' * 200}"
    assert answer({}, {"do": "unknown"}) == {"error": "KeyError: 'unknown'"}


def test_a_refusal_keeps_its_hints() -> None:
    assert answer({"refuse": refuse}, {"do": "refuse"}) == {"refused": "no such thing.", "hints": ["Try another."]}


class FakeTimer:
    """Timer on which each configuration takes as many microseconds as its value of `tile`."""

    def __init__(self, wrong: str | None = None) -> None:
        self.wrong = wrong
        self.compared: tuple[str, str] | None = None

    def check_values(self, *arguments: object) -> str | None:
        return self.wrong

    def time_in_turns(
        self, signature: Signature, points: Any, compared: tuple[str, str], *turns: int, seconds: float
    ) -> TurnTimes:
        self.compared = compared
        return TurnTimes({name: [float(point["tile"])] * 9 for name, point in points.items()}, 0.25)


def measure(timer: FakeTimer, candidate: int, incumbent: int) -> dict[str, Any]:
    points = {"default": {"tile": 8}, "candidate": {"tile": candidate}, "incumbent": {"tile": incumbent}}
    turns = {"min_turns": 5, "max_turns": 9, "seconds": 1}
    request = {"do": "measure", "signature": {"kind": "conv2d"}, **points, **turns}
    return request_server.measure(timer, request)  # type: ignore[arg-type]


def test_wrong_values_are_not_timed() -> None:
    timer = FakeTimer("output is off by 1e-1")
    assert measure(timer, 4, 8) == {"wrong": "output is off by 1e-1"}
    assert timer.compared is None


def test_a_candidate_is_compared_with_the_best_point_so_far() -> None:
    timer = FakeTimer()
    result = measure(timer, candidate=4, incumbent=2)
    assert timer.compared == ("candidate", "incumbent")
    assert (result["us"], result["default_us"], result["ratio"]) == (4, 8, 0.5)
    assert (result["beats_incumbent"], result["beats_default"], result["others"]) == (False, True, 0.25)
    assert measure(timer, candidate=4, incumbent=8)["beats_incumbent"]
    assert timer.compared == ("candidate", "default")


def test_the_default_is_timed_alone() -> None:
    timer = FakeTimer()
    assert measure(timer, candidate=8, incumbent=8)["ratio"] == 1
    assert timer.compared == ("default", "default")
