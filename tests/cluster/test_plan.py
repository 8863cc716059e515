"""Scaling on paper: the formulas by hand, and the volume against bytes that were really sent."""

from __future__ import annotations

import os
import socket
import stat
import struct
from dataclasses import replace

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from training.ranks import run_on_ranks
from viaduct.cluster.plan import Cluster, Layer, Workload, estimate_all_reduce_seconds, predict_step
from viaduct.errors import BadValue
from viaduct.training.distributed import leave_ranks

MIB = 2**20
LAYERS = (Layer(10 * MIB, 10, 4), Layer(10 * MIB, 30, 2), Layer(5 * MIB, 60, 1))
WORK = Workload(LAYERS, global_batch=64)
ONE = Cluster(1, 1, step_ms=100)

TCP_INFO, ACKED = 11, 120  # linux/tcp.h: tcpi_bytes_acked


def count_acknowledged_bytes() -> int:
    """How many bytes of this process's own TCP connections have arrived."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as probe:
                if probe.type == socket.SOCK_STREAM and probe.family in (socket.AF_INET, socket.AF_INET6):
                    total += struct.unpack_from("Q", probe.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 160), ACKED)[0]
        except OSError:
            continue
    return total


def sent_by_a_rank() -> tuple[float, int]:
    """Return the bytes that one DDP step sends, and the network's number of parameters."""
    distributed.init_process_group("gloo")
    layers = (nn.Linear(1000, 1000) for _ in range(4))
    network = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=5)

    def step() -> None:
        network(torch.ones(1, 1000)).sum().backward()

    step()
    distributed.barrier()
    before = count_acknowledged_bytes()
    for _ in range(5):
        step()
    distributed.barrier()
    sent = (count_acknowledged_bytes() - before) / 5
    leave_ranks()
    return sent, sum(parameter.numel() for parameter in network.parameters())


def test_one_device_sends_nothing() -> None:
    plan = predict_step(WORK, ONE)
    assert (plan.sent_bytes, plan.communication_ms, plan.step_ms, plan.efficiency) == (0, 0, 100, 1)
    assert plan.buckets == ()


def test_a_ring_sends_twice_all_but_its_own_part() -> None:
    size = 25 * MIB * 4
    for ranks in (2, 4, 8):
        assert predict_step(WORK, Cluster(1, ranks, step_ms=100)).sent_bytes == pytest.approx(
            2 * (ranks - 1) / ranks * size
        )


def test_two_levels_send_as_much_as_one_ring_but_little_of_it_outside() -> None:
    plan = predict_step(WORK, Cluster(4, 8, step_ms=100))
    size = 25 * MIB * 4
    assert plan.sent_bytes == pytest.approx(2 * 31 / 32 * size)
    assert plan.sent_outer_bytes == pytest.approx(2 * 3 / 4 * size / 8)


def test_the_time_of_an_all_reduce_is_volume_by_speed_and_latency() -> None:
    assert estimate_all_reduce_seconds(8e9, Cluster(1, 8, inner_link=7)) == pytest.approx(2 + 14 * 10e-6)
    assert estimate_all_reduce_seconds(8e9, Cluster(2, 1, link=4)) == pytest.approx(2 + 2 * 30e-6)
    within, between = 2 * 7 / 8 * 8e9 / 7e9, 2 * 1 / 2 * 8e9 / 4e9
    assert estimate_all_reduce_seconds(8e9, Cluster(2, 8, 4, 7)) == pytest.approx(
        within + between + 14 * 10e-6 + 2 * 30e-6
    )


def test_buckets_are_filled_from_the_last_layer_on_and_sent_in_turn() -> None:
    plan = predict_step(WORK, Cluster(1, 2, inner_link=1, step_ms=300))
    # backward takes 200 ms of 300; 20 MiB do not fill a bucket of 25, with the second layer's 40 it does, at 90/100
    assert [bucket.bytes for bucket in plan.buckets] == [60 * MIB, 40 * MIB]
    assert [bucket.ready_ms for bucket in plan.buckets] == pytest.approx([100 + 180, 300])
    first, second = plan.buckets
    assert first.end_ms == pytest.approx(280 + 60 * MIB / 1e6 + 0.02)
    assert second.begin_ms == first.end_ms
    assert plan.step_ms == second.end_ms
    assert plan.exposed_ms == pytest.approx(second.end_ms - 300)
    assert plan.efficiency == pytest.approx(300 / second.end_ms)


def test_what_is_sent_during_the_backward_pass_is_hidden() -> None:
    quick = predict_step(WORK, Cluster(1, 2, inner_link=1000, step_ms=300))
    assert quick.exposed_ms < 0.1 * quick.communication_ms + 0.1
    assert quick.efficiency > 0.999


def test_compression_halves_the_volume_but_not_the_buckets() -> None:
    plain = predict_step(WORK, Cluster(1, 2, step_ms=300))
    half = predict_step(replace(WORK, gradient_bytes=2), Cluster(1, 2, step_ms=300))
    assert [2 * bucket.bytes for bucket in half.buckets] == [bucket.bytes for bucket in plain.buckets]


def test_computing_is_worked_out_where_it_was_not_measured() -> None:
    work = Workload((Layer(1, 10**9, 1),), global_batch=64)
    assert predict_step(work, Cluster(1, 8, tflops=6)).compute_ms == pytest.approx(6 * 1e9 * 8 / 6e12 * 1000)


def test_memory_is_that_of_the_share() -> None:
    work = replace(WORK, optimizer_slots=2, half_copy=True, average=True, compute_bytes=2, accumulate=2)
    assert predict_step(work, Cluster(1, 4, step_ms=1)).memory_bytes == {
        "weights": 100 * MIB,
        "half-precision copy": 50 * MIB,
        "gradients": 100 * MIB,
        "optimizer": 200 * MIB,
        "averaged weights": 100 * MIB,
        "activations": 8 * 7 * 2,
    }


def test_more_devices_than_images_are_refused() -> None:
    with pytest.raises(BadValue, match="128 devices for a global batch of 64"):
        predict_step(WORK, Cluster(16, 8))


@pytest.mark.parametrize("wrong", [{"link": 0}, {"inner_link": -1}, {"step_ms": 0}, {"tflops": float("inf")}])
def test_speeds_are_above_nothing(wrong: dict[str, float]) -> None:
    with pytest.raises(BadValue, match="must be above 0"):
        Cluster(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_volume_is_what_gloo_really_sends(ranks: int) -> None:
    ended = run_on_ranks(ranks, sent_by_a_rank)
    assert [result.error for result in ended] == [None] * ranks, [result.output for result in ended]
    measured = [result.value for result in ended]
    layers = (Layer(measured[0][1], 1, 1),)
    expected = predict_step(Workload(layers, global_batch=ranks), Cluster(1, ranks, step_ms=1)).sent_bytes
    mean = sum(sent for sent, _ in measured) / ranks
    assert mean == pytest.approx(expected, rel=0.01, abs=10_000)  # barriers and the store's messages are small
