"""The thread that runs the network, and the batching of requests.

    batcher = Batcher(run, limits)                              `run` computes logits, such as `Engine.run`
    batcher.start(size)                                         returns when batches of several sizes have been run
    probabilities = await batcher.submit(inputs).answer         inputs of one request, N x 3 x size x size

A batch starts when it is full, when its oldest request would otherwise miss the latency budget, or when it has the
target size and no request is being decoded. The target is 1 unless requests arrive faster than small batches can answer
them (`choose_target`), so with an idle network a request runs at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from viaduct.handover.serving.limits import Limits

RATE_REQUESTS = 32  # number of recent requests from which their rate is estimated
FLIGHT_BATCHES = 4  # number of recent batches from which the images in flight (running or waiting) are estimated
MAX_BUSY_SHARE = 0.9  # share of the time that the network may be busy before larger batches are chosen
Run = Callable[[torch.Tensor], torch.Tensor]
Probabilities = npt.NDArray[np.float32]


@dataclass
class Timing:
    """Times of a request."""

    queue: float = 0.0  # seconds in the queue
    network: float = 0.0  # seconds in the network
    batch: int = 0  # images in the batch that contained the request


@dataclass(eq=False)
class Job:
    """One request for the network."""

    inputs: torch.Tensor  # N x 3 x size x size
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Probabilities]
    arrived: float = field(default_factory=time.monotonic)  # time of arrival in the queue
    timing: Timing = field(default_factory=Timing)

    @property
    def images(self) -> int:
        return len(self.inputs)


class Batcher:
    """Runs the network in a separate thread, on batches of several requests."""

    def __init__(self, run: Run, limits: Limits, on_batch: Callable[[int, float], None] | None = None) -> None:
        self.run = run
        self.limits = limits
        self.on_batch = on_batch  # called in the event loop with images and seconds of each batch
        self.jobs: deque[Job] = deque()
        self.waiting = 0  # images in `jobs`
        self.decoding = 0  # requests that are being decoded
        self.sizes = list_warm_sizes(limits.max_batch)  # batch sizes that the warm-up runs
        self.seconds: dict[int, float] = {}  # images of a batch -> moving average of its time
        self.arrivals: deque[tuple[float, int]] = deque(maxlen=RATE_REQUESTS)  # times and images of recent requests
        # For each recent batch: its images and those that were waiting when it ended, together.
        self.in_flight: deque[int] = deque(maxlen=FLIGHT_BATCHES)
        self.changed = threading.Condition()
        self.stopping = False
        self.thread: threading.Thread | None = None
        self.warm = threading.Event()  # set when the warm-up has ended
        self.failure: Exception | None = None  # error of the warm-up

    def start(self, size: int) -> None:
        """Start the thread and wait until it has run batches of several sizes; raise its error if one fails.

        `size` is the side of the network's input.
        """
        self.thread = threading.Thread(target=self._work, args=(size,), name="network", daemon=True)
        self.thread.start()
        self.warm.wait()
        if self.failure is not None:
            raise self.failure

    def _warm_up(self, size: int) -> None:
        """Run batches of all `sizes`, and record their times."""
        for images in self.sizes:
            inputs = torch.zeros(images, 3, size, size)
            for _ in range(2):  # the first run compiles the kernels for this size
                start = time.monotonic()
                self._run_batch(inputs)
                self.seconds[images] = time.monotonic() - start

    def stop(self) -> None:
        """End the thread after its current batch; drop the jobs that are waiting."""
        with self.changed:
            self.stopping = True
            self.jobs.clear()
            self.waiting = 0
            self.changed.notify_all()
        if self.thread is not None:
            self.thread.join()

    @contextmanager
    def count_decoding(self) -> Iterator[None]:
        """Count a request as being decoded within the `with` block, so that a batch may wait for it."""
        with self.changed:
            self.decoding += 1
        try:
            yield
        finally:
            with self.changed:
                self.decoding -= 1
                if not self.decoding:
                    self.changed.notify_all()

    def submit(self, inputs: torch.Tensor) -> Job:
        """Queue the inputs of a request; call it in the event loop. The job's `answer` becomes its probabilities."""
        loop = asyncio.get_running_loop()
        job = Job(inputs, loop, loop.create_future())
        with self.changed:
            self.jobs.append(job)
            self.arrivals.append((job.arrived, job.images))
            self.waiting += job.images
            self.changed.notify_all()
        return job

    def estimate_seconds(self, images: int) -> float:
        """Estimate the time of a batch from the nearest measured size; 0 if none was measured."""
        if not self.seconds:
            return 0.0
        nearest = min(self.seconds, key=lambda measured: abs(measured - images))
        return self.seconds[nearest] * max(1.0, images / nearest)

    def choose_target(self) -> int:
        """Return the smallest batch size at which the network keeps up with the arriving images.

        It is at most the number of images recently in flight: clients that wait for answers cannot fill a larger batch.
        """
        limit = min(max(self.in_flight, default=1), self.limits.max_batch)
        if limit == 1 or len(self.arrivals) < RATE_REQUESTS // 2:
            return 1
        images = sum(count for _, count in self.arrivals)
        rate = images / max(time.monotonic() - self.arrivals[0][0], 1e-6)
        fast_enough = (size for size in self.sizes if rate * self.seconds[size] <= MAX_BUSY_SHARE * size)
        return min(next(fast_enough, limit), limit)

    def _work(self, size: int) -> None:
        """Warm up, then run batches until the server stops; runs in the thread."""
        try:
            self._warm_up(size)
        except Exception as error:
            self.failure = error
            return
        finally:
            self.warm.set()
        while batch := self._take_batch():
            self._answer(batch)

    def _take_batch(self) -> list[Job]:
        """Wait for jobs and return those of the next batch; none when the server has stopped."""
        with self.changed:
            while not self.jobs:
                if self.stopping:
                    return []
                self.changed.wait()
            while self.waiting < self.limits.max_batch and not self.stopping:
                if not self.decoding and self.waiting >= self.choose_target():
                    break
                deadline = self.jobs[0].arrived + self.limits.latency_budget
                spare = deadline - self.estimate_seconds(self.waiting + 1) - time.monotonic()
                if spare <= 0:
                    break
                self.changed.wait(spare)
            batch = [self.jobs.popleft()]
            images = batch[0].images
            while self.jobs and images + self.jobs[0].images <= self.limits.max_batch:
                batch.append(self.jobs.popleft())
                images += batch[-1].images
            while images not in self.sizes and len(batch) > 1:  # for any other size, kernels would have to be compiled
                images -= batch[-1].images
                self.jobs.appendleft(batch.pop())
            self.waiting -= images
        return batch

    def _answer(self, batch: list[Job]) -> None:
        """Run the network on a batch, and deliver each job's probabilities or the error."""
        start = time.monotonic()
        images = sum(job.images for job in batch)
        inputs = batch[0].inputs if len(batch) == 1 else torch.cat([job.inputs for job in batch])
        try:
            pieces = [self._run_batch(piece) for piece in torch.split(inputs, self.limits.max_batch)]
            ends = np.cumsum([job.images for job in batch])[:-1]
            results: list[Probabilities] | Exception = list(np.split(np.concatenate(pieces), ends))
        except Exception as error:  # such as out of memory: these requests fail, and the thread continues
            results = error
        seconds = time.monotonic() - start
        self.in_flight.append(images + self.waiting)
        if images <= self.limits.max_batch:
            average = self.seconds.get(images, seconds)
            self.seconds[images] = 0.8 * average + 0.2 * seconds
        for job in batch:
            job.timing = Timing(start - job.arrived, seconds, images)
        with suppress(RuntimeError):  # after a second Ctrl-C the event loop is closed
            batch[0].loop.call_soon_threadsafe(self._deliver, batch, results, images, seconds)

    def _run_batch(self, inputs: torch.Tensor) -> Probabilities:
        with torch.inference_mode():
            probabilities: Probabilities = self.run(inputs).float().softmax(dim=1).cpu().numpy()
        return probabilities

    def _deliver(self, batch: list[Job], results: list[Probabilities] | Exception, images: int, seconds: float) -> None:
        """Set the answers of the jobs; runs in the event loop."""
        if self.on_batch:
            self.on_batch(images, seconds)
        for position, job in enumerate(batch):
            if job.answer.done():  # the client has disconnected
                continue
            if isinstance(results, Exception):
                job.answer.set_exception(results)
            else:
                job.answer.set_result(results[position])


def list_warm_sizes(most: int) -> list[int]:
    """Return the batch sizes to warm up: all up to 8, then in even steps of at most a quarter, and `most`."""
    sizes = []
    images = 1
    while images < most:
        sizes.append(images)
        images += max(1, images // 8 * 2) if images >= 8 else 1
    return [*sizes, most]
