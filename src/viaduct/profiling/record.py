"""Profile of a training run of a script or a recipe: steps, operators, kernels, memory, system figures.

    profile = Profile(facts=Facts(source="train.py", kind="script", device="cpu"), steps=[...], operators=[...])
    write_profile(profile, Path("prof"))
    profile = read_profile(Path("prof"))

Collectors and readers fill these records; summary, report, advice, comparison and trace read them. Times are
microseconds (`_us`), on one clock for all ranks of a profile; its zero is the profile's earliest step, memory point or
sample, or the first event of a Kineto trace. `None` means "not measured" and is shown as a dash. Importing this module
does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

SCHEMA = 1  # version of profile.json

Phase = Literal["data", "forward", "backward", "update", "other"]
SourceKind = Literal["script", "recipe", "msprof", "torch_npu", "kineto"]

RECORDING = "recording"
"""Interruption of a step under the operator profiler, which makes it slower than a timed one."""
MAX_MEMORY_POINTS = 4000  # of one rank that are kept; `thin_points` selects them


@dataclass(frozen=True)
class Collective:
    """One collective operation of a step, such as an all-reduce of gradients."""

    name: str
    start_us: float
    duration_us: float
    bytes: int | None = None
    exposed_us: float | None = None  # part of the duration in which this rank does not compute


@dataclass(frozen=True)
class Step:
    """One iteration of one rank.

    Ascend's documents call `forward_start_us` t1, `backward_end_us` t2 and `end_us` t6; the collectives are t3 to t5.
    """

    rank: int
    number: int  # counted from 0, or as another tool numbers its steps
    forward_start_us: float
    backward_end_us: float
    end_us: float
    previous_end_us: float | None  # None if it is not known, as for the first step of a profile
    loader_wait_us: float | None = None  # time for which the host waited for the batch of this step
    collectives: tuple[Collective, ...] = ()
    recompiled: int = 0  # graphs that torch.compile compiled in this step, for the first time or again
    compile_us: float = 0.0
    interrupted_by: str = ""  # other work since the previous step, and RECORDING: "recording, evaluation"

    @property
    def interruptions(self) -> list[str]:
        return self.interrupted_by.split(", ") if self.interrupted_by else []

    @property
    def is_recorded(self) -> bool:
        """True for a step under the operator profiler."""
        return RECORDING in self.interruptions

    @property
    def start_us(self) -> float:
        """End of the previous step, or this step's forward start if that is not known."""
        return self.forward_start_us if self.previous_end_us is None else self.previous_end_us

    @property
    def iteration_us(self) -> float:
        """Time from `start_us` to the end of the step."""
        return self.end_us - self.start_us

    @property
    def data_tail_us(self) -> float | None:
        """Time from the end of the previous step to the start of this forward pass; None if it is not known."""
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
    """One operator with one signature, per recorded step of one rank.

    Counts are means over the recorded steps. Times are medians over these steps; they are means for an operator that
    some step does not have, and in the profiles of msprof and torch_npu.
    """

    name: str  # "aten::convolution"
    calls: float
    total_us: float  # on the host, with the operators that it calls
    self_us: float  # on the host, without them
    device_us: float | None = None  # time of the kernels that it launched itself; None on the CPU
    phase: Phase = "other"
    module: str = ""  # "layer1.0.conv1"; empty if no module is known
    shapes: str = ""  # "[32, 64, 56, 56], [64, 64, 3, 3]"
    dtypes: str = ""  # "float32, float32"
    layout: str = ""  # of the first input with four dimensions: "contiguous", "channels_last", "other"
    location: str = ""  # "train.py:41", the innermost line of the script; "" if it was not recorded
    flops: float | None = None
    bytes: float | None = None
    synchronises: bool = False  # the host waits for the device here: .item(), .cpu(), nonzero
    rank: int = 0

    @property
    def device_or_self_us(self) -> float:
        """Time of the operator's kernels if they were measured, else its self time on the host."""
        return self.self_us if self.device_us is None else self.device_us


@dataclass(frozen=True)
class Kernel:
    """One kernel, with figures per recorded step, as of an operator. On the CPU: an operator, with its self time."""

    name: str
    kind: str  # one of profiling/kinds.py: "convolution", "matrix product", "normalisation", "elementwise", …
    calls: float
    time_us: float
    dtype: str = ""
    operator: str = ""  # name of the operator that launched it
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
    """Bytes at the peak with one owner: "activations of layer1", "gradients", or a node of a vendor's file."""

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
    """Measured peak rates of the device: bytes/s, and floating-point operations/s by dtype."""

    bandwidth: float
    flops: dict[str, float]  # "float32" -> FLOP/s


@dataclass(frozen=True)
class Advice:
    """A recommended change, with its evidence."""

    title: str  # "The loader is too slow: 61 % of each step waits for data"
    action: str  # what to change
    evidence: tuple[str, ...]  # sentences with the figures that support the advice
    gain_us: float | None  # expected, per iteration; None if not measured, or if only another device would gain
    gain_basis: str  # basis of the gain, or reason for None: "the measured pauses, which would vanish"
    locations: tuple[str, ...] = ()  # "train.py:41"
    changes: dict[str, str] = field(default_factory=dict)  # recipe field -> value that `--apply` tries
    name: str = ""  # of the rule in profiling/advice, which is the name of its module; `add_advice` sets it


@dataclass(frozen=True)
class Facts:
    """What was profiled, and how; shown in every report."""

    source: str  # script, recipe or folder, as the user named it
    kind: SourceKind
    device: str = "cpu"  # cpu, cuda, npu, mlu
    description: str = ""  # "AMD EPYC, 2 cores, avx512_bf16"
    ranks: int = 1
    command: str = ""
    batch: int | None = None  # samples of one rank's step, if it is known
    precision: str = ""
    mode: str = ""  # "eager", "graph", or "sink 20": a captured graph of 20 steps
    warmup_steps: int = 0
    timed_steps: int = 0  # steps of which only the time points were taken: these give the times
    recorded_steps: int = 0  # steps under the operator profiler
    recorded_step_us: float | None = None  # median iteration time of recorded steps, which the profiler makes longer
    phases_found_by: tuple[str, ...] = ()  # sentences on how the time points of a step were found
    notes: tuple[str, ...] = ()  # missing measurements, with reasons
    ended: str = ""  # if the script ended before all steps were taken: "exit code 1 after 7 steps"
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    workers: int | None = None  # number of the DataLoader's worker processes; None if that or the DataLoader is unknown
    cores: int | None = None  # number of processor cores that a process may use; all ranks share them
    phases_measured: bool = True  # False: some or all steps have no phases; all their time is in forward + backward
    zero_unix_us: float | None = None  # Unix time at which this profile's times are 0, to merge the profiles of ranks


@dataclass(frozen=True)
class Profile:
    """All records of one profiled run."""

    facts: Facts
    steps: Sequence[Step] = ()
    operators: Sequence[Operator] = ()
    kernels: Sequence[Kernel] = ()
    memory: Sequence[MemoryPoint] = ()
    memory_owners: Sequence[MemoryOwner] = ()
    samples: Sequence[Sample] = ()
    ceilings: Ceilings | None = None
    advice: Sequence[Advice] = ()
    tables: dict[str, Any] = field(default_factory=dict)  # further tables: name -> {"columns": […], "rows": […]}

    @property
    def regular_steps(self) -> list[Step]:
        """Steps that directly follow another one, without an interruption."""
        return [step for step in self.steps if step.previous_end_us is not None and not step.interrupted_by]

    def regular_steps_of(self, rank: int) -> list[Step]:
        return [step for step in self.regular_steps if step.rank == rank]

    @property
    def ranks(self) -> list[int]:
        return sorted({step.rank for step in self.steps})

    @property
    def iteration_us(self) -> float | None:
        """Median iteration time over all ranks' regular steps; None without regular steps."""
        return find_median_iteration(self.regular_steps)

    @property
    def start_us(self) -> float:
        """Time of the earliest step, memory point or sample; 0 if there is none."""
        starts = [step.start_us for step in self.steps] + [point.time_us for point in self.memory]
        return min([*starts, *(sample.time_us for sample in self.samples)], default=0.0)


def find_median_iteration(steps: Sequence[Step]) -> float | None:
    """Return the median iteration time of steps; None without steps."""
    return median(step.iteration_us for step in steps) if steps else None


def thin_points(points: Sequence[MemoryPoint], most: int = MAX_MEMORY_POINTS) -> list[MemoryPoint]:
    """Return at most `most` points in order of time, among them the peak: the highest of each group of neighbours."""
    ordered = sorted(points, key=lambda point: point.time_us)
    if len(ordered) <= most:
        return ordered
    size = -(-len(ordered) // most)  # points in a group; rounded up
    groups = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [max(group, key=lambda point: point.allocated) for group in groups]
