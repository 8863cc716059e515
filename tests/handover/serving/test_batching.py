"""Batches of requests: no request waits in vain for others, and every accepted one is answered."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import torch

from viaduct.handover.serving.batching import Batcher
from viaduct.handover.serving.limits import Limits

SIZE = 2


class Network:
    """Remembers its batches; waits for `gate` where there is one."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        self.gate.wait(20)
        self.batches.append(len(inputs))
        self.threads.add(threading.current_thread().name)
        if bool((inputs == 99).any()):
            raise RuntimeError("the card is gone")
        return inputs.mean(dim=(2, 3))


def images(count: int, value: float = 0.0) -> torch.Tensor:
    return torch.full((count, 3, SIZE, SIZE), value)


def start(network: Network, **limits: float) -> Batcher:
    batcher = Batcher(network, Limits(**limits))  # type: ignore[arg-type]
    batcher.start(SIZE)
    network.batches.clear()
    return batcher


def test_a_single_request_runs_at_once() -> None:
    network = Network()
    batcher = start(network, latency_budget=10.0)

    async def submit_images() -> float:
        begin = time.monotonic()
        await batcher.submit(images(1)).answer
        return time.monotonic() - begin

    assert asyncio.run(submit_images()) < 5.0
    batcher.stop()
    assert network.batches == [1]


def test_requests_that_came_meanwhile_share_a_batch() -> None:
    network = Network()
    batcher = start(network, max_batch=8)
    network.gate.clear()

    async def submit_images() -> list[float]:
        first = batcher.submit(images(1))
        while batcher.waiting:
            await asyncio.sleep(0.001)
        pending = [batcher.submit(torch.cat([images(1, value)[:, :1], images(1)[:, 1:]], 1)) for value in range(10)]
        network.gate.set()
        await first.answer
        return [float((await job.answer)[0, 0]) for job in pending]

    answers = asyncio.run(submit_images())
    batcher.stop()
    assert network.batches == [1, 8, 2]
    expected = torch.tensor([[float(value), 0.0, 0.0] for value in range(10)]).softmax(1)[:, 0]
    assert answers == pytest.approx(expected.tolist())
    assert network.threads == {"network"}


def test_batches_have_only_sizes_that_were_warmed_up() -> None:
    network = Network()
    batcher = Batcher(network, Limits(max_batch=32))
    batcher.start(SIZE)
    warm = set(network.batches)
    network.batches.clear()
    network.gate.clear()

    async def submit_images() -> list[float]:
        first = batcher.submit(images(1))
        while batcher.waiting:
            await asyncio.sleep(0.001)
        pending = [batcher.submit(torch.cat([images(1, value)[:, :1], images(1)[:, 1:]], 1)) for value in range(27)]
        network.gate.set()
        await first.answer
        return [float((await job.answer)[0, 0]) for job in pending]

    answers = asyncio.run(submit_images())
    batcher.stop()
    assert network.batches == [1, 24, 3]
    assert set(network.batches) <= warm
    assert answers == sorted(answers)


def test_a_single_client_never_waits_for_a_larger_batch() -> None:
    network = Network()
    batcher = start(network, latency_budget=5.0)

    async def submit_images() -> float:
        begin = time.monotonic()
        for _ in range(100):  # one after the other, as fast as the network answers
            await batcher.submit(images(1)).answer
        return time.monotonic() - begin

    assert asyncio.run(submit_images()) < 5.0
    batcher.stop()
    assert network.batches == [1] * 100


def test_a_batch_waits_for_more_where_single_images_cannot_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    batcher = Batcher(Network(), Limits(max_batch=8))
    batcher.seconds = {size: 0.02 + 0.005 * size for size in batcher.sizes}  # 40 a second one by one, 133 by eight
    batcher.in_flight.extend([3, 6, 2])
    for rate, wanted in ((20.0, 1), (58.0, 2), (88.0, 4), (1000.0, 6)):
        batcher.arrivals.extend((1000.0 - (32 - number) / rate, 1) for number in range(32))
        assert batcher.choose_target() == wanted
    batcher.in_flight.extend([1, 1, 1, 1])
    assert batcher.choose_target() == 1


def test_a_batch_waits_for_what_is_being_decoded_but_not_beyond_the_budget() -> None:
    network = Network()
    batcher = start(network, latency_budget=0.2)

    async def submit_images() -> tuple[float, int]:
        with batcher.count_decoding():
            begin = time.monotonic()
            job = batcher.submit(images(1))
            await job.answer
            waited = time.monotonic() - begin
            with batcher.count_decoding():
                jobs = [batcher.submit(images(1))]
                await asyncio.sleep(0.02)
                jobs.append(batcher.submit(images(2)))
        for job in jobs:
            await job.answer
        return waited, jobs[0].timing.batch

    waited, shared = asyncio.run(submit_images())
    batcher.stop()
    assert waited >= 0.19
    assert shared == 3


def test_a_request_larger_than_a_batch_is_split() -> None:
    network = Network()
    batcher = start(network, max_batch=4)

    async def submit_images() -> int:
        return len(await batcher.submit(images(10)).answer)

    assert asyncio.run(submit_images()) == 10
    batcher.stop()
    assert network.batches == [4, 4, 2]


def test_a_failed_batch_fails_only_its_requests() -> None:
    network = Network()
    batcher = start(network)

    async def submit_images() -> int:
        with pytest.raises(RuntimeError, match="the card is gone"):
            await batcher.submit(images(1, 99)).answer
        return len(await batcher.submit(images(1)).answer)

    assert asyncio.run(submit_images()) == 1
    batcher.stop()


def test_a_network_that_fails_at_once_is_not_served() -> None:
    def fail(inputs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no kernel for this card")

    with pytest.raises(RuntimeError, match="no kernel"):
        Batcher(fail, Limits()).start(SIZE)


def test_stopping_ends_the_thread_after_its_batch() -> None:
    network = Network()
    batcher = start(network, max_batch=2)
    network.gate.clear()

    async def submit_images() -> int:
        first = batcher.submit(images(1))
        while batcher.waiting:
            await asyncio.sleep(0.001)
        for _ in range(9):
            batcher.submit(images(1))
        stopper = threading.Thread(target=batcher.stop)
        stopper.start()
        while not batcher.stopping:
            await asyncio.sleep(0.001)
        network.gate.set()
        stopper.join()
        return len(await first.answer)

    assert asyncio.run(submit_images()) == 1
    assert network.batches == [1]
    assert batcher.thread is not None
    assert not batcher.thread.is_alive()
