"""Collecting steps: marks are taken by hand, on a clock that a test sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from viaduct.profiling.clocks import Clock, DeviceClock
from viaduct.profiling.collector import Collector, Plan
from viaduct.profiling.record import RECORDING, Collective, Facts, MemoryPoint, Profile, Sample, Step

from .fake_device import FakeVendor


class HandClock(Clock):
    """Shows what it was set to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def mark(self) -> float:
        return self.now


class FakeRecorder:
    """Counts what is asked of it; starting it takes 500 µs of the clock."""

    def __init__(self, clock: HandClock) -> None:
        self.clock, self.calls, self.roots = clock, [], []  # type: ignore[var-annotated]

    def start(self) -> None:
        self.calls.append("start")
        self.clock.now += 500

    def end_step(self, leave_out: bool = False) -> None:
        self.calls.append("left out" if leave_out else "step")

    def add_network(self, root: Any) -> None:
        self.roots.append(root)

    def stop(self) -> Any:
        self.calls.append("stop")
        return SimpleNamespace(
            operators=[],
            kernels=[],
            memory=[MemoryPoint(self.clock.now, 7)],
            memory_owners=[],
            collectives=[Collective("all_reduce", self.clock.now - 10, 5, exposed_us=5)],
            events=[{"ph": "X", "ts": self.clock.now - 10, "name": "aten::add"}, {"ph": "M"}],
            notes=["a note of the recorder"],
        )


def make_collector(plan: Plan, clock: HandClock, **options: Any) -> tuple[Collector, FakeRecorder, list[Any]]:
    recorder, kept = FakeRecorder(clock), []  # type: ignore[var-annotated]
    collector = Collector(
        plan,
        "cpu",
        make_sampler=None,
        clock=clock,
        make_recorder=lambda: recorder,
        on_step=lambda part, step: kept.append((part, step.number)),
        **options,
    )
    return collector, recorder, kept


def take_step(collector: Collector, clock: HandClock, data: float = 10, passes: float = 60, update: float = 30) -> None:
    clock.now += data
    collector.mark_forward_start()
    clock.now += passes
    collector.mark_backward_end()
    clock.now += update
    collector.mark_step_end()


def finish(collector: Collector) -> Profile:
    return collector.finish(Facts("train.py", "script"))


def test_warm_up_steps_give_no_times() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(2, 3, 0), clock)
    for _ in range(5):
        take_step(collector, clock)
    profile = finish(collector)
    assert [step.number for step in profile.steps] == [2, 3, 4]
    assert (profile.facts.warmup_steps, profile.facts.timed_steps, profile.facts.recorded_steps) == (2, 3, 0)
    assert profile.facts.recorded_step_us is None


def test_nothing_is_taken_after_the_last_step() -> None:
    clock = HandClock()
    collector, recorder, _ = make_collector(Plan(0, 1, 1), clock)
    for _ in range(4):
        take_step(collector, clock)
    assert collector.done
    assert collector.ended_steps == 2
    assert recorder.calls == ["start", "step", "stop"]


def test_recorded_steps_are_no_regular_ones() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(1, 2, 2), clock)
    for number in range(5):
        take_step(collector, clock, passes=60 if number < 3 else 600)
    profile = finish(collector)
    assert profile.iteration_us == 100
    assert [step.interrupted_by for step in profile.steps] == ["", "", RECORDING, RECORDING]
    assert profile.facts.recorded_step_us == 640  # without the time that starting the recorder took


def test_phases_are_those_of_the_training_trace_and_sum_up() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(1, 2, 0), clock)
    for data in (5, 11, 17):
        take_step(collector, clock, data=data, passes=61, update=31)
    for step, data in zip(finish(collector).steps, (11, 17), strict=True):
        assert (step.data_tail_us, step.forward_backward_us, step.update_tail_us) == (data, 61, 31)
        assert step.iteration_us == data + 61 + 31


def test_first_forward_and_last_backward_of_a_step_count() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(0, 1, 0), clock)
    for _ in range(3):  # accumulated gradients
        clock.now += 10
        collector.mark_forward_start()
        clock.now += 20
        collector.mark_backward_end()
    collector.mark_step_end()
    step = finish(collector).steps[0]
    assert step.forward_backward_us == 80
    assert step.update_tail_us == 0


def test_a_step_may_be_closed_later_than_it_ended() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(0, 2, 0), clock)
    collector.mark_forward_start()
    clock.now += 10
    collector.mark_backward_end()
    clock.now += 10
    collector.mark_update_end()
    clock.now += 70
    collector.mark_step_end()
    take_step(collector, clock, data=0)
    first, second = finish(collector).steps
    assert first.update_tail_us == 10
    assert second.data_tail_us == 70


def test_loader_waits_of_a_step_add_up_and_do_not_reach_the_next() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(0, 2, 0), clock)
    collector.mark_loader_wait(1, 4)
    collector.mark_loader_wait(5, 10)
    take_step(collector, clock)
    take_step(collector, clock)
    assert [step.loader_wait_us for step in finish(collector).steps] == [8, None]


def test_a_missing_mark_is_counted_and_leaves_no_data_or_update_tail() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(1, 1, 0), clock)
    take_step(collector, clock)
    clock.now += 50
    collector.mark_step_end()
    step = finish(collector).steps[0]
    assert (collector.missing_forward, collector.missing_backward) == (1, 1)
    assert (step.data_tail_us, step.forward_backward_us, step.update_tail_us) == (0, 50, 0)


def test_interruptions_are_named_once() -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(0, 2, 0), clock)
    collector.mark_interruption("evaluation")
    collector.mark_interruption("evaluation")
    collector.mark_interruption("checkpoint")
    take_step(collector, clock)
    take_step(collector, clock)
    assert [step.interrupted_by for step in finish(collector).steps] == ["evaluation, checkpoint", ""]


def test_steps_are_handed_over_as_they_come() -> None:
    clock = HandClock()
    collector, _, kept = make_collector(Plan(1, 1, 1), clock)
    take_step(collector, clock)
    assert kept == [("skip", 0)]
    take_step(collector, clock)
    take_step(collector, clock)
    assert kept == [("skip", 0), ("timed", 1), ("recorded", 2)]


def test_a_script_that_ends_while_operators_are_recorded_loses_nothing_and_says_so() -> None:
    clock = HandClock()
    collector, recorder, _ = make_collector(Plan(0, 1, 3), clock)
    take_step(collector, clock)
    take_step(collector, clock)
    profile = finish(collector)
    assert recorder.calls == ["start", "step", "stop"]
    assert profile.facts.recorded_steps == 1
    assert any("ended while operators were recorded" in note for note in profile.facts.notes)


def test_steps_are_not_said_to_be_recorded_if_the_recorder_fails_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    collector, recorder, _ = make_collector(Plan(0, 1, 3), clock)
    take_step(collector, clock)
    take_step(collector, clock)

    def fail() -> None:
        raise OSError("no more files")

    monkeypatch.setattr(recorder, "stop", fail)
    assert finish(collector).facts.notes == ("what had not been read before the end is lost: OSError: no more files",)


@pytest.mark.parametrize("moment", ["start", "end_step", "stop"])
def test_a_recorder_that_fails_does_not_reach_the_training(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    collector, recorder, _ = make_collector(Plan(0, 2, 2), clock)

    def fail(**options: bool) -> None:
        raise OSError("no more files")

    monkeypatch.setattr(recorder, moment, fail)
    for _ in range(4):
        take_step(collector, clock)
    profile = finish(collector)
    assert collector.done
    assert profile.facts.timed_steps == 2
    assert profile.facts.notes == ("operators are missing: recording them failed with OSError: no more files",)


def test_all_times_of_a_profile_have_its_zero() -> None:
    clock = HandClock()
    collector, recorder, _ = make_collector(Plan(1, 1, 1), clock)
    root = object()
    collector.add_network(root)
    collector.add_network(root)
    for _ in range(3):
        take_step(collector, clock)
    profile = finish(collector)
    assert recorder.roots == [root]
    assert profile.steps[0].previous_end_us == 0
    assert profile.memory[0].time_us == profile.steps[1].end_us
    assert [collective.start_us for collective in profile.steps[1].collectives] == [profile.steps[1].end_us - 10]
    assert collector.events == [{"ph": "X", "ts": profile.steps[1].end_us - 10, "name": "aten::add"}, {"ph": "M"}]
    assert profile.facts.zero_unix_us is not None
    assert "a note of the recorder" in profile.facts.notes


def test_the_system_is_sampled_from_the_first_mark_to_the_last_step() -> None:
    clock, calls = HandClock(), []

    class FakeSampler:
        def start(self) -> None:
            calls.append("start")

        def stop(self) -> list[Sample]:
            calls.append("stop")
            return [Sample(1000, {"cpu 0 %": 50.0})]

    collector = Collector(Plan(0, 1, 0), "cpu", clock=clock, make_sampler=FakeSampler)
    assert calls == []
    take_step(collector, clock)
    assert calls == ["start", "stop"]
    profile = finish(collector)
    assert calls == ["start", "stop"]
    assert profile.samples == [Sample(0, {"cpu 0 %": 50.0})]


def test_device_times_are_read_when_the_device_gets_there() -> None:
    vendor, kept = FakeVendor(), []  # type: ignore[var-annotated]
    collector = Collector(
        Plan(1, 2, 0),
        "cuda",
        make_sampler=None,
        clock=DeviceClock(vendor),
        on_step=lambda part, step: kept.append(step),
    )

    def work(milliseconds: float) -> None:
        vendor.device_ms += milliseconds
        vendor.is_idle = False

    for _ in range(3):
        work(2)
        collector.mark_forward_start()
        work(5)
        collector.mark_backward_end()
        work(3)
        collector.mark_step_end()
        assert len(kept) in (0, 3)  # nothing waits for the device before the last step
    for step in finish(collector).steps:
        parts = (step.data_tail_us, step.forward_backward_us, step.update_tail_us, step.iteration_us)
        assert parts == pytest.approx((2000, 5000, 3000, 10000))


def test_a_device_that_has_failed_loses_only_what_was_not_read() -> None:
    vendor = FakeVendor()
    collector = Collector(Plan(0, 3, 0), "cuda", make_sampler=None, clock=DeviceClock(vendor))
    collector.mark_forward_start()
    collector.mark_step_end()
    vendor.is_idle = False
    collector.mark_step_end()

    def fail() -> None:
        raise RuntimeError("device-side assert triggered")

    vendor.synchronize = fail  # type: ignore[method-assign]
    profile = finish(collector)
    assert len(profile.steps) == 1
    assert any("device-side assert" in note for note in profile.facts.notes)


def test_a_step_that_compiles_says_how_often_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    collector, _, _ = make_collector(Plan(0, 2, 0), clock)
    figures = iter([(2, 1500.0), (0, 0.0)])
    monkeypatch.setattr(collector._compilations, "take_new_counts", lambda: next(figures))
    take_step(collector, clock)
    take_step(collector, clock)
    steps: list[Step] = list(finish(collector).steps)
    assert [(step.recompiled, step.compile_us) for step in steps] == [(2, 1500.0), (0, 0.0)]


@pytest.mark.parametrize(
    ("graphs", "interruption", "message"), [(0, "", False), (3, "evaluation", False), (3, "", True)]
)
def test_reasons_to_compile_are_named_only_where_a_timed_step_compiled(
    monkeypatch: pytest.MonkeyPatch, graphs: int, interruption: str, message: bool
) -> None:
    """torch remembers those of the whole process, and of evaluations, too."""
    collector = Collector(Plan(0, 1, 0), "cpu", make_sampler=None, clock=HandClock())
    monkeypatch.setattr(collector._compilations, "take_new_counts", lambda: (graphs, 10.0))
    monkeypatch.setattr(collector._compilations, "list_new_reasons", lambda: ["train.py:3 forward: size mismatch"])
    collector.mark_forward_start()
    if interruption:
        collector.mark_interruption(interruption)
    collector.mark_step_end()
    notes = collector.finish(Facts("train.py", "script")).facts.notes
    assert ("compiled again: train.py:3 forward: size mismatch" in notes) == message
