from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from viaduct.profiling.nvml import GpuReader
from viaduct.profiling.system import CoreReader, DiskReader, NetworkReader, SystemSampler, read_resident

NO_GPU = GpuReader(None)
HAS_PROC = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc on this system")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_figures_that_the_system_does_not_have_are_left_out(tmp_path: Path) -> None:
    sampler = SystemSampler(0.01, tmp_path, NO_GPU)
    sampler.take_sample()
    assert sampler.samples[0].values == {}


def test_a_file_that_becomes_unreadable_costs_its_figures_only(tmp_path: Path) -> None:
    write(tmp_path / "stat", "cpu  1 0 0 1\ncpu0 1 0 0 1 0 0 0 0\n")
    write(tmp_path / "net/dev", "eth0: 0 0 0 0 0 0 0 0 0\n")
    sampler = SystemSampler(0.01, tmp_path, NO_GPU)
    write(tmp_path / "stat", "cpu0 nonsense\n")
    sampler.take_sample()
    assert set(sampler.samples[0].values) == {"network in MiB/s", "network out MiB/s"}


def test_a_core_is_busy_when_it_does_not_idle(tmp_path: Path) -> None:
    write(tmp_path / "stat", "cpu  9 9\ncpu0 100 0 0 100 0 0 0 0\ncpu11 0 0 0 0 0 0 0 0\nintr 5\n")
    reader = CoreReader(tmp_path)
    assert reader.read() == {}
    write(tmp_path / "stat", "cpu  9 9\ncpu0 120 0 10 150 20 0 0 0\ncpu11 10 0 0 0 0 0 0 0\n")
    assert reader.read() == {"cpu 0 %": 30.0, "cpu 11 %": 100.0}


def test_partitions_and_loop_devices_are_not_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["259 0 nvme0n1 1 0 {0} 0 1 0 {1}", "259 1 nvme0n1p1 1 0 {0} 0 1 0 {1}", "7 0 loop0 1 0 {0} 0 1 0 {1}"]
    clock, read_clock, test = iter([0.0, 2.0]), time.perf_counter, threading.current_thread()
    # A sampler of an earlier test may still be at its last sample, on a loaded machine.
    monkeypatch.setattr(
        time, "perf_counter", lambda: next(clock) if threading.current_thread() is test else read_clock()
    )
    write(tmp_path / "diskstats", "\n".join(rows).format(0, 0))
    reader = DiskReader(tmp_path)
    reader.read()
    write(tmp_path / "diskstats", "\n".join(rows).format(8192, 2048))
    assert reader.read() == {"disk read MiB/s": 2.0, "disk write MiB/s": 0.5}


def test_traffic_within_the_machine_is_no_network(tmp_path: Path) -> None:
    write(tmp_path / "net/dev", "Inter-|\n    lo: 5 0 0 0 0 0 0 0 5\n")
    with pytest.raises(ValueError, match="no interface"):
        NetworkReader(tmp_path).read()


def test_memory_of_a_process_that_ended_is_zero(tmp_path: Path) -> None:
    assert read_resident(tmp_path, "123") == 0


@HAS_PROC
def test_this_machine_is_sampled_until_the_end() -> None:
    sampler = SystemSampler(0.01, gpus=NO_GPU)
    before = time.perf_counter_ns() / 1000
    sampler.start()
    deadline = time.monotonic() + 10
    while len(sampler.samples) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    samples = sampler.stop()
    taken = len(samples)
    time.sleep(0.05)
    assert len(sampler.samples) == taken >= 5
    assert before <= samples[0].time_us < samples[-1].time_us <= time.perf_counter_ns() / 1000
    assert samples[0].values["memory MiB"] > 1
    merged = {name for sample in samples for name in sample.values}
    assert sum(name.startswith("cpu ") for name in merged) >= (os.cpu_count() or 1) // 2
