"""Prediction of a step's time on several devices from layer sizes, gradient buckets and link speeds.

Nothing is run and torch is not imported. docs/launch.md ("Predict scaling") explains the formulas. The step ends when
both the computation and the last all-reduce have ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from viaduct.errors import BadValue

DEFAULT_LINK = 12.5  # GB/s out of a server each way: one 100 Gbit/s card
DEFAULT_INNER_LINK = 30.0  # GB/s of a device within its server: one HCCS or PCIe 4 path
DEFAULT_TFLOPS = 60.0  # assumed speed of a device where no step was measured
INNER_LATENCY_S = 10e-6  # assumed time of one message within a server, whatever its size
LATENCY_S = 30e-6  # assumed time of one message between servers, whatever its size
MIB = 2**20
FP32_BYTES = 4  # bytes of a weight, a gradient and a number of the optimizer's state: all are kept in fp32
BACKWARD_SHARE = 2 / 3  # share of the compute time that is the backward pass
FLOPS_PER_MULTIPLICATION = 6  # multiply and add, once forward and twice backward


@dataclass(frozen=True)
class Layer:
    """Costs of one layer."""

    parameters: int
    multiplications: int
    outputs: int  # numbers in the output for one image, which is stored for the backward pass


@dataclass(frozen=True)
class Workload:
    """Costs of a training step."""

    layers: Sequence[Layer]  # in the order of the forward pass
    global_batch: int
    accumulate: int = 1
    gradient_bytes: int = 4  # bytes of one number of a gradient when it is sent: 2 with compression
    compute_bytes: int = 4  # bytes of one number in computing: 2 with bf16 and fp16
    optimizer_slots: int = 1  # fp32 numbers that the optimizer keeps for each parameter
    half_copy: bool = False  # True if a half-precision copy of the weights is stored too (O2, O3)
    average: bool = False  # True if averaged weights are stored too (ema)
    bucket_mb: float = 25.0  # MiB of gradients that are sent together, as in DistributedDataParallel

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiplications(self) -> int:
        return sum(layer.multiplications for layer in self.layers)


@dataclass(frozen=True)
class Cluster:
    """The machines of a job: servers, devices, links and speed."""

    servers: int = 1
    devices: int = 8  # devices of each server
    link: float = DEFAULT_LINK  # GB/s out of a server each way
    inner_link: float = DEFAULT_INNER_LINK  # GB/s of a device within its server
    step_ms: float | None = None  # measured compute time of a step on one device; None: it is estimated from `tflops`
    tflops: float = DEFAULT_TFLOPS

    @property
    def ranks(self) -> int:
        return self.servers * self.devices

    def __post_init__(self) -> None:
        for flag, value in (("--servers", self.servers), ("--devices", self.devices)):
            if value < 1:
                raise BadValue(f"{flag} is {value}; it must be 1 or more.")
        numbers = {"--link": self.link, "--inner-link": self.inner_link, "--tflops": self.tflops}
        for flag, number in {**numbers, "--step-ms": self.step_ms}.items():
            if number is not None and not 0 < number < math.inf:
                raise BadValue(f"{flag} is {number:g}; it must be above 0 and finite.")


@dataclass(frozen=True)
class Bucket:
    """One all-reduce of gradients. Times are in ms from the beginning of the step."""

    bytes: int
    ready_ms: float  # all its gradients are computed
    begin_ms: float
    end_ms: float


@dataclass(frozen=True)
class Plan:
    """Prediction of one training step."""

    ranks: int
    servers: int
    devices: int  # of each server
    batch_per_device: int  # images
    compute_ms: float
    communication_ms: float  # sum of the times of all all-reduces
    exposed_ms: float  # communication after the computation has ended
    step_ms: float
    images_per_second: float
    efficiency: float  # share of a step in which the devices compute
    gradient_bytes: int  # of all gradients, as they are sent
    sent_inner_bytes: float  # by each device in each step, to devices of its server
    sent_outer_bytes: float  # by each device in each step, to other servers
    buckets: tuple[Bucket, ...]
    memory_bytes: dict[str, int]  # of one device, by purpose

    @property
    def sent_bytes(self) -> float:
        return self.sent_inner_bytes + self.sent_outer_bytes

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sent_bytes": self.sent_bytes, "memory_total_bytes": sum(self.memory_bytes.values())}


def predict_step(workload: Workload, cluster: Cluster) -> Plan:
    """Predict the times, traffic and memory of one step; raise BadValue if some devices would have no image."""
    images = count_device_images(workload, cluster.ranks)
    compute = estimate_compute_seconds(workload, cluster, images)
    buckets = tuple(schedule_buckets(workload, cluster, compute))
    communication = sum(estimate_all_reduce_seconds(bucket.bytes, cluster) for bucket in buckets)
    step = max(compute, max((bucket.end_ms for bucket in buckets), default=0.0) / 1000)
    size = workload.parameters * workload.gradient_bytes
    return Plan(
        ranks=cluster.ranks,
        servers=cluster.servers,
        devices=cluster.devices,
        batch_per_device=images,
        compute_ms=compute * 1000,
        communication_ms=communication * 1000,
        exposed_ms=(step - compute) * 1000,
        step_ms=step * 1000,
        images_per_second=workload.global_batch / step,
        efficiency=compute / step,
        gradient_bytes=size,
        sent_inner_bytes=count_inner_bytes(size, cluster),
        sent_outer_bytes=count_outer_bytes(size, cluster),
        buckets=buckets,
        memory_bytes=estimate_memory(workload, images),
    )


def count_device_images(workload: Workload, ranks: int) -> int:
    """Return the number of images of one device, rounded up; raise BadValue if some devices would have none."""
    if ranks > workload.global_batch:
        raise BadValue(
            f"{ranks} devices for a global batch of {workload.global_batch}: some would have no image.",
            "Take fewer devices, or a recipe with a larger batch.",
        )
    return math.ceil(workload.global_batch / ranks)


def estimate_compute_seconds(workload: Workload, cluster: Cluster, images: int) -> float:
    """Return the compute time of a step with `images` images on each device: as measured, or by the device's speed."""
    if cluster.step_ms is not None:
        return cluster.step_ms / 1000
    return FLOPS_PER_MULTIPLICATION * workload.multiplications * images / (cluster.tflops * 1e12)


# Communication


def count_inner_bytes(size: float, cluster: Cluster) -> float:
    """Return the bytes that a device sends to devices of its server: in a reduce-scatter and an all-gather."""
    return 2 * (cluster.devices - 1) / cluster.devices * size


def count_outer_bytes(size: float, cluster: Cluster) -> float:
    """Return the bytes that a device sends to other servers: in the all-reduce of its piece, 1/devices of `size`."""
    return 2 * (cluster.servers - 1) / cluster.servers * size / cluster.devices


def estimate_all_reduce_seconds(size: float, cluster: Cluster) -> float:
    """Return the time of an all-reduce of `size` bytes.

    The devices of a server send at the same time: each over its own path within the server, all over one link out.
    """
    within = count_inner_bytes(size, cluster) / (cluster.inner_link * 1e9) + 2 * (cluster.devices - 1) * INNER_LATENCY_S
    outward = count_outer_bytes(size, cluster) * cluster.devices
    return within + outward / (cluster.link * 1e9) + 2 * (cluster.servers - 1) * LATENCY_S


def schedule_buckets(workload: Workload, cluster: Cluster, compute: float) -> Iterator[Bucket]:
    """Yield the buckets in the order in which they are sent: each when it is full, and the previous one has ended.

    None for a single device.
    """
    if cluster.ranks == 1:
        return
    end = 0.0  # of the previous all-reduce
    for size, ready in fill_buckets(workload, compute):
        begin = max(ready, end)
        end = begin + estimate_all_reduce_seconds(size, cluster)
        yield Bucket(size, ready * 1000, begin * 1000, end * 1000)


def fill_buckets(workload: Workload, compute: float) -> Iterator[tuple[int, float]]:
    """Yield (bytes to send, second at which the last gradient is ready) of each bucket.

    With accumulation, gradients are sent only in the backward pass of the last part of the batch.
    """
    backward_seconds = BACKWARD_SHARE * compute / workload.accumulate  # of the last part of the batch
    begin = compute - backward_seconds
    bucket_bytes, done = 0, 0
    total = max(1, workload.multiplications)
    for layer in reversed(workload.layers):
        bucket_bytes += layer.parameters * FP32_BYTES  # torch fills buckets by uncompressed size
        done += layer.multiplications
        if bucket_bytes >= workload.bucket_mb * MIB:
            yield count_sent_bytes(bucket_bytes, workload), begin + backward_seconds * done / total
            bucket_bytes = 0
    if bucket_bytes:
        yield count_sent_bytes(bucket_bytes, workload), compute


def count_sent_bytes(bucket_bytes: int, workload: Workload) -> int:
    """Convert the fp32 bytes of a bucket to the bytes that are sent, which compression halves."""
    return bucket_bytes // FP32_BYTES * workload.gradient_bytes


# Memory


def estimate_memory(workload: Workload, images: int) -> dict[str, int]:
    """Return the memory of one device by purpose, without vendor libraries and the allocator's fragmentation."""
    parameters = workload.parameters
    images_per_part = math.ceil(images / workload.accumulate)
    return {
        "weights": parameters * FP32_BYTES,
        "half-precision copy": parameters * 2 if workload.half_copy else 0,
        "gradients": parameters * FP32_BYTES,
        "optimizer": parameters * FP32_BYTES * workload.optimizer_slots,
        "averaged weights": parameters * FP32_BYTES if workload.average else 0,
        "activations": images_per_part * sum(layer.outputs for layer in workload.layers) * workload.compute_bytes,
    }
