"""The run itself: ceilings, then every variant built and warmed up, then turns, then a look at where the time goes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from viaduct.benching import counting, shares
from viaduct.benching.counting import Work
from viaduct.benching.ours import Ours, Setting
from viaduct.benching.peers import Loop, Peer
from viaduct.devices import ceilings
from viaduct.devices.base import Device, first_line
from viaduct.devices.timing import Clock, Sample, ratio, take_turns, warm_up
from viaduct.errors import OutOfMemory, ViaductError, lacks_memory
from viaduct.recipes import Recipe
from viaduct.training.networks import build_model
from viaduct.training.precision import DTYPES, plan_for, software_note
from viaduct.training.rundir import RunDir
from viaduct.training.session import explain_limits

Tell = Callable[[str], None]
OURS = "viaduct"


class Variant(Protocol):
    """Something that takes training steps."""

    def first(self) -> None: ...
    def __call__(self, steps: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Lengths:
    """How much is measured."""

    steps: int  # in a window
    windows: int
    warmup: int
    profile: bool = True

    @classmethod
    def of(
        cls, kind: str, sink: int, steps: int | None, windows: int | None, warmup: int | None, profile: bool
    ) -> Lengths:
        """What was asked for, or what is usual on such a device; a window is a whole number of sinks."""
        short = kind == "cpu"
        steps, warmup = steps or (2 if short else 20), (1 if short else 20) if warmup is None else warmup
        if sink:
            steps, warmup = whole(steps, sink), max(whole(warmup, sink), sink)
        return cls(steps, windows or (3 if short else 7), warmup, profile)


@dataclass
class Measured:
    """One variant, and all that is known of it."""

    title: str
    peer: str
    way: str
    variant: Variant
    work: Work
    build_s: float = 0.0
    first_step_s: float = 0.0
    memory_bytes: int | None = None
    seconds: Sample = field(default_factory=lambda: Sample([]))
    ratio: float = 1.0  # to ours: how many times as quick ours is
    shares: shares.Shares = field(default_factory=shares.Shares)


@dataclass(frozen=True)
class Outcome:
    """One whole measurement: ours first, then the peers."""

    measured: list[Measured]
    absent: dict[str, str]
    ceilings: ceilings.Ceilings
    compute: str
    notes: list[str]
    facts: dict[str, Any] = field(default_factory=dict)  # what ours was, as it ran

    @property
    def ours(self) -> Measured:
        return self.measured[0]

    @property
    def best_peer(self) -> Measured | None:
        return min(self.measured[1:], key=lambda one: one.seconds.median, default=None)


def measure(setting: Setting, peers: list[Peer], absent: dict[str, str], lengths: Lengths, tell: Tell) -> Outcome:
    """One whole measurement; `absent` are those that cannot even be tried, with their reasons."""
    plan = plan_for(setting.recipe.precision, setting.device)
    if note := software_note(plan, setting.device):
        tell(note)
    tell("measuring what the device can do at best")
    with memory_named(setting):
        best = ceilings.measure(setting.device, setting.place, plan.dtype, setting.recipe.precision.tf32)
    release(setting.place)
    run = Run(setting, DTYPES[plan.compute], lengths, tell)
    with run:
        run.begin(peers)
        run.take_turns()
        if lengths.profile:
            run.look()
        return Outcome(run.measured, absent | run.absent, best, plan.compute, run.notes, run.facts())


class Run:
    """All variants in one process, side by side."""

    def __init__(self, setting: Setting, dtype: torch.dtype, lengths: Lengths, tell: Tell) -> None:
        self.setting, self.dtype, self.lengths, self.tell = setting, dtype, lengths, tell
        self.clock = Clock(setting.device, setting.place.type)
        self.measured: list[Measured] = []
        self.absent: dict[str, str] = {}
        self.notes: list[str] = []
        self.held = ExitStack()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *reason: object) -> None:
        """Leave nothing behind that a repetition would find."""
        self.held.close()
        for one in self.measured:
            del one.variant
        forget_compiled()
        release(self.setting.place)

    def begin(self, peers: list[Peer]) -> None:
        recipe = self.setting.recipe
        with explain_limits(RunDir(self.setting.scratch), recipe), memory_named(self.setting):
            self.admit(OURS, OURS, lambda: Ours(self.setting), lambda: build_model(recipe))
        ours = self.measured[0]
        if isinstance(ours.variant, Ours):
            ours.way = ours.variant.way
            ours.title = f"{OURS}, {ours.way}"
            self.notes += ours.variant.told()
        for peer in peers:
            self.try_peer(peer)

    def facts(self) -> dict[str, Any]:
        ours = self.measured[0].variant
        return ours.facts() if isinstance(ours, Ours) else {}

    def try_peer(self, peer: Peer) -> None:
        """A peer that cannot run here is named with its reason; ours is measured all the same."""
        if reason := self.reason_against(peer):
            self.absent[peer.title] = reason
            self.tell(f"{peer.title}: left out: {reason}")
            release(self.setting.place)  # here, where nothing holds on to what it had built any more

    def reason_against(self, peer: Peer) -> str | None:
        place, recipe = self.setting.place, self.setting.recipe
        try:
            self.admit(peer.title, peer.name, lambda: Loop(peer, recipe, place, self.dtype), peer.make, peer.way)
        except ViaductError:
            raise
        except Exception as error:
            return first_line(error)
        return None

    def admit(
        self, title: str, peer: str, build: Callable[[], Variant], network: Callable[[], nn.Module], way: str = ""
    ) -> None:
        """Build a variant, take its first step, warm it up."""
        data, made = self.setting.recipe.data, []
        before = memory_now(self.setting.device)
        work = counting.count(network, data.global_batch, data.size, self.dtype)
        build_s = self.clock.wall_seconds(lambda: made.append(build()))
        variant = made.pop()
        with ExitStack() as held:
            held.callback(variant.close)
            first = self.clock.wall_seconds(variant.first)
            self.tell(f"{title}: first step after {first:.1f} s; warming up")
            warm_up(variant, self.clock, self.lengths.warmup)
            self.held.push(held.pop_all())
        memory = self.memory_since(before)
        self.measured.append(Measured(title, peer, way, variant, work, build_s, first, memory))

    def memory_since(self, before: int) -> int | None:
        """What a variant has added at its worst. On the CPU it is all that the process had, and of ours only: what one
        variant has freed is used again by the next."""
        used = self.setting.device.memory_used()
        if self.setting.place.type == "cpu":
            return None if self.measured else used
        return max(0, used - before)

    def take_turns(self) -> None:
        lengths, count = self.lengths, len(self.measured)
        windows, steps = counted(lengths.windows, "window"), counted(lengths.steps, "step")
        self.tell(f"{windows} of {steps}, {counted(count, 'variant')} in turn")
        with memory_named(self.setting):
            turns = take_turns(
                {one.title: one.variant for one in self.measured},
                self.clock,
                lengths.steps,
                lengths.windows,
                lambda turn: self.tell(f"window {turn} of {lengths.windows}"),
            )
        for one in self.measured:
            one.seconds = Sample(turns[one.title])
            one.ratio = ratio(turns[one.title], turns[self.measured[0].title])

    def look(self) -> None:
        kind = self.setting.place.type
        few = min(self.lengths.steps, 2 if kind == "cpu" else 5)
        for one in self.measured:
            self.tell(f"{one.title}: looking where the time goes")
            steps = whole(few, max(1, fixed_length(self.setting.recipe))) if one.peer == OURS else few
            with memory_named(self.setting):
                one.shares = shares.look(one.variant, steps, kind, 1000 * one.seconds.median)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def fixed_length(recipe: Recipe) -> int:
    """Return the steps of a sink; 0 without sinks, also on a device that captures none."""
    return recipe.sink if isinstance(recipe.sink, int) else 0


def whole(steps: int, sink: int) -> int:
    return -(-steps // sink) * sink


def forget_compiled() -> None:
    """Where the compiler was loaded: to import it here would be slow, and fails if an interrupt cut it short before."""
    if hasattr(sys.modules.get("torch._dynamo"), "reset"):
        torch.compiler.reset()


def memory_now(device: Device) -> int:
    """What is in use now: the peak begins again from here."""
    device.reset_memory()
    return device.memory_used()


def release(place: torch.device) -> None:
    gc.collect()
    vendor: Any = getattr(torch, place.type, None)
    if place.type != "cpu" and hasattr(vendor, "empty_cache"):
        vendor.empty_cache()


@contextmanager
def memory_named(setting: Setting) -> Iterator[None]:
    """Memory that does not suffice, in words."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        data = setting.recipe.data
        raise OutOfMemory(
            f"the memory does not suffice for batches of {data.global_batch} images of {data.size} pixels: "
            f"{str(error).splitlines()[0] if str(error) else 'none is left'}",
            "Try a smaller --batch or --size, or fewer peers: all of them are in memory at once.",
        ) from error
