"""Measurement of many pairs, in order, on all cores.

Few pairs are measured in this process. Many go to processes of their own (worker.py) that are started afresh, since a
fork of a process with threads is not safe, and that import nothing but NumPy. A worker holds one pair at a time as
memory maps. If one dies (out of memory, a file cut short while it was mapped), the pair it was at is refused with that
reason, and another worker goes on with the rest.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Pipe, wait
from pathlib import Path

from viaduct.errors import BadData, ViaductError

from . import storage
from .chunks import Array
from .formats import stamp
from .measures import Kld, Measures, Unmeasurable, measure, measure_statistics
from .tensors import Pair, Stored

BATCH_PAIRS, BATCH_ELEMENTS = 32, 1 << 21  # what a worker gets at once
CHECKED = 1 << 20  # bytes of a file at once, for its checksum
PATIENCE = 0.5  # seconds of work in one process from which starting others pays
# The worker looks for modules where we do, not in the folder it happens to be started in.
START = "import sys; sys.path[:] = sys.argv[2].split('\\n'); from viaduct.comparison.worker import main; main()"
_SECONDS_PER_PAIR, _SECONDS_PER_ELEMENT = 5e-4, 1.5e-8


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pair that was not compared, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A worker met an error that is ours: its traceback."""

    text: str


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a measurement; see measures.measure."""

    kld: Kld = "book"
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One pair to measure, with its number."""

    number: int
    pair: Pair
    options: Options


Answer = Measures | Refusal
Measured = tuple[Pair, Answer]


def measure_pairs(
    pairs: Sequence[Pair], workers: int | None = None, *, kld: Kld = "book", tolerance: float | None = None
) -> Iterator[Measured]:
    """Yield every pair with its measures, or with the reason why there are none, in the order given."""
    options = Options(kld, tolerance)
    jobs = [Job(number, pair, options) for number, pair in enumerate(pairs)]
    batches = make_batches(jobs)
    wanted = min(workers or count_cores(), len(batches))
    if wanted <= 1 or (workers is None and sum(map(estimate_seconds, pairs)) < PATIENCE):
        return ((pair, measure_pair(pair, options)) for pair in pairs)
    return WorkerPool(jobs, batches, wanted).results()


def count_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_elements(pair: Pair) -> int:
    """Return the number of elements of the larger side."""
    return max((math.prod(side.shape) for side in (pair.left, pair.right) if side is not None), default=0)


def estimate_seconds(pair: Pair) -> float:
    """Estimate how long a pair takes; one that is refused takes no time."""
    if not (pair.left and pair.right):
        return 0.0
    return _SECONDS_PER_PAIR + _SECONDS_PER_ELEMENT * count_elements(pair)


def make_batches(jobs: list[Job]) -> list[list[Job]]:
    """Group jobs into batches: a message costs as much as measuring a few small pairs."""
    batches: list[list[Job]] = []
    room = 0
    for job in jobs:
        size = count_elements(job.pair)
        if not batches or size > room or len(batches[-1]) == BATCH_PAIRS:
            batches.append([])
            room = BATCH_ELEMENTS
        batches[-1].append(job)
        room -= size
    return batches


def measure_pair(pair: Pair, options: Options) -> Answer:
    """Measure one pair. What is wrong with its files becomes the reason of a refusal."""
    if pair.left is None or pair.right is None:
        for side, stored in (("left", pair.left), ("right", pair.right)):
            if stored is not None and stored.fault:
                return Refusal(f"{side}: {stored.fault}")
        return Refusal(pair.reason or f"the {'left' if pair.left is None else 'right'} side has no such tensor")
    try:
        return compare_stored(pair.left, pair.right, pair, options)
    except ViaductError as error:
        return Refusal(error.what)
    except MemoryError:
        return Refusal(f"not enough memory to open {pair.left.tensor_index}")
    except (Unmeasurable, OSError) as error:
        return Refusal(str(error))


def compare_stored(left: Stored, right: Stored, pair: Pair, options: Options) -> Measures:
    """Measure two stored tensors; raise Unmeasurable where that is impossible."""
    for side, stored in (("left", left), ("right", right)):
        if stored.fault:
            raise Unmeasurable(f"{side}: {stored.fault}")
        if stored.path is None and not stored.statistics:
            raise Unmeasurable(f"{side}: the dump has neither the tensor nor its statistics")
    if left.path is None or right.path is None:
        return compare_statistics(left, right)
    ours, theirs = open_checked("left", left), open_checked("right", right)
    if pair.layout is not None:
        ours = storage.convert_layout(ours, pair.layout)
    else:
        refuse_shapes(ours.shape, theirs.shape)
    types = dtype_of(left, ours), dtype_of(right, theirs)
    return measure(ours, theirs, *types, kld=options.kld, tolerance=options.tolerance)


def open_checked(side: str, stored: Stored) -> Array:
    """Open a tensor; one of a viaduct dump (with a checksum field) is checked against its index."""
    try:
        array = storage.open_tensor(stored)
        if stored.crc32 is not None:
            check_file(stored, array)
        return array
    except FileNotFoundError:
        raise Unmeasurable(f"{side}: the file {stored.path} is missing") from None
    except ViaductError as error:
        raise Unmeasurable(f"{side}: {error.what}") from None


def check_file(stored: Stored, array: Array) -> None:
    """Check dtype, shape and, if the index states one, checksum of a file against its index; raise BadData."""
    path = Path(str(stored.path))
    kind = str(array.dtype)
    if (stored.dtype, kind) != ("bfloat16", "uint16") and kind != ("uint8" if is_eight_bit(stored) else stored.dtype):
        raise BadData(f"{path.name} is damaged: it holds {kind}, its index says {stored.dtype}")
    if array.shape != stored.shape:
        shapes = f"it has the shape {list(array.shape)}, its index says {list(stored.shape)}"
        raise BadData(f"{path.name} is damaged: {shapes}")
    if stored.crc32 and (found := checksum(path, stamp(path))) != stored.crc32:
        raise BadData(f"{path.name} is damaged: its checksum is {found:08x}, its index says {stored.crc32:08x}")


def is_eight_bit(stored: Stored) -> bool:
    """Return True for eight-bit floats, which NumPy does not have and which are stored as bits."""
    return stored.dtype.startswith("float8")


@lru_cache(maxsize=4096)
def checksum(path: Path, changed: tuple[int, int]) -> int:
    """Return the CRC-32 of a file. It is cached while the file does not change: several tensors may share a file."""
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(CHECKED):
            found = zlib.crc32(chunk, found)
    return found


def dtype_of(stored: Stored, array: Array) -> str:
    """Return the file's own dtype; bfloat16, which arrays do not have, as the dump states it."""
    bits = array.dtype.kind in "ui" and array.dtype.itemsize == 2
    return "bfloat16" if stored.dtype == "bfloat16" and bits else str(array.dtype)


def refuse_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Refuse different shapes without a layout; a single element matches any other."""
    if left == right or math.prod(left) == math.prod(right) == 1:
        return
    text = f"shapes differ: {list(left)} against {list(right)}"
    if math.prod(left) == math.prod(right):
        text += "; the number of elements is the same, but nothing says how the axes correspond"
    raise Unmeasurable(text)


def compare_statistics(left: Stored, right: Stored) -> Measures:
    """Compare statistics; those of a side that has tensors are computed."""
    if left.shape and right.shape:
        refuse_shapes(left.shape, right.shape)
    numbers = read_statistics("left", left), read_statistics("right", right)
    return measure_statistics(*numbers, left.dtype, right.dtype, (left.shape, right.shape))


def read_statistics(side: str, stored: Stored) -> dict[str, float]:
    """Return the dumped statistics, or compute them from the tensor."""
    if stored.statistics:
        return dict(stored.statistics)
    array = open_checked(side, stored)
    dtype = dtype_of(stored, array)
    figures = measure(array, array, dtype, dtype).left
    names = ("min", "max", "mean", "std", "norm", "nan", "inf")
    return {name: float(getattr(figures, name)) for name in names}


class Worker:
    """One process, and the jobs that it has not answered yet."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        descriptor = theirs.fileno()
        # One thread each: the cores are shared by the workers.
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(descriptor), "\n".join(sys.path)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C is for us; a worker ends when we close the connection
            env={**os.environ, **threads},
        )
        theirs.close()
        self.waiting: deque[Job] = deque()

    def send_batch(self, batch: list[Job]) -> None:
        """Send a batch to the process."""
        self.connection.send(batch)
        self.waiting.extend(batch)

    def stop(self) -> None:
        """Close the connection and kill the process."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def describe_death(self) -> str:
        """Return the signal that ended the process; any exit code is a bug of ours and raises RuntimeError."""
        code = self.process.wait()
        if code >= 0:  # nothing that a file can do: our own mistake, and its traceback is on stderr
            raise RuntimeError(f"a measuring process ended with code {code}")
        name = signal.Signals(-code).name
        hint = {"SIGKILL": " (out of memory?)", "SIGBUS": " (was the file cut short meanwhile?)"}.get(name, "")
        return f"the process that measured this pair was ended by {name}{hint}"


class WorkerPool:
    """Worker processes, their remaining batches, and answers that arrived early."""

    def __init__(self, jobs: list[Job], batches: list[list[Job]], workers: int) -> None:
        self.jobs = jobs
        self.batches = deque(batches)
        self.wanted = workers
        self.workers: list[Worker] = []
        self.answers: dict[int, Answer] = {}

    def results(self) -> Iterator[Measured]:
        """Yield the pairs with their answers in order."""
        try:
            for job in self.jobs:
                while job.number not in self.answers:
                    self._run_once()
                yield job.pair, self.answers.pop(job.number)
        finally:
            for worker in self.workers:
                worker.stop()

    def _run_once(self) -> None:
        """Keep every worker supplied, and wait until one answers or dies."""
        while self.batches and len(self.workers) < self.wanted:
            self.workers.append(Worker())
        for worker in list(self.workers):
            self._supply(worker)
        busy = [worker for worker in self.workers if worker.waiting]
        ready = wait([worker.connection for worker in busy]) if busy else []  # nothing to wait for: it waits for ever
        for worker in busy:
            if worker.connection in ready:
                self._receive(worker)

    def _supply(self, worker: Worker) -> None:
        """Send the next batch while the worker measures its last pair, so that it never waits for a message.

        Not earlier, since a worker that cannot get rid of many answers would not take a batch either.
        """
        try:
            while self.batches and len(worker.waiting) <= 1:
                worker.send_batch(self.batches[0])
                self.batches.popleft()
        except ConnectionError:
            self._replace_worker(worker)

    def _receive(self, worker: Worker) -> None:
        try:
            number, found = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._replace_worker(worker)
            return
        if isinstance(found, Bug):
            raise RuntimeError(f"measuring {self.jobs[number].pair.left_op} failed:\n{found.text}")
        worker.waiting.popleft()
        self.answers[number] = found

    def _replace_worker(self, worker: Worker) -> None:
        """Remove a dead worker. The pair that it was measuring is refused; its other jobs go to another worker."""
        self.workers.remove(worker)
        reason = worker.describe_death()
        worker.connection.close()
        unfinished = list(worker.waiting)
        if unfinished:
            self.answers[unfinished[0].number] = Refusal(reason)
        if unfinished[1:]:
            self.batches.appendleft(unfinished[1:])
