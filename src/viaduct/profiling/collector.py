"""Collects a profile step by step: time points of every step, then operators of some.

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

Warm-up steps give no times. The timed steps run with these marks alone. Recorded steps run under the operator profiler,
which slows them down: they say what a step consists of, not how long it takes. In the profile they are marked
`interrupted_by="recording"`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, Protocol

from viaduct.profiling.clocks import Clock, open_clock, read_host_us
from viaduct.profiling.compilations import Compilations
from viaduct.profiling.garbage_pauses import GarbagePauses
from viaduct.profiling.merge import shift_profile
from viaduct.profiling.record import Collective, Facts, Profile, Sample, Step

if TYPE_CHECKING:
    from viaduct.profiling.recorder import Recorded

RECORDING = "recording"
"""What a step under the operator profiler is interrupted by."""
Part = Literal["skip", "timed", "recorded"]


@dataclass(frozen=True)
class Plan:
    """How many steps of which kind are taken, in this order."""

    skip: int  # warm-up
    timed: int  # with the step trace alone
    recorded: int  # with operators, kernels and memory

    @property
    def total(self) -> int:
        return self.skip + self.timed + self.recorded

    def part_of(self, number: int) -> Part:
        """Return what is done in the step of that number, from 0."""
        return "skip" if number < self.skip else "timed" if number < self.skip + self.timed else "recorded"


class Recorder(Protocol):
    """Interface of `recorder.OperatorRecorder` that is used here."""

    def start(self) -> None: ...

    def end_step(self, leave_out: bool = False) -> None: ...

    def stop(self) -> Recorded: ...

    def watch_modules(self, root: Any) -> None: ...


class Sampler(Protocol):
    """Interface of `system.SystemSampler` that is used here."""

    def start(self) -> None: ...

    def stop(self) -> list[Sample]: ...


@dataclass
class OpenStep:
    """A step whose marks are taken and not yet read."""

    number: int
    previous_end: Any = None
    forward_start: Any = None
    backward_end: Any = None
    update_end: Any = None
    end: Any = None
    loader_wait_us: float | None = None
    collectives: list[Collective] = field(default_factory=list)
    recompiled: int = 0
    compile_us: float = 0.0
    interrupted_by: str = ""


class Collector:
    """Takes the marks of one rank's steps, and follows the plan."""

    def __init__(
        self,
        plan: Plan,
        device: str,
        rank: int = 0,
        script_folder: Path | None = None,
        system: bool = True,
        *,
        on_step: Callable[[Part, Step], None] = lambda part, step: None,
        make_recorder: Callable[[], Recorder] | None = None,
        make_sampler: Callable[[], Sampler] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.plan, self.rank = plan, rank
        self.done = False
        self.taken = 0  # steps that have ended
        self.events: list[dict[str, Any]] = []  # Chrome trace events on the profile's clock, after `finish`
        self.missing_forward = self.missing_backward = 0  # steps in which a mark did not come
        self._device, self._script_folder, self._system = device, script_folder, system
        self._on_step = on_step
        self._make_recorder = make_recorder or self._make_own_recorder
        self._make_sampler = make_sampler or make_own_sampler
        self._clock = clock
        self._now = OpenStep(0)
        self._unread: list[OpenStep] = []
        self._steps: dict[Part, list[Step]] = {"skip": [], "timed": [], "recorded": []}
        self._compilations = Compilations()
        self._recorder: Recorder | None = None
        self._recorded: Recorded | None = None
        self._sampler: Sampler | None = None
        self._samples: list[Sample] = []
        self._pauses = GarbagePauses(lambda: self.plan.part_of(self.taken) == "timed")
        self._has_failed = False
        self._roots: list[Any] = []
        self._notes: list[str] = []

    # Marks

    def set_device(self, device: str) -> None:
        """Choose the clock by the device on which the network turns out to be; before the first mark."""
        if self._clock is None:
            self._device = device

    @property
    def device(self) -> str:
        return self._device

    def watch_modules(self, root: Any) -> None:
        """Name a network, so that recorded operators know their module."""
        if not any(root is known for known in self._roots):
            self._roots.append(root)
            if self._recorder is not None:
                self._recorder.watch_modules(root)

    def mark_loader_wait(self, began_us: float, ended_us: float) -> None:
        """Add the time in which the host waited for a batch of this step; on the host's counter."""
        self._now.loader_wait_us = (self._now.loader_wait_us or 0.0) + ended_us - began_us

    def mark_forward_start(self) -> None:
        """Take t1: the first call in a step counts."""
        if self._now.forward_start is None and not self.done:
            self._compilations.listen()
            self._now.forward_start = self._begin_step().mark()

    def mark_backward_end(self) -> None:
        """Take t2: the last call in a step counts."""
        if not self.done:
            self._now.backward_end = self._begin_step().mark()

    def mark_update_end(self) -> None:
        """Take t6 ahead of `mark_step_end`, where it is known only later that the step was over; the last counts."""
        if not self.done:
            self._now.update_end = self._begin_step().mark()

    def mark_collective(self, name: str, start_us: float, duration_us: float, bytes: int | None = None) -> None:
        """Add a collective operation of this step, on the host's counter."""
        self._now.collectives.append(Collective(name, start_us, duration_us, bytes))

    def mark_interruption(self, kind: str) -> None:
        """Say what else lies between the step before and this one: "evaluation", "checkpoint"."""
        kinds = self._now.interrupted_by.split(", ") if self._now.interrupted_by else []
        if kind not in kinds:
            self._now.interrupted_by = ", ".join([*kinds, kind])

    def mark_step_end(self, interrupted_by: str = "") -> None:
        """Take t6, unless `mark_update_end` has, and go on to the next step; `done` says that there is none."""
        if self.done:
            return
        step, clock = self._now, self._begin_step()
        step.end = clock.mark() if step.update_end is None else step.update_end
        if interrupted_by:
            self.mark_interruption(interrupted_by)
        step.recompiled, step.compile_us = self._compilations.take_new()
        self._complete(step)
        self._unread.append(step)
        self._read_steps(only_ready=True)
        self.taken += 1
        self._now = OpenStep(self.taken, previous_end=step.end)
        self._change_part(step)

    def _begin_step(self) -> Clock:
        """Open the clock with the first mark; begin to sample the system."""
        if self._clock is None:
            self._clock = open_clock(self._device)
            self._pauses.start()
        if self._sampler is None and self._system:
            self._sampler = self._make_sampler()
            self._sampler.start()
        return self._clock

    def _complete(self, step: OpenStep) -> None:
        """Fill marks that did not come: no forward pass was seen, or no backward pass."""
        if step.forward_start is None:
            self.missing_forward += 1
            step.forward_start = step.previous_end if step.previous_end is not None else step.backward_end or step.end
        if step.backward_end is None:
            self.missing_backward += 1
            step.backward_end = step.end

    # Parts of the plan

    def _change_part(self, ended: OpenStep) -> None:
        """Start the recorder after the last timed step; stop it after the last step of all."""
        if self._recorder is not None:
            recorder = self._recorder
            self._guard(lambda: recorder.end_step(leave_out=bool(ended.interrupted_by)))
        if self.taken >= self.plan.total or self._has_failed:
            self.done = True
            self._guard(self._stop)
        elif self.taken == self.plan.skip + self.plan.timed:
            self._read_steps(only_ready=False)
            self._guard(self._start_recorder)
            self.done = self._has_failed

    def _guard(self, action: Callable[[], None]) -> None:
        """Keep a failure of the recorder away from the training; the profile says what is missing."""
        try:
            action()
        except Exception as error:
            self._has_failed = True
            self._recorder = None
            self._notes.append(f"operators are missing: recording them failed with {type(error).__name__}: {error}")

    def _start_recorder(self) -> None:
        self._recorder = self._make_recorder()
        for root in self._roots:
            self._recorder.watch_modules(root)
        self._recorder.start()
        self._now.previous_end = self._begin_step().mark()  # starting it is no part of the step

    def _make_own_recorder(self) -> Recorder:
        from viaduct.profiling.recorder import OperatorRecorder

        return OperatorRecorder(self._device, self.rank, self._script_folder)

    def _stop(self) -> None:
        """Read what is left, stop sampler and recorder; a second call does nothing."""
        self._pauses.stop()
        self._read_steps(only_ready=False)
        if self._sampler is not None:
            sampler, self._sampler = self._sampler, None
            self._samples = sampler.stop()
            self._system = False
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            self._recorded = recorder.stop()

    def _read_steps(self, only_ready: bool) -> None:
        """Turn marks into times, in their order, as far as the device has got or to the end."""
        if not self._unread:
            return
        clock = self._begin_step()
        if not only_ready:
            clock.synchronize()
        while self._unread and (not only_ready or clock.is_ready(self._unread[0].end)):
            self._keep(read_step(self._unread.pop(0), clock, self.rank))

    def _keep(self, step: Step) -> None:
        part = self.plan.part_of(step.number)
        if part == "recorded":
            step = replace(step, interrupted_by=", ".join(filter(None, (RECORDING, step.interrupted_by))))
        self._steps[part].append(step)
        self._on_step(part, step)

    # The end

    def finish(self, facts: Facts) -> Profile:
        """Return what was collected so far, whether or not the plan is fulfilled."""
        was_recording = self._recorder is not None
        try:
            self._stop()
        except Exception as error:  # a device that has failed answers nothing any more
            self._notes.append(f"what was not read before the end is lost: {type(error).__name__}: {error}")
        if was_recording:
            self._notes.append("the script ended while operators were recorded: their figures are of fewer steps.")
        again = any(step.recompiled and not step.interrupted_by for step in self._steps["timed"])
        reasons = [f"compiled again: {reason}" for reason in self._compilations.reasons()] if again else []
        notes = [*facts.notes, *self._notes, *filter(None, [self._compilations.missing]), *reasons]
        parts = self._steps
        return self._assemble(
            replace(
                facts,
                device=self._device,
                warmup_steps=len(parts["skip"]),
                timed_steps=len(parts["timed"]),
                recorded_steps=len(parts["recorded"]),
                recorded_step_us=find_recorded_us(parts["recorded"]),
                notes=tuple(notes),
            )
        )

    def _assemble(self, facts: Facts) -> Profile:
        recorded = self._recorded
        steps = assign_collectives([*self._steps["timed"], *self._steps["recorded"]], recorded)
        profile = Profile(facts, steps=steps, samples=self._samples, tables=self._pauses.make_tables())
        if recorded is not None:
            profile = replace(
                profile,
                facts=replace(facts, notes=(*facts.notes, *recorded.notes)),
                operators=recorded.operators,
                kernels=recorded.kernels,
                memory=recorded.memory,
                memory_owners=recorded.memory_owners,
            )
        zero = find_start(profile)
        self.events = shift_events(recorded.events if recorded is not None else [], -zero)
        profile = replace(profile, facts=replace(profile.facts, zero_unix_us=convert_to_unix(zero)))
        return shift_profile(profile, -zero)


def find_recorded_us(steps: Sequence[Step]) -> float | None:
    """Return the median iteration of recorded steps in which nothing else ran, or of all where there are none."""
    undisturbed = [step for step in steps if step.interrupted_by == RECORDING] or steps
    return median(step.iteration_us for step in undisturbed) if undisturbed else None


def make_own_sampler() -> Sampler:
    from viaduct.profiling.system import SystemSampler

    return SystemSampler()


def read_step(step: OpenStep, clock: Clock, rank: int) -> Step:
    """Read the marks of a step in their order; a mark that another stream reached early counts as the one before."""
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
        collectives=tuple(step.collectives),
        recompiled=step.recompiled,
        compile_us=step.compile_us,
        interrupted_by=step.interrupted_by,
    )


def assign_collectives(steps: Sequence[Step], recorded: Recorded | None) -> list[Step]:
    """Return the steps with the collectives that the recorder saw within them."""
    seen = list(recorded.collectives) if recorded is not None else []
    return [replace(step, collectives=(*step.collectives, *find_within(step, seen))) for step in steps]


def find_within(step: Step, collectives: Sequence[Collective]) -> list[Collective]:
    start = step.forward_start_us if step.previous_end_us is None else step.previous_end_us
    return [collective for collective in collectives if start <= collective.start_us < step.end_us]


def find_start(profile: Profile) -> float:
    """Return the time of the earliest event of a profile; 0 where there is none."""
    starts = [step.forward_start_us if step.previous_end_us is None else step.previous_end_us for step in profile.steps]
    starts += [point.time_us for point in profile.memory] + [sample.time_us for sample in profile.samples]
    return min(starts, default=0.0)


def convert_to_unix(host_us: float) -> float:
    """Return a time of the host's counter as microseconds since 1970."""
    return host_us + time.time_ns() / 1000 - read_host_us()


def shift_events(events: Sequence[dict[str, Any]], by_us: float) -> list[dict[str, Any]]:
    """Return trace events with their times moved."""
    return [{**event, "ts": event["ts"] + by_us} if "ts" in event else event for event in events]
