"""Sample the system beside a run: cores, memory, disk, network, NVIDIA GPUs.

    sampler = SystemSampler()
    sampler.start(); …
    samples = sampler.stop()

Figures of the host come from Linux's /proc, figures of NVIDIA GPUs from NVML (nvml.py). A thread reads them five times
a second; figures that this system does not have are left out. Rates are means since the previous sample. `memory MiB`
is the sum of the resident memory of this process and its descendants; shared pages count several times. Importing this
module does not import torch.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from viaduct.profiling.clocks import read_host_us
from viaduct.profiling.nvml import GpuReader
from viaduct.profiling.record import Sample

PROC = Path("/proc")
MIB = 1 << 20
SECTOR = 512  # bytes; the unit of /proc/diskstats for every disk
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# Prefixes of names of devices that are not physical disks, and of internal network interfaces.
NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
NO_NETWORKS = ("lo", "docker", "veth", "br-", "virbr")
CHILDREN_EVERY = 10  # samples per search for descendants

Figures = dict[str, float]
READ_ERRORS = (OSError, ValueError, IndexError)  # of a file that does not exist or has another format


class SystemSampler:
    """Samples figures of the system in a thread."""

    def __init__(self, interval_s: float = 0.2, proc: Path = PROC, gpus: GpuReader | None = None) -> None:
        self.interval_s = interval_s
        self.samples: list[Sample] = []
        self.readers: list[Callable[[], Figures]] = []
        self.stop_request = threading.Event()
        self.thread: threading.Thread | None = None
        host_readers = (CoreReader(proc), MemoryReader(proc), DiskReader(proc), NetworkReader(proc))
        for reader in (*host_readers, gpus or GpuReader.open()):
            with suppress(*READ_ERRORS):
                reader.read()  # the first rates are those since this call
                self.readers.append(reader.read)

    def start(self) -> None:
        self.stop_request.clear()
        self.thread = threading.Thread(target=self.sample_until_stopped, name="viaduct-system", daemon=True)
        self.thread.start()

    def stop(self) -> list[Sample]:
        """Stop sampling and return all samples in order of time."""
        self.stop_request.set()
        if self.thread is not None:
            self.thread.join(timeout=5)
            self.thread = None
        return list(self.samples)

    def sample_until_stopped(self) -> None:
        while not self.stop_request.wait(self.interval_s):
            self.take_sample()

    def take_sample(self) -> None:
        """Read all figures once; figures of a failing reader are left out."""
        values: Figures = {}
        for read in self.readers:
            with suppress(*READ_ERRORS):
                values |= read()
        self.samples.append(Sample(read_host_us(), values))


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
    """Load of each core in percent."""

    def __init__(self, proc: Path) -> None:
        self.file = proc / "stat"
        self.previous: dict[str, tuple[int, int]] = {}  # busy and idle ticks by core

    def read(self) -> Figures:
        lines = self.file.read_text(errors="replace").splitlines()
        counts = {line.split()[0].removeprefix("cpu"): count_ticks(line) for line in lines if re.match(r"cpu\d", line)}
        if not counts:
            raise ValueError(f"{self.file} names no core")
        previous, self.previous = self.previous, counts
        new = {
            core: (busy - previous[core][0], idle - previous[core][1])
            for core, (busy, idle) in counts.items()
            if core in previous
        }
        return {f"cpu {core} %": 100 * busy / (busy + idle) for core, (busy, idle) in new.items() if busy + idle > 0}


def count_ticks(line: str) -> tuple[int, int]:
    """Return busy and idle ticks of a core; waiting for the disk is idle."""
    ticks = [int(number) for number in line.split()[1:9]]  # user, nice, system, idle, iowait, irq, softirq, steal
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    return sum(ticks) - idle, idle


class MemoryReader:
    """Resident memory of this process with its descendants, and the available memory of the system."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.file = proc / "meminfo"
        self.processes: list[str] = []
        self.calls = 0

    def read(self) -> Figures:
        available = re.search(r"^MemAvailable:\s+(\d+) kB", self.file.read_text(errors="replace"), re.MULTILINE)
        if available is None:
            raise ValueError(f"{self.file} has no MemAvailable")
        if self.calls % CHILDREN_EVERY == 0:
            self.processes = list_processes(self.proc, str(os.getpid()))
        self.calls += 1
        resident = sum(read_resident(self.proc, process) for process in self.processes)
        return {"memory MiB": resident / MIB, "memory available MiB": int(available[1]) / 1024}


def list_processes(proc: Path, root: str) -> list[str]:
    """Return a process and all its descendants."""
    processes = [root]
    for process in processes:  # the list grows during the loop
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

    def __init__(self, proc: Path) -> None:
        self.file = proc / "diskstats"
        self.rates = Rates()

    def read(self) -> Figures:
        rows = [line.split() for line in self.file.read_text(errors="replace").splitlines()]
        disks = [row for row in rows if not row[2].startswith(NO_DISKS) and not is_partition(row[2])]
        if not disks:
            raise ValueError(f"{self.file} names no disk")
        counters = {"disk read MiB/s": 5, "disk write MiB/s": 9}  # columns of sectors
        return self.rates.update(
            {name: sum(int(row[column]) for row in disks) * SECTOR / MIB for name, column in counters.items()}
        )


def is_partition(name: str) -> bool:
    """Return True for sda1 and nvme0n1p1, which are counted in sda and nvme0n1."""
    return bool(re.fullmatch(r"(sd|vd|hd|xvd)[a-z]+\d+|(nvme\d+n\d+|mmcblk\d+)p\d+", name))


class NetworkReader:
    """Traffic of all external network interfaces."""

    def __init__(self, proc: Path) -> None:
        self.file = proc / "net" / "dev"
        self.rates = Rates()

    def read(self) -> Figures:
        lines = [line.partition(":") for line in self.file.read_text(errors="replace").splitlines() if ":" in line]
        rows = [columns.split() for name, _, columns in lines if not name.strip().startswith(NO_NETWORKS)]
        if not rows:
            raise ValueError(f"{self.file} names no interface to other machines")
        counters = {"network in MiB/s": 0, "network out MiB/s": 8}  # columns of bytes
        return self.rates.update(
            {name: sum(int(row[column]) for row in rows) / MIB for name, column in counters.items()}
        )
