"""Measurement of many pairs of tensors on all cores.

Few or small pairs are measured in this process, others in worker processes. Workers are not forked, since forking a
process with threads is not safe. They do not import torch (except for unusual .pt files), so they are ready in a fifth
of a second. A worker opens one pair at a time. If a signal ends it (out of memory, a file cut short while it was
mapped), that pair is refused with the reason, and another worker measures the remaining pairs.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import traceback
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from viaduct.comparison.chunks import explain_refusal
from viaduct.comparison.formats import FileStamp, read_file_stamp
from viaduct.comparison.layouts import convert_layout
from viaduct.comparison.measures import Measures, Unmeasurable, measure, measure_statistics
from viaduct.comparison.passes import KldVariant
from viaduct.comparison.records import Array, Layout, Pair, StoredTensor
from viaduct.comparison.storage import open_tensor
from viaduct.comparison.tensor_statistics import summarise_array
from viaduct.cores import count_cores
from viaduct.errors import BadData, ViaductError
from viaduct.signals import name_signal

BATCH_PAIRS, BATCH_ELEMENTS = 32, 1 << 21  # limits of one message to a worker; a larger pair is sent alone
CHECKSUM_CHUNK = 1 << 20  # bytes that are read at a time
MIN_SECONDS_FOR_WORKERS = 0.5  # of estimated work; for less, starting workers takes too long
# A worker searches the module path of this process, not the current folder.
WORKER_CODE = (
    "import sys; sys.path[:] = sys.argv[2].split('\\n'); from viaduct.comparison.measuring import serve_jobs; "
    "serve_jobs(int(sys.argv[1]))"
)
_SECONDS_PER_PAIR, _SECONDS_PER_ELEMENT = 5e-4, 1.5e-8  # measured; to estimate the work


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a pair was not compared."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnexpectedError:
    """An unexpected exception in a worker: a bug of viaduct."""

    traceback: str


@dataclass(frozen=True, slots=True)
class Job:
    """One pair to measure, with its number."""

    number: int
    pair: Pair
    kld: KldVariant  # variant of the KL divergence


Answer = Measures | Refusal
Measured = tuple[Pair, Answer]


def measure_pairs(pairs: Sequence[Pair], workers: int | None = None, kld: KldVariant = "book") -> Iterator[Measured]:
    """Yield every pair, in order, with its measures or the reason why it has none.

    `workers`: the largest number of worker processes, 1 for none; None: as many as cores, none if it is little work.
    """
    jobs = [Job(number, pair, kld) for number, pair in enumerate(pairs)]
    batches = make_batches(jobs)
    workers_needed = min(workers or count_cores(), len(batches))
    if workers_needed <= 1 or (workers is None and sum(map(estimate_seconds, pairs)) < MIN_SECONDS_FOR_WORKERS):
        return ((pair, measure_pair(pair, kld)) for pair in pairs)
    return WorkerPool(jobs, batches, workers_needed).results()


def count_elements(pair: Pair) -> int:
    """Return the number of elements of the pair's larger tensor."""
    return max((math.prod(side.shape) for side in (pair.left, pair.right) if side is not None), default=0)


def estimate_seconds(pair: Pair) -> float:
    """Estimate the time to measure a pair; 0 for a pair with one side only."""
    if not (pair.left and pair.right):
        return 0.0
    return _SECONDS_PER_PAIR + _SECONDS_PER_ELEMENT * count_elements(pair)


def make_batches(jobs: list[Job]) -> list[list[Job]]:
    """Group jobs into batches, since a message costs as much as measuring a few small pairs."""
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


def measure_pair(pair: Pair, kld: KldVariant = "book") -> Answer:
    """Measure one pair. A missing side, a pair that is not comparable and an error in its files become a refusal."""
    if pair.left is None or pair.right is None:
        for side, tensor in (("left", pair.left), ("right", pair.right)):
            if tensor is not None and tensor.fault:
                return Refusal(f"{side}: {tensor.fault}")
        return Refusal(pair.reason or f"the {'left' if pair.left is None else 'right'} side has no such tensor")
    try:
        return compare_stored(pair.left, pair.right, pair.layout, kld)
    except ViaductError as error:
        return Refusal(error.message)
    except MemoryError:
        return Refusal(f"not enough memory to open {pair.left.tensor_index}")
    except (Unmeasurable, OSError) as error:
        return Refusal(str(error))


def compare_stored(left: StoredTensor, right: StoredTensor, layout: Layout | None, kld: KldVariant) -> Measures:
    """Measure two stored tensors, the left one converted to the right's layout; raise Unmeasurable if impossible.

    If only statistics of a side were dumped, the statistics of both are compared.
    """
    for side, tensor in (("left", left), ("right", right)):
        if tensor.fault:
            raise Unmeasurable(f"{side}: {tensor.fault}")
        if tensor.path is None and not tensor.statistics:
            raise Unmeasurable(f"{side}: the dump has neither the tensor nor its statistics")
    if left.path is None or right.path is None:
        return compare_statistics(left, right)
    left_array, right_array = open_checked("left", left), open_checked("right", right)
    refuse_float8_bits(left, left_array, right)
    refuse_float8_bits(right, right_array, left)
    if layout is not None:
        left_array = convert_layout(left_array, layout)
    else:
        refuse_shapes(left_array.shape, right_array.shape)
    return measure(left_array, right_array, find_dtype(left, left_array), find_dtype(right, right_array), kld=kld)


def open_checked(side: str, tensor: StoredTensor) -> Array:
    """Open a tensor, and check it against its index if it belongs to a viaduct dump."""
    try:
        array = open_tensor(tensor)
        if tensor.crc32 is not None:
            check_file(tensor, array)
        return array
    except FileNotFoundError:
        raise Unmeasurable(f"{side}: the file {tensor.path} is missing") from None
    except ViaductError as error:
        raise Unmeasurable(f"{side}: {error.message}") from None


def check_file(tensor: StoredTensor, array: Array) -> None:
    """Check dtype, shape and checksum of a file against its index; raise BadData."""
    path = Path(str(tensor.path))
    # NumPy has neither bfloat16 nor eight-bit floats: they are stored as their bits.
    as_bits = "uint16" if tensor.dtype == "bfloat16" else "uint8" if tensor.dtype.startswith("float8") else tensor.dtype
    if str(array.dtype) not in (as_bits, tensor.dtype):
        raise BadData(f"{path.name} is damaged: it holds {array.dtype}, its index says {tensor.dtype}")
    if array.shape != tensor.shape:
        shapes = f"it has the shape {list(array.shape)}, its index says {list(tensor.shape)}"
        raise BadData(f"{path.name} is damaged: {shapes}")
    if tensor.crc32 and (crc32 := compute_checksum(path, read_file_stamp(path))) != tensor.crc32:
        raise BadData(f"{path.name} is damaged: its checksum is {crc32:08x}, its index says {tensor.crc32:08x}")


@lru_cache(maxsize=4096)
def compute_checksum(path: Path, file_stamp: FileStamp) -> int:
    """Return the CRC-32 of a file, cached since several tensors may share a file."""
    crc32 = 0
    with path.open("rb") as file:
        while chunk := file.read(CHECKSUM_CHUNK):
            crc32 = zlib.crc32(chunk, crc32)
    return crc32


def find_dtype(tensor: StoredTensor, array: Array) -> str:
    """Return the array's dtype, or bfloat16 (which NumPy lacks) if the dump says so and the array can be its bits."""
    can_hold_bits = array.dtype.kind in "ui" and array.dtype.itemsize == 2
    return "bfloat16" if tensor.dtype == "bfloat16" and can_hold_bits else str(array.dtype)


def refuse_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Raise Unmeasurable for different shapes, except those of single elements such as (1,) and ()."""
    if left == right or math.prod(left) == math.prod(right) == 1:
        return
    text = f"shapes differ: {list(left)} against {list(right)}"
    if math.prod(left) == math.prod(right):
        text += "; the number of elements is the same, but nothing says how the axes correspond"
    raise Unmeasurable(text)


def refuse_float8_bits(tensor: StoredTensor, array: Array, other: StoredTensor) -> None:
    """Raise Unmeasurable for the bits of eight-bit floats beside another dtype, since the bits are compared."""
    if tensor.dtype.startswith("float8") and array.dtype.kind in "ui" and other.dtype != tensor.dtype:
        raise Unmeasurable(f"{tensor.dtype} was stored as its bits, which cannot be compared with {other.dtype}")


def compare_statistics(left: StoredTensor, right: StoredTensor) -> Measures:
    """Compare the statistics of two tensors, of which at most one has values: its statistics are computed.

    A shape () is that of a single element, or is not known, so it is not compared.
    """
    if left.shape and right.shape:
        refuse_shapes(left.shape, right.shape)
    numbers = read_statistics("left", left), read_statistics("right", right)
    return measure_statistics(*numbers, left.dtype, right.dtype, (left.shape, right.shape))


def read_statistics(side: str, tensor: StoredTensor) -> dict[str, float]:
    """Return the dumped statistics, or compute them from the tensor."""
    if tensor.statistics:
        return dict(tensor.statistics)
    array = open_checked(side, tensor)
    if reason := explain_refusal(dtype := find_dtype(tensor, array), array):
        raise Unmeasurable(f"{side}: {reason}")
    return summarise_array(array, dtype)


def serve_jobs(descriptor: int) -> None:
    """Answer the jobs of a connection until it is closed: the main function of a worker process.

    `descriptor`: file descriptor of the connection.
    """
    connection = Connection(descriptor)
    while True:
        try:
            jobs: list[Job] = connection.recv()
        except EOFError:
            return
        for job in jobs:
            try:
                connection.send((job.number, measure_pair(job.pair, job.kld)))
            except BrokenPipeError:
                return
            except Exception:
                connection.send((job.number, UnexpectedError(traceback.format_exc())))


class Worker:
    """A worker process, and the jobs that it has not answered yet."""

    def __init__(self) -> None:
        self.connection, workers_end = Pipe()
        descriptor = workers_end.fileno()
        single_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER_CODE, str(descriptor), "\n".join(sys.path)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this process alone; a worker ends when its connection is closed
            env={**os.environ, **single_thread},
        )
        workers_end.close()
        self.pending: deque[Job] = deque()

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def describe_death(self) -> str:
        """Describe the signal that ended the process; raise RuntimeError if it exited, which is a bug of viaduct."""
        code = self.process.wait()
        if code >= 0:
            raise RuntimeError(f"a measuring process ended with code {code}")
        name = name_signal(-code)
        hint = {"SIGKILL": " (out of memory?)", "SIGBUS": " (was the file cut short meanwhile?)"}.get(name, "")
        return f"the process that measured this pair was ended by {name}{hint}"


class WorkerPool:
    """Worker processes, the batches that were not sent yet, and answers that arrived before their turn."""

    def __init__(self, jobs: list[Job], batches: list[list[Job]], workers: int) -> None:
        self.jobs = jobs
        self.batches = deque(batches)
        self.max_workers = workers
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
        """Send jobs to all workers that need some, and wait until a worker answers or dies."""
        while self.batches and len(self.workers) < self.max_workers:
            self.workers.append(Worker())
        for worker in list(self.workers):
            self._supply(worker)
        busy = [worker for worker in self.workers if worker.pending]
        ready = wait([worker.connection for worker in busy]) if busy else []  # wait([]) would never return
        for worker in busy:
            if worker.connection in ready:
                self._receive(worker)

    def _supply(self, worker: Worker) -> None:
        """Send the next batch while the worker measures its last pair, so that it need not wait for a message.

        A message sent earlier could block both processes: a worker that waits for room in the pipe receives nothing.
        """
        try:
            while self.batches and len(worker.pending) <= 1:
                worker.connection.send(self.batches[0])
                worker.pending.extend(self.batches.popleft())
        except ConnectionError:
            self._replace_worker(worker)

    def _receive(self, worker: Worker) -> None:
        try:
            number, answer = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._replace_worker(worker)
            return
        if isinstance(answer, UnexpectedError):
            raise RuntimeError(f"measuring {self.jobs[number].pair.left_op} failed:\n{answer.traceback}")
        worker.pending.popleft()
        self.answers[number] = answer

    def _replace_worker(self, worker: Worker) -> None:
        """Remove a dead worker. Refuse the pair that it was measuring, and give its other jobs to another worker."""
        self.workers.remove(worker)
        reason = worker.describe_death()
        worker.connection.close()
        unfinished = list(worker.pending)
        if unfinished:
            self.answers[unfinished[0].number] = Refusal(reason)
        if unfinished[1:]:
            self.batches.appendleft(unfinished[1:])
