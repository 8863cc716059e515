"""Collect a profile step by step: time points of every step, then operators of the last ones.

    collector = Collector(Plan(skip=5, timed=20, recorded=5), device="cuda")
    for batch in loader:
        collector.mark_forward_start()
        loss(model(batch)).backward()
        collector.mark_backward_end()
        optimizer.step()
        collector.mark_step_end()
        if collector.done:
            break
    profile = collector.finish(Facts(source="train.py", kind="script", device="cuda"))

Warm-up steps are not part of the profile. In timed steps only these marks are taken, while a thread samples the system.
Recorded steps run under the operator profiler, which slows them down, so they give the operators of a step but not its
time: they have the interruption "recording". A mark is a time point as the clock takes it (clocks.py): a number on the
CPU, an event on an accelerator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from viaduct.profiling.clocks import Clock, open_clock, read_host_us
from viaduct.profiling.compilations import RECOMPILATION_NOTE, Compilations
from viaduct.profiling.garbage_pauses import GarbagePauses
from viaduct.profiling.merge import start_at_zero
from viaduct.profiling.record import RECORDING, Facts, Profile, Sample, Step, find_median_iteration
from viaduct.profiling.system import SystemSampler
from viaduct.profiling.trace_steps import add_collectives

if TYPE_CHECKING:
    from viaduct.profiling.recorder import OperatorRecorder, RecordedSteps

PlanPart = Literal["skip", "timed", "recorded"]
"""Part of the plan that a step belongs to. "skip" is the warm-up, as in the flag --skip."""


@dataclass(frozen=True)
class Plan:
    """Number of steps of each part, in this order."""

    skip: int  # warm-up steps, which are not part of the profile
    timed: int  # steps of which only the times are taken
    recorded: int  # steps of which operators, kernels and memory are recorded

    @property
    def total(self) -> int:
        return self.skip + self.timed + self.recorded

    def find_part(self, number: int) -> PlanPart:
        """Return the part of the step with this number, counted from 0."""
        return "skip" if number < self.skip else "timed" if number < self.skip + self.timed else "recorded"


@dataclass
class OpenStep:
    """A step whose marks have not been read; a mark is None until it is taken."""

    number: int
    previous_end: Any = None  # mark of the end of the step before
    forward_start: Any = None
    backward_end: Any = None
    update_end: Any = None
    end: Any = None
    loader_wait_us: float | None = None
    recompiled: int = 0  # graphs that torch.compile compiled in this step
    compile_us: float = 0.0
    interruptions: list[str] = field(default_factory=list)


class Collector:
    """Takes the marks of one rank's steps, and follows the plan.

    `on_step` is called with each step once its times are known. Tests replace `make_recorder`, `make_sampler` (None:
    load and memory of the machine are not sampled) and `clock`.
    """

    def __init__(
        self,
        plan: Plan,
        device: str,
        rank: int = 0,
        script_folder: Path | None = None,
        *,
        on_step: Callable[[PlanPart, Step], None] = lambda part, step: None,
        make_recorder: Callable[[], Any] | None = None,
        make_sampler: Callable[[], Any] | None = SystemSampler,
        clock: Clock | None = None,
    ) -> None:
        self.plan, self.rank = plan, rank
        self.done = False
        self.ended_steps = 0
        self.events: list[dict[str, Any]] = []  # Chrome trace events on the profile's clock; set by `finish`
        self.missing_forward = self.missing_backward = 0  # steps in which a mark did not come
        self.device, self._script_folder = device, script_folder
        self._on_step = on_step
        self._make_recorder = make_recorder or self._make_default_recorder
        self._make_sampler = make_sampler  # None once it was called
        self._clock = clock
        self._open_step = OpenStep(0)
        self._unread: list[OpenStep] = []  # steps that have ended on the host, but perhaps not on the device
        self._steps: dict[PlanPart, list[Step]] = {"skip": [], "timed": [], "recorded": []}
        self._compilations = Compilations()
        self._recorder: OperatorRecorder | None = None
        self._recorded: RecordedSteps | None = None
        self._sampler: SystemSampler | None = None
        self._samples: list[Sample] = []
        self._pauses = GarbagePauses(lambda: self.plan.find_part(self.ended_steps) == "timed")
        self._recorder_has_failed = False
        self._networks: list[Any] = []
        self._notes: list[str] = []

    # Marks

    def set_device(self, device: str) -> None:
        """Set the device; without effect after the first mark, which opens the device's clock."""
        if self._clock is None:
            self.device = device

    def add_network(self, network: Any) -> None:
        if not any(network is known for known in self._networks):
            self._networks.append(network)
            if self._recorder is not None:
                self._recorder.add_network(network)

    def mark_loader_wait(self, began_us: float, ended_us: float) -> None:
        """Add a wait of the host for a batch of this step; both times are the host counter's."""
        self._open_step.loader_wait_us = (self._open_step.loader_wait_us or 0.0) + ended_us - began_us

    def mark_forward_start(self) -> None:
        """Mark the start of the forward pass; the first call in a step counts."""
        if self._open_step.forward_start is None and not self.done:
            self._compilations.register_callbacks()
            self._open_step.forward_start = self._get_clock().mark()

    def mark_backward_end(self) -> None:
        """Mark the end of the backward pass; the last call in a step counts."""
        if not self.done:
            self._open_step.backward_end = self._get_clock().mark()

    def mark_update_end(self) -> None:
        """Mark a possible end of the step, for a caller that learns later if it was the end; the last call counts."""
        if not self.done:
            self._open_step.update_end = self._get_clock().mark()

    def mark_interruption(self, kind: str) -> None:
        """Record other work between the previous step and this one: "evaluation", "checkpoint"."""
        if kind not in self._open_step.interruptions:
            self._open_step.interruptions.append(kind)

    def mark_step_end(self) -> None:
        """End the step, at the time of `mark_update_end` if that was called, and begin the next one.

        After the last step of the plan `done` is True.
        """
        if self.done:
            return
        step, clock = self._open_step, self._get_clock()
        step.end = clock.mark() if step.update_end is None else step.update_end
        step.recompiled, step.compile_us = self._compilations.take_new_counts()
        self._fill_missing_marks(step)
        self._unread.append(step)
        self._read_steps(only_ready=True)
        self.ended_steps += 1
        self._open_step = OpenStep(self.ended_steps, previous_end=step.end)
        self._change_part(step)

    def _get_clock(self) -> Clock:
        """Return the clock; the first call opens it and begins to sample the system."""
        if self._clock is None:
            self._clock = open_clock(self.device)
            self._pauses.start()
        if self._make_sampler is not None:
            self._sampler, self._make_sampler = self._make_sampler(), None
            self._sampler.start()
        return self._clock

    def _fill_missing_marks(self, step: OpenStep) -> None:
        """Set missing marks, so that the data tail or the update tail has no length.

        The forward pass then starts where the previous step ended, and the backward pass ends with the step.
        """
        if step.forward_start is None:
            self.missing_forward += 1
            step.forward_start = step.previous_end if step.previous_end is not None else step.backward_end or step.end
        if step.backward_end is None:
            self.missing_backward += 1
            step.backward_end = step.end

    # Parts of the plan

    def _change_part(self, ended: OpenStep) -> None:
        """Start the recorder after the last timed step; stop all after the last step, or if the recorder failed."""
        if self._recorder is not None:
            recorder = self._recorder
            self._catch_failure(lambda: recorder.end_step(leave_out=bool(ended.interruptions)))
        if self.ended_steps >= self.plan.total or self._recorder_has_failed:
            self.done = True
            self._catch_failure(self._stop)
        elif self.ended_steps == self.plan.skip + self.plan.timed:
            self._read_steps(only_ready=False)
            self._catch_failure(self._start_recorder)
            self.done = self._recorder_has_failed

    def _catch_failure(self, action: Callable[[], None]) -> None:
        """Run an action of the recorder; if it fails, end the profile with a note, and let the training continue."""
        try:
            action()
        except Exception as error:
            self._recorder_has_failed = True
            self._recorder = None
            self._notes.append(f"operators are missing: recording them failed with {type(error).__name__}: {error}")

    def _start_recorder(self) -> None:
        self._recorder = self._make_recorder()
        for network in self._networks:
            self._recorder.add_network(network)
        self._recorder.start()
        self._open_step.previous_end = self._get_clock().mark()  # starting the recorder is no part of the step

    def _make_default_recorder(self) -> OperatorRecorder:
        from viaduct.profiling.recorder import OperatorRecorder

        return OperatorRecorder(self.device, self.rank, self._script_folder)

    def _stop(self) -> None:
        """Read the remaining marks, stop sampler and recorder; a second call does nothing."""
        self._pauses.stop()
        self._read_steps(only_ready=False)
        if self._sampler is not None:
            sampler, self._sampler = self._sampler, None
            self._samples = sampler.stop()
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            self._recorded = recorder.stop()

    def _read_steps(self, only_ready: bool) -> None:
        """Convert the marks of steps to times, in order; with `only_ready` only of steps that the device has ended."""
        if not self._unread:
            return
        clock = self._get_clock()
        if not only_ready:
            clock.synchronize()
        while self._unread and (not only_ready or clock.is_ready(self._unread[0].end)):
            ended = self._unread.pop(0)
            part = self.plan.find_part(ended.number)
            step = read_step(ended, clock, self.rank)
            if part == "recorded":
                step = replace(step, interrupted_by=", ".join([RECORDING, *ended.interruptions]))
            self._steps[part].append(step)
            self._on_step(part, step)

    # The end

    def finish(self, facts: Facts) -> Profile:
        """Return the profile of everything collected so far."""
        was_recording = self._recorder is not None
        try:
            self._stop()
        except Exception as error:  # the device has failed
            self._notes.append(f"what had not been read before the end is lost: {type(error).__name__}: {error}")
        if was_recording and self._recorded is not None:
            self._notes.append("the script ended while operators were recorded: their figures are of fewer steps.")
        has_recompiled = any(step.recompiled and not step.interrupted_by for step in self._steps["timed"])
        reasons = (
            [RECOMPILATION_NOTE + reason for reason in self._compilations.list_new_reasons()] if has_recompiled else []
        )
        notes = [*facts.notes, *self._notes, *filter(None, [self._compilations.missing_note]), *reasons]
        parts = self._steps
        facts = replace(
            facts,
            device=self.device,
            warmup_steps=len(parts["skip"]),
            timed_steps=len(parts["timed"]),
            recorded_steps=len(parts["recorded"]),
            recorded_step_us=measure_recorded_us(parts["recorded"]),
            notes=tuple(notes),
        )
        return self._build_profile(facts, parts["timed"] + parts["recorded"])

    def _build_profile(self, facts: Facts, steps: Sequence[Step]) -> Profile:
        """Return the profile with its earliest time as zero, and put `events` on that clock."""
        profile = Profile(facts, steps=steps, samples=self._samples, tables=self._pauses.make_tables())
        recorded = self._recorded
        if recorded is not None:
            profile = replace(
                profile,
                facts=replace(facts, notes=(*facts.notes, *recorded.notes)),
                steps=add_collectives(steps, recorded.collectives, computing=None),  # with known exposed times
                operators=recorded.operators,
                kernels=recorded.kernels,
                memory=recorded.memory,
                memory_owners=recorded.memory_owners,
            )
        zero = profile.start_us
        events = recorded.events if recorded is not None else []
        self.events = [{**event, "ts": event["ts"] - zero} if "ts" in event else event for event in events]
        return start_at_zero(profile, convert_to_unix(zero))


def measure_recorded_us(steps: Sequence[Step]) -> float | None:
    """Return the median iteration time of the recorded steps without another interruption; if all have one, of all."""
    return find_median_iteration([step for step in steps if step.interrupted_by == RECORDING] or steps)


def read_step(step: OpenStep, clock: Clock, rank: int) -> Step:
    """Return a step with its times; marks are read in their order, so that `DeviceClock.read` measures short times.

    If another stream reaches a mark before the preceding mark, both get the same time.
    """
    previous = None if step.previous_end is None else clock.read(step.previous_end)
    start = clock.read(step.forward_start)
    start = start if previous is None else max(start, previous)
    backward = max(start, clock.read(step.backward_end))
    return Step(
        rank=rank,
        number=step.number,
        forward_start_us=start,
        backward_end_us=backward,
        end_us=max(backward, clock.read(step.end)),
        previous_end_us=previous,
        loader_wait_us=step.loader_wait_us,
        recompiled=step.recompiled,
        compile_us=step.compile_us,
        interrupted_by=", ".join(step.interruptions),
    )


def convert_to_unix(host_us: float) -> float:
    """Return a time of the host's counter as microseconds since 1970."""
    return host_us + time.time_ns() / 1000 - read_host_us()


def clear_constant_interruptions(profile: Profile) -> Profile:
    """Return the profile without interruptions that more than half of the timed steps have; a note names each."""
    timed = [step for step in profile.steps if not step.is_recorded]
    kinds = sorted({kind for step in timed for kind in step.interruptions})
    constant = [kind for kind in kinds if 2 * sum(kind in step.interruptions for step in timed) > len(timed)]
    if not constant or len(timed) < 2:
        return profile
    notes = [f"{kind} occurs in most steps and is counted as part of them." for kind in constant]
    steps = [
        replace(step, interrupted_by=", ".join(kind for kind in step.interruptions if kind not in constant))
        for step in profile.steps
    ]
    return replace(profile, facts=replace(profile.facts, notes=(*profile.facts.notes, *notes)), steps=steps)
