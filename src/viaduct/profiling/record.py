"""A profile: what one run of a training script or recipe spent its time on.

    profile = Profile(facts=Facts(source="train.py", kind="script", device="cpu"), steps=[...], operators=[...])
    write_profile(profile, Path("prof"))
    profile = read_profile(Path("prof"))

Collectors and readers fill these records; summary, report, advice, comparison and trace read them. Nothing here
imports torch. Times are microseconds (`_us`), on one clock for all ranks of a profile whose zero is the earliest
event. `None` means "not measured": it is shown as a dash, never as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

SCHEMA = 1
"""Version of profile.json."""

Phase = Literal["data", "forward", "backward", "update", "other"]
SourceKind = Literal["script", "recipe", "msprof", "torch_npu", "kineto"]


@dataclass(frozen=True)
class Collective:
    """One collective operation of a step, such as an all-reduce of gradients."""

    name: str
    start_us: float
    duration_us: float
    bytes: int | None = None
    exposed_us: float | None = None  # part of the duration in which this rank computed nothing


@dataclass(frozen=True)
class Step:
    """One iteration of one rank, with the time points of the training trace.

    t1 `forward_start_us`, t2 `backward_end_us`, t6 `end_us`; t3 to t5 are the collectives in between.
    """

    rank: int
    number: int  # as the script counts, from 0
    forward_start_us: float
    backward_end_us: float
    end_us: float
    previous_end_us: float | None  # None for the first step of a profile
    loader_wait_us: float | None = None  # time in which the host waited for the batch of this step
    collectives: tuple[Collective, ...] = ()
    recompiled: int = 0  # graphs that torch.compile compiled in this step
    compile_us: float = 0.0
    interrupted_by: str = ""  # "evaluation", "checkpoint": what else lies between this step and the one before

    @property
    def iteration_us(self) -> float:
        """Time from the end of the step before to the end of this one; for the first step from its forward start."""
        return self.end_us - (self.forward_start_us if self.previous_end_us is None else self.previous_end_us)

    @property
    def data_tail_us(self) -> float | None:
        """Time from the end of the step before to the start of this forward pass; None for the first step."""
        return None if self.previous_end_us is None else self.forward_start_us - self.previous_end_us

    @property
    def forward_backward_us(self) -> float:
        """Time from the start of the forward pass to the end of the backward pass."""
        return self.backward_end_us - self.forward_start_us

    @property
    def update_tail_us(self) -> float:
        """Time from the end of the backward pass to the end of the step: gradient aggregation and update."""
        return self.end_us - self.backward_end_us


@dataclass(frozen=True)
class Operator:
    """One operator with one signature, per recorded step of one rank: counts are means, times of a typical step."""

    name: str  # "aten::convolution"
    calls: float
    total_us: float  # on the host, with the operators that it calls
    self_us: float  # on the host, without them
    device_us: float | None = None  # kernels that it launched itself; None on the CPU
    phase: Phase = "other"
    module: str = ""  # "layer1.0.conv1"; empty where no module is known
    shapes: str = ""  # "[32, 64, 56, 56], [64, 64, 3, 3]"
    dtypes: str = ""  # "float32, float32"
    layout: str = ""  # of the first input with four dimensions: "contiguous", "channels_last", "other"
    location: str = ""  # "train.py:41", the innermost line of the script; where it was recorded
    flops: float | None = None  # per recorded step, as calls and times are
    bytes: float | None = None
    synchronises: bool = False  # the host waits for the device here: .item(), .cpu(), nonzero
    rank: int = 0


@dataclass(frozen=True)
class Kernel:
    """One kernel name, per recorded step as operators are. On the CPU: operators with the time that is their own."""

    name: str
    kind: (
        str  # "convolution", "matrix product", "normalisation", "pooling", "elementwise", "copies", "communication", …
    )
    calls: float
    time_us: float
    dtype: str = ""
    operator: str = ""  # the operator that launched it
    flops: float | None = None
    bytes: float | None = None
    rank: int = 0


@dataclass(frozen=True)
class MemoryPoint:
    """Memory at one moment."""

    time_us: float
    allocated: int  # bytes in live tensors
    reserved: int | None = None  # bytes that the allocator holds
    rank: int = 0


@dataclass(frozen=True)
class MemoryOwner:
    """Bytes that were alive at the peak, and who allocated them: a module, or a kind such as "gradients"."""

    name: str
    bytes: int
    rank: int = 0


@dataclass(frozen=True)
class Sample:
    """Figures of the system at one moment: "cpu 0 %", "memory MiB", "gpu 0 %", "disk read MiB/s", …"""

    time_us: float
    values: dict[str, float]


@dataclass(frozen=True)
class Ceilings:
    """The best that the device did in a measurement: bytes/s and floating-point operations/s by dtype."""

    bandwidth: float
    flops: dict[str, float]  # "float32" -> FLOP/s


@dataclass(frozen=True)
class Advice:
    """One thing to change, with the figures that speak for it."""

    name: str  # the file in profiling/advice that found it
    title: str  # "The loader is too slow: 61 % of each step waits for data"
    action: str  # what to change, as one would tell a colleague
    evidence: tuple[str, ...]  # sentences with the figures they rest on
    gain_us: float | None  # of one iteration, expected; None if not measured, or if only another device would gain
    gain_basis: str  # how that figure came about: "measured here in both layouts", "the wait that would vanish"
    locations: tuple[str, ...] = ()  # "train.py:41"
    changes: dict[str, str] = field(default_factory=dict)  # recipe field -> value that `--apply` tries


@dataclass(frozen=True)
class Facts:
    """What was profiled, and how; shown in every report."""

    source: str  # script, recipe or folder, as the user named it
    kind: SourceKind
    device: str = "cpu"  # cpu, cuda, npu, mlu
    description: str = ""  # "AMD EPYC, 2 cores, avx512_bf16"
    ranks: int = 1
    command: str = ""
    batch: int | None = None  # samples of one rank's step, where it is known
    precision: str = ""
    mode: str = ""  # "eager", "graph", "sink 20"
    warmup_steps: int = 0
    timed_steps: int = 0  # steps with the step trace alone: these give the times
    recorded_steps: int = 0  # steps under the operator profiler
    recorded_step_us: float | None = None  # median iteration while operators were recorded: more than without
    phases_found_by: tuple[str, ...] = ()  # sentences: how each time point was found
    notes: tuple[str, ...] = ()  # what could not be measured, and why
    ended: str = ""  # why a script ended before all steps were taken: "exit code 1 after 7 steps"
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    workers: int | None = None  # of the DataLoader, where there is one
    cores: int | None = None
    phases_measured: bool = True  # False: steps have an iteration time only, all of which stands as forward + backward
    zero_unix_us: float | None = None  # Unix time of this profile's zero: puts the ranks' profiles on one clock


@dataclass(frozen=True)
class Profile:
    """Everything that is known of one profiled run."""

    facts: Facts
    steps: Sequence[Step] = ()
    operators: Sequence[Operator] = ()
    kernels: Sequence[Kernel] = ()
    memory: Sequence[MemoryPoint] = ()
    memory_owners: Sequence[MemoryOwner] = ()
    samples: Sequence[Sample] = ()
    ceilings: Ceilings | None = None
    advice: Sequence[Advice] = ()
    tables: dict[str, Any] = field(default_factory=dict)  # what only one reader knows, as {"columns": […], "rows": […]}

    @property
    def regular_steps(self) -> list[Step]:
        """Steps that follow another one directly, without an interruption: they show what an iteration takes."""
        return [step for step in self.steps if step.previous_end_us is not None and not step.interrupted_by]

    def steps_of(self, rank: int) -> list[Step]:
        """Return the regular steps of one rank."""
        return [step for step in self.regular_steps if step.rank == rank]

    @property
    def ranks(self) -> list[int]:
        """Ranks that have steps."""
        return sorted({step.rank for step in self.steps})

    @property
    def iteration_us(self) -> float | None:
        """Median iteration time over all ranks' regular steps; None without any."""
        steps = self.regular_steps
        return median(step.iteration_us for step in steps) if steps else None
