"""Benchmark run: measure peak rates (ceilings), build and warm up every variant, time them in turns, profile each one.

"Ours" is the recipe in the loop of `viaduct train` (ours.py), the other variants are peers: the same network from
torchvision or timm in a plain loop. A sink is a number of steps that the device takes by itself, as one replay of a
captured graph. A window is a number of consecutive steps that are timed together.
"""

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
from viaduct.benching.counting import StepWork
from viaduct.benching.ours import Ours, Setting
from viaduct.benching.peers import Peer, PlainLoop
from viaduct.devices import ceilings
from viaduct.devices.base import summarise_error
from viaduct.devices.timing import Clock, Sample, compute_speedup, take_turns, warm_up
from viaduct.errors import OutOfMemory, ViaductError, is_out_of_memory
from viaduct.recipes import Recipe
from viaduct.training.limits import explain_limits
from viaduct.training.networks import build_model
from viaduct.training.precision import DTYPES, describe_emulation, plan_precision
from viaduct.training.rundir import RunDir

Notify = Callable[[str], None]
OURS = "viaduct"


class Variant(Protocol):
    """Training loop that runs a number of steps when called."""

    def run_first_step(self) -> None: ...
    def __call__(self, steps: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Lengths:
    """Numbers of steps and windows of a measurement, and whether a few steps are also profiled.

    The JSON record has these fields under the same names.
    """

    steps: int  # steps of a window
    windows: int
    warmup: int  # warm-up steps before the first window
    profile: bool = True

    @classmethod
    def of(
        cls, device_type: str, sink: int, steps: int | None, windows: int | None, warmup: int | None, profile: bool
    ) -> Lengths:
        """Return the requested lengths, with the device's defaults for those that are None.

        With sinks, whose length in steps is `sink` (0: none), steps and warm-up are rounded up to whole sinks; the
        warm-up has at least one.
        """
        default_steps, default_windows, default_warmup = (2, 3, 1) if device_type == "cpu" else (20, 7, 20)
        steps, warmup = steps or default_steps, default_warmup if warmup is None else warmup
        if sink:
            steps, warmup = round_up_to_sinks(steps, sink), max(round_up_to_sinks(warmup, sink), sink)
        return cls(steps, windows or default_windows, warmup, profile)


@dataclass
class VariantResult:
    """One variant and its measurements."""

    title: str
    peer: str  # package of the peer, "plain", or OURS
    mode: str  # of peers.MODES, or a description of ours
    variant: Variant
    work: StepWork
    build_s: float = 0.0
    first_step_s: float = 0.0
    memory_bytes: int | None = None  # peak memory, from `Measurement.measure_added_memory`
    seconds: Sample = field(default_factory=lambda: Sample([]))  # seconds per step, a value for each window
    ratio: float = 1.0  # median over the windows of this variant's time divided by ours
    shares: shares.Shares = field(default_factory=shares.Shares)


@dataclass(frozen=True)
class Outcome:
    """Result of one repetition of a measurement; `results` has ours first, then the peers."""

    results: list[VariantResult]
    unavailable: dict[str, str]  # title of a peer, and the reason
    ceilings: ceilings.Ceilings
    compute: str  # dtype of the computation: fp32, bf16 or fp16
    notes: list[str]
    facts: dict[str, Any] = field(default_factory=dict)  # settings with which ours ran

    @property
    def ours(self) -> VariantResult:
        return self.results[0]


def measure(
    setting: Setting, peers: list[Peer], unavailable: dict[str, str], lengths: Lengths, notify: Notify
) -> Outcome:
    """Measure ours and the peers once; `unavailable` has the reason for each peer that cannot be measured."""
    plan = plan_precision(setting.recipe.precision, setting.device)
    if note := describe_emulation(plan, setting.device):
        notify(note)
    notify("measuring the device's peak rates")
    with explain_out_of_memory(setting):
        best = ceilings.measure(setting.device, setting.torch_device, plan.dtype, setting.recipe.precision.tf32)
    release_memory(setting.torch_device)
    with Measurement(setting, DTYPES[plan.compute], lengths, notify) as taken:
        taken.build_variants(peers)
        taken.take_turns()
        if lengths.profile:
            taken.profile_variants()
        left_out = unavailable | taken.unavailable
        return Outcome(taken.results, left_out, best, plan.compute, taken.notes, taken.ours.collect_facts())


class Measurement:
    """Measurement of all variants in one process."""

    def __init__(self, setting: Setting, dtype: torch.dtype, lengths: Lengths, notify: Notify) -> None:
        self.setting, self.dtype, self.lengths, self.notify = setting, dtype, lengths, notify
        self.clock = Clock(setting.device, setting.torch_device.type)
        self.results: list[VariantResult] = []
        self.unavailable: dict[str, str] = {}
        self.notes: list[str] = []
        self.cleanup = ExitStack()

    def __enter__(self) -> Measurement:
        return self

    def __exit__(self, *reason: object) -> None:
        """Close all variants, free their memory and reset torch.compile for the next repetition."""
        self.cleanup.close()
        for result in self.results:
            del result.variant
        reset_compiler()
        release_memory(self.setting.torch_device)

    def build_variants(self, peers: list[Peer]) -> None:
        """Build and warm up ours, then each peer."""
        recipe = self.setting.recipe
        with explain_limits(RunDir(self.setting.scratch), recipe), explain_out_of_memory(self.setting):
            self.add_variant(OURS, OURS, lambda: Ours(self.setting), lambda: build_model(recipe))
        self.results[0].mode = self.ours.description
        self.results[0].title = f"{OURS}, {self.ours.description}"
        self.notes += self.ours.describe_ignored_settings()
        for peer in peers:
            if reason := self.add_peer(peer):
                self.unavailable[peer.title] = reason
                self.notify(f"{peer.title}: left out: {reason}")
                # In `add_peer` the exception still refers to the network, so its memory could not be freed there.
                release_memory(self.setting.torch_device)

    @property
    def ours(self) -> Ours:
        ours = self.results[0].variant
        assert isinstance(ours, Ours)
        return ours

    def add_peer(self, peer: Peer) -> str | None:
        """Build and warm up a peer; return the reason if it fails, but raise a ViaductError."""
        torch_device, recipe = self.setting.torch_device, self.setting.recipe
        try:
            self.add_variant(
                peer.title, peer.name, lambda: PlainLoop(peer, recipe, torch_device, self.dtype), peer.make, peer.mode
            )
        except ViaductError:
            raise
        except Exception as error:
            return summarise_error(error)
        return None

    def add_variant(
        self,
        title: str,
        peer: str,
        build_variant: Callable[[], Variant],
        build_network: Callable[[], nn.Module],
        mode: str = "",
    ) -> None:
        """Build a variant, run its first step, warm it up."""
        data = self.setting.recipe.data
        self.setting.device.reset_peak_memory()
        before = self.setting.device.get_peak_memory()  # memory in use, as the peak was just reset
        work = counting.count_step_work(build_network, data.global_batch, data.size, self.dtype)
        built: list[Variant] = []
        build_s = self.clock.measure_wall_seconds(lambda: built.append(build_variant()))
        variant = built[0]
        with ExitStack() as cleanup:  # closes the variant if a step fails
            cleanup.callback(variant.close)
            first_step_s = self.clock.measure_wall_seconds(variant.run_first_step)
            self.notify(f"{title}: first step after {first_step_s:.1f} s; warming up")
            warm_up(variant, self.clock, self.lengths.warmup)
            self.cleanup.push(cleanup.pop_all())
        memory = self.measure_added_memory(before)
        self.results.append(VariantResult(title, peer, mode, variant, work, build_s, first_step_s, memory))

    def measure_added_memory(self, before: int) -> int | None:
        """Return the peak memory of a variant that was just built, without the bytes that were in use `before` it.

        On the CPU it is the peak of the whole process for ours, and None for peers, which reuse memory that ours freed.
        """
        used = self.setting.device.get_peak_memory()
        if self.setting.torch_device.type == "cpu":
            return None if self.results else used
        return max(0, used - before)

    def take_turns(self) -> None:
        """Time all variants in turns and store each one's seconds per step and ratio to ours."""
        lengths, variants = self.lengths, format_count(len(self.results), "variant")
        windows, steps = format_count(lengths.windows, "window"), format_count(lengths.steps, "step")
        self.notify(f"{windows} of {steps}, {variants} in turn")
        with explain_out_of_memory(self.setting):
            turns = take_turns(
                {result.title: result.variant for result in self.results},
                self.clock,
                lengths.steps,
                lengths.windows,
                lambda turn: self.notify(f"window {turn} of {lengths.windows}"),
            )
        for result in self.results:
            result.seconds = Sample(turns[result.title])
            result.ratio = compute_speedup(turns[result.title], turns[self.results[0].title])

    def profile_variants(self) -> None:
        """Profile a few steps of every variant and store their time by kind."""
        device_type = self.setting.torch_device.type
        profiled_steps = min(self.lengths.steps, 2 if device_type == "cpu" else 5)
        sink = max(1, find_sink_length(self.setting.recipe))
        for result in self.results:
            self.notify(f"{result.title}: profiling a few steps")
            steps = round_up_to_sinks(profiled_steps, sink) if result.peer == OURS else profiled_steps
            with explain_out_of_memory(self.setting):
                result.shares = shares.profile_steps(result.variant, steps, device_type, 1000 * result.seconds.median)


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def find_sink_length(recipe: Recipe) -> int:
    """Return the length of a sink in steps, of a recipe that `ours.fix_sink` returned; 0 without sinks."""
    return recipe.sink if isinstance(recipe.sink, int) else 0


def round_up_to_sinks(steps: int, sink: int) -> int:
    return -(-steps // sink) * sink


def reset_compiler() -> None:
    """Reset torch.compile if it was loaded; importing it here would be slow, or fail after an interrupted import."""
    if hasattr(sys.modules.get("torch._dynamo"), "reset"):
        torch.compiler.reset()


def release_memory(torch_device: torch.device) -> None:
    """Collect garbage and return cached device memory to the driver."""
    gc.collect()
    vendor: Any = getattr(torch, torch_device.type, None)
    if torch_device.type != "cpu" and hasattr(vendor, "empty_cache"):
        vendor.empty_cache()


@contextmanager
def explain_out_of_memory(setting: Setting) -> Iterator[None]:
    """Turn an out-of-memory error into one that names the batch, the size and what to try."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        data = setting.recipe.data
        raise OutOfMemory(
            f"the memory does not suffice for batches of {data.global_batch} images of {data.size} pixels: "
            f"{str(error).splitlines()[0] if str(error) else 'none is left'}",
            "Try a smaller --batch or --size, or fewer peers: all of them are in memory at once.",
        ) from error
