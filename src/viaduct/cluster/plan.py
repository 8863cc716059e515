"""Scaling on paper: what a step would take on so many devices, from sizes, the bucket schedule and link speeds.

Nothing is run and torch is not imported; a `Workload` is a handful of numbers. The formulas are in docs/launch.md:

    compute      as measured (step_ms), or 6 x multiplications x images / TFLOPs: a third forward, the rest backward
    gradient     of a layer is there when the backward pass has done its share of multiplications, last layer first
    bucket       closed once it has bucket_mb; its all-reduce begins when it is full and the one before has ended
    all-reduce   2 (n-1)/n x bytes over the ring; two levels with several servers: within each, between all, within
    step         the later of the end of computing and the end of the last all-reduce
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from viaduct.errors import BadValue

DEFAULT_LINK = 12.5
"""GB/s out of a server each way: one 100 Gbit/s card."""
DEFAULT_INNER_LINK = 30.0
"""GB/s of a device within its server: one HCCS or PCIe 4 path."""
DEFAULT_TFLOPS = 60.0
INNER_LATENCY_S = 10e-6
LATENCY_S = 30e-6
MIB = 2**20
MASTER_BYTES = 4
BACKWARD_SHARE = 2 / 3
FLOPS_A_MULTIPLICATION = 6
"""Multiply and add, once forward and twice backward."""


@dataclass(frozen=True)
class Layer:
    """Costs of one layer."""

    parameters: int
    multiplications: int
    outputs: int
    """Numbers that it gives for one image; kept for the backward pass."""


@dataclass(frozen=True)
class Workload:
    """Costs of what is trained."""

    layers: Sequence[Layer]
    """In the order of the forward pass."""
    global_batch: int
    accumulate: int = 1
    gradient_bytes: int = 4
    """Of one number on its way: 2 with compression."""
    compute_bytes: int = 4
    """Of one number in computing: 2 with bf16 and fp16."""
    optimizer_slots: int = 1
    """fp32 numbers that the optimizer keeps for each parameter."""
    half_copy: bool = False
    """Whether a copy of the weights in half precision stands beside them (O2, O3)."""
    average: bool = False
    """Whether averaged weights stand beside them (ema)."""
    bucket_mb: float = 25.0

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiplications(self) -> int:
        return sum(layer.multiplications for layer in self.layers)


@dataclass(frozen=True)
class Cluster:
    """Servers, devices, links and speed."""

    servers: int = 1
    devices: int = 8
    """Of each server."""
    link: float = DEFAULT_LINK
    inner_link: float = DEFAULT_INNER_LINK
    step_ms: float | None = None
    tflops: float = DEFAULT_TFLOPS

    @property
    def ranks(self) -> int:
        return self.servers * self.devices

    def __post_init__(self) -> None:
        for flag, value in (("--servers", self.servers), ("--devices", self.devices)):
            if value < 1:
                raise BadValue(f"{flag} is {value}; it must be 1 or more.")
        given = {"--link": self.link, "--inner-link": self.inner_link, "--tflops": self.tflops}
        for flag, speed in {**given, "--step-ms": 1.0 if self.step_ms is None else self.step_ms}.items():
            if not 0 < speed < float("inf"):
                raise BadValue(f"{flag} is {speed:g}; it must be above 0 and finite.")


@dataclass(frozen=True)
class Bucket:
    """One message of gradients: its bytes, and in milliseconds after the step's begin when it is full, sent, done."""

    bytes: int
    ready_ms: float
    begin_ms: float
    end_ms: float


@dataclass(frozen=True)
class Plan:
    """Predicted step."""

    ranks: int
    servers: int
    devices: int
    batch_per_device: int
    compute_ms: float
    communication_ms: float
    """All all-reduces, as if alone."""
    exposed_ms: float
    """What of it is not hidden behind the backward pass."""
    step_ms: float
    images_per_second: float
    efficiency: float
    """The share of a step in which the devices compute."""
    gradient_bytes: int
    sent_inner_bytes: float
    """By each device in each step, to devices of its server."""
    sent_outer_bytes: float
    """By each device in each step, to other servers."""
    buckets: tuple[Bucket, ...]
    memory_bytes: dict[str, int]
    """Of one device, by what it is for."""

    @property
    def sent_bytes(self) -> float:
        return self.sent_inner_bytes + self.sent_outer_bytes

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sent_bytes": self.sent_bytes, "memory_total_bytes": sum(self.memory_bytes.values())}


def predict_step(work: Workload, cluster: Cluster) -> Plan:
    share = batch_share(work, cluster.ranks)
    compute = compute_seconds(work, cluster, share)
    buckets = tuple(schedule_buckets(work, cluster, compute))
    communication = sum(all_reduce_seconds(bucket.bytes, cluster) for bucket in buckets)
    step = max(compute, max((bucket.end_ms for bucket in buckets), default=0.0) / 1000)
    size = work.parameters * work.gradient_bytes
    return Plan(
        ranks=cluster.ranks,
        servers=cluster.servers,
        devices=cluster.devices,
        batch_per_device=share,
        compute_ms=compute * 1000,
        communication_ms=communication * 1000,
        exposed_ms=(step - compute) * 1000,
        step_ms=step * 1000,
        images_per_second=work.global_batch / step,
        efficiency=compute / step,
        gradient_bytes=size,
        sent_inner_bytes=sent_within(size, cluster),
        sent_outer_bytes=sent_between(size, cluster),
        buckets=buckets,
        memory_bytes=estimate_memory(work, share),
    )


def batch_share(work: Workload, ranks: int) -> int:
    if ranks > work.global_batch:
        raise BadValue(
            f"{ranks} devices for a global batch of {work.global_batch}: some would have no image.",
            "Take fewer devices, or a recipe with a larger batch.",
        )
    return -(-work.global_batch // ranks)


def compute_seconds(work: Workload, cluster: Cluster, share: int) -> float:
    if cluster.step_ms is not None:
        return cluster.step_ms / 1000
    return FLOPS_A_MULTIPLICATION * work.multiplications * share / (cluster.tflops * 1e12)


# Communication


def sent_within(size: float, cluster: Cluster) -> float:
    """Bytes of one device to its neighbours: reduce-scatter and all-gather over the devices of a server."""
    return 2 * (cluster.devices - 1) / cluster.devices * size


def sent_between(size: float, cluster: Cluster) -> float:
    """Bytes of one device to other servers: the all-reduce of its own piece, a 1/devices of the whole."""
    return 2 * (cluster.servers - 1) / cluster.servers * size / cluster.devices


def all_reduce_seconds(size: float, cluster: Cluster) -> float:
    """The devices of a server send at once, each over its own path within, all over the one link out."""
    within = sent_within(size, cluster) / (cluster.inner_link * 1e9) + 2 * (cluster.devices - 1) * INNER_LATENCY_S
    outward = sent_between(size, cluster) * cluster.devices
    return within + outward / (cluster.link * 1e9) + 2 * (cluster.servers - 1) * LATENCY_S


def schedule_buckets(work: Workload, cluster: Cluster, compute: float) -> Iterator[Bucket]:
    """The buckets in the order in which they are sent; one device sends nothing."""
    if cluster.ranks == 1:
        return
    free = 0.0
    for size, ready in fill_buckets(work, compute):
        begin = max(ready, free)
        free = begin + all_reduce_seconds(size, cluster)
        yield Bucket(size, ready * 1000, begin * 1000, free * 1000)


def fill_buckets(work: Workload, compute: float) -> Iterator[tuple[int, float]]:
    """(bytes, second when the last gradient is there) of each bucket. With accumulation only the last part sends."""
    last_part = compute / work.accumulate
    begin = compute - BACKWARD_SHARE * last_part
    cap = work.bucket_mb * MIB
    held, done = 0, 0
    all_of_them = max(1, work.multiplications)
    for layer in reversed(work.layers):
        held += layer.parameters * MASTER_BYTES  # torch fills buckets by what gradients are, not by what is sent
        done += layer.multiplications
        if held >= cap:
            yield sent_size(held, work), begin + BACKWARD_SHARE * last_part * done / all_of_them
            held = 0
    if held:
        yield sent_size(held, work), compute


def sent_size(held: int, work: Workload) -> int:
    return held // MASTER_BYTES * work.gradient_bytes


# Memory


def estimate_memory(work: Workload, share: int) -> dict[str, int]:
    """Return the memory of one device by purpose; vendor libraries and the allocator's fragmentation come on top."""
    parameters = work.parameters
    images = -(-share // work.accumulate)
    return {
        "weights": parameters * MASTER_BYTES,
        "half-precision copy": parameters * 2 if work.half_copy else 0,
        "gradients": parameters * MASTER_BYTES,
        "optimizer": parameters * MASTER_BYTES * work.optimizer_slots,
        "averaged weights": parameters * MASTER_BYTES if work.average else 0,
        "activations": images * sum(layer.outputs for layer in work.layers) * work.compute_bytes,
    }
