"""Sample the system beside a run: cores, memory, disk, network, NVIDIA GPUs.

    sampler = SystemSampler()
    sampler.start(); …
    samples = sampler.stop()
    sampler.missing        # sentences: what this system does not show

Figures of the host come from Linux' /proc, those of NVIDIA GPUs from NVML (nvml.py). A thread reads them five times a
second. Rates are means since the previous sample. `memory MiB` is the sum of the resident memory of this process and
its descendants, so that pages they share count several times. Importing this module does not import torch.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from viaduct.profiling.nvml import GpuReader
from viaduct.profiling.record import Sample

PROC = Path("/proc")
MIB = 1 << 20
SECTOR = 512  # bytes; the unit of /proc/diskstats for every disk
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# Beginnings of names that are no physical disks, and of interfaces within the machine.
NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
NO_NETWORKS = ("lo", "docker", "veth", "br-", "virbr")
CHILDREN_EVERY = 10  # samples between two searches for descendants

Figures = dict[str, float]


class SystemSampler:
    """Read figures of the system in a thread."""

    def __init__(self, interval_s: float = 0.2, proc: Path = PROC, gpus: GpuReader | None = None) -> None:
        self.interval_s = interval_s
        self.missing: list[str] = []
        self.samples: list[Sample] = []
        self.cpu_seconds = 0.0  # processor time that sampling itself took
        self.readers: list[Callable[[], Figures]] = []
        self.gpus = GpuReader.open() if gpus is None else gpus
        self.is_stopped = threading.Event()
        self.thread: threading.Thread | None = None
        for reader in (CoreReader(proc), MemoryReader(proc), DiskReader(proc), NetworkReader(proc), self.gpus):
            self.try_reader(reader.read, reader.subject)

    def try_reader(self, read: Callable[[], Figures], subject: str) -> None:
        """Keep a reader that works on this system; otherwise add a sentence to `missing`."""
        try:
            read()
        except (OSError, ValueError, IndexError) as error:
            self.missing.append(f"{subject}: not sampled ({error})")
        else:
            self.readers.append(read)

    def start(self) -> None:
        """Begin to sample."""
        self.is_stopped.clear()
        self.thread = threading.Thread(target=self.sample_until_stopped, name="viaduct-system", daemon=True)
        self.thread.start()

    def stop(self) -> list[Sample]:
        """End sampling and return all samples in order of time."""
        self.is_stopped.set()
        if self.thread is not None:
            self.thread.join(timeout=5)
            self.thread = None
        return list(self.samples)

    def sample_until_stopped(self) -> None:
        """Take a sample, then wait for the interval, again and again."""
        while not self.is_stopped.wait(self.interval_s):
            self.take_sample()
            self.cpu_seconds = time.thread_time()

    def take_sample(self) -> None:
        """Read all figures once; those of a reader that fails this time are left out."""
        values: Figures = {}
        for read in self.readers:
            try:
                values |= read()
            except (OSError, ValueError, IndexError):
                continue
        self.samples.append(Sample(time.perf_counter_ns() / 1000, values))


class ProcFile:
    """One file of /proc, kept open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None

    def read(self) -> str:
        """Return the file as it is now."""
        if self.descriptor is None:
            self.descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        content = b""
        while chunk := os.pread(self.descriptor, 1 << 16, len(content)):
            content += chunk
        return content.decode(errors="replace")

    def __del__(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


class Rates:
    """Rates of counters that only grow."""

    def __init__(self) -> None:
        self.time = 0.0
        self.counters: Figures = {}

    def update(self, counters: Figures) -> Figures:
        """Return the growth per second since the last call; {} the first time."""
        now = time.perf_counter()
        before, seconds = self.counters, now - self.time
        self.time, self.counters = now, counters
        return {name: max(0.0, value - before[name]) / seconds for name, value in counters.items() if name in before}


class CoreReader:
    """Load of each core in percent. Like the readers below it names its `subject` for `SystemSampler.missing`."""

    subject = "load of the cores"

    def __init__(self, proc: Path) -> None:
        self.file = ProcFile(proc / "stat")
        self.before: dict[str, tuple[int, int]] = {}

    def read(self) -> Figures:
        """Return the share of time since the last call in which a core did not idle."""
        lines = self.file.read().splitlines()
        counts = {line.split()[0].removeprefix("cpu"): count_ticks(line) for line in lines if re.match(r"cpu\d", line)}
        if not counts:
            raise ValueError(f"{self.file.path} names no core")
        before, self.before = self.before, counts
        both = {
            core: (busy - before[core][0], idle - before[core][1])
            for core, (busy, idle) in counts.items()
            if core in before
        }
        return {f"cpu {core} %": 100 * busy / (busy + idle) for core, (busy, idle) in both.items() if busy + idle > 0}


def count_ticks(line: str) -> tuple[int, int]:
    """Return busy and idle ticks of a core; waiting for the disk is idle."""
    ticks = [int(number) for number in line.split()[1:9]]  # user, nice, system, idle, iowait, irq, softirq, steal
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    return sum(ticks) - idle, idle


class MemoryReader:
    """Memory of this process with its children, and what is available to all."""

    subject = "memory"

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.file = ProcFile(proc / "meminfo")
        self.processes: list[str] = []
        self.calls = 0

    def read(self) -> Figures:
        """Return the resident memory of the processes, and the memory that the system has available."""
        available = re.search(r"^MemAvailable:\s+(\d+) kB", self.file.read(), re.MULTILINE)
        if available is None:
            raise ValueError(f"{self.file.path} has no MemAvailable")
        if self.calls % CHILDREN_EVERY == 0:
            self.processes = list_processes(self.proc, str(os.getpid()))
        self.calls += 1
        resident = sum(read_resident(self.proc, process) for process in self.processes)
        return {"memory MiB": resident / MIB, "memory available MiB": int(available[1]) / 1024}


def list_processes(proc: Path, root: str) -> list[str]:
    """Return a process and all its descendants."""
    processes = [root]
    for process in processes:  # grows while it is read
        for tasks in (proc / process / "task").glob("*/children"):
            try:
                processes += tasks.read_text().split()
            except OSError:
                continue  # the thread has ended
    return processes


def read_resident(proc: Path, process: str) -> int:
    """Return the resident bytes of a process; 0 if it has ended."""
    try:
        return int((proc / process / "statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0


class DiskReader:
    """Traffic of all disks."""

    subject = "disks"

    def __init__(self, proc: Path) -> None:
        self.file = ProcFile(proc / "diskstats")
        self.rates = Rates()

    def read(self) -> Figures:
        """Return what was read and written in MiB/s since the last call; partitions are part of their disk."""
        rows = [line.split() for line in self.file.read().splitlines()]
        disks = [row for row in rows if not row[2].startswith(NO_DISKS) and not is_partition(row[2])]
        if not disks:
            raise ValueError(f"{self.file.path} names no disk")
        counters = {"disk read MiB/s": 5, "disk write MiB/s": 9}  # columns of sectors
        return self.rates.update(
            {name: sum(int(row[column]) for row in disks) * SECTOR / MIB for name, column in counters.items()}
        )


def is_partition(name: str) -> bool:
    """Return True for sda1 and nvme0n1p1, which are counted in sda and nvme0n1."""
    return bool(re.fullmatch(r"(sd|vd|hd|xvd)[a-z]+\d+|(nvme\d+n\d+|mmcblk\d+)p\d+", name))


class NetworkReader:
    """Traffic of all network interfaces but those within the machine."""

    subject = "network"

    def __init__(self, proc: Path) -> None:
        self.file = ProcFile(proc / "net" / "dev")
        self.rates = Rates()

    def read(self) -> Figures:
        """Return what was received and sent in MiB/s since the last call."""
        lines = [line.partition(":") for line in self.file.read().splitlines() if ":" in line]
        rows = [columns.split() for name, _, columns in lines if not name.strip().startswith(NO_NETWORKS)]
        if not rows:
            raise ValueError(f"{self.file.path} names no interface to other machines")
        counters = {"network in MiB/s": 0, "network out MiB/s": 8}  # columns of bytes
        return self.rates.update(
            {name: sum(int(row[column]) for row in rows) / MIB for name, column in counters.items()}
        )
