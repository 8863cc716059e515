"""Scripts in separate processes: their steps are kept however they end."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from viaduct.profiling.collector import Plan
from viaduct.profiling.gather import list_folders
from viaduct.profiling.record import Step
from viaduct.profiling.script_job import STEPS_FILE, ScriptJob
from viaduct.profiling.script_run import ScriptRun, build_environment, run_script_job

pytestmark = pytest.mark.process

HEAD = """\
import os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
loss = nn.CrossEntropyLoss()

def train(network, after=lambda number: None):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    number = 0
    for epoch in range(99):
        for x, y in loader:
            optimizer.zero_grad()
            loss(network(x), y).backward()
            optimizer.step()
            number += 1
            after(number)
"""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def make_job(folder: Path, body: str, *arguments: str, plan: tuple[int, int, int] = (2, 4, 0)) -> ScriptJob:
    script = folder / "train.py"
    script.write_text(HEAD + body)
    record = folder / "record"
    record.mkdir()
    return ScriptJob(str(script), arguments, False, str(record), str(folder), Plan(*plan))


def run(folder: Path, body: str, *arguments: str, plan: tuple[int, int, int] = (2, 4, 0), ranks: int = 1) -> ScriptRun:
    return run_script_job(make_job(folder, body, *arguments, plan=plan), ranks, None, print)


ENDS = {
    "raise ValueError('no more')": (1, "the script ended with exit code 1 (ValueError: no more) after 5 of 6 steps"),
    "os._exit(5)": (5, "the script ended with exit code 5 after 5 of 6 steps"),
    "sys.exit(3)": (3, "the script ended with exit code 3 after 5 of 6 steps"),
    "os.kill(os.getpid(), 9)": (137, "the script was ended by SIGKILL after 5 of 6 steps"),
    "import atexit; atexit.register(os.abort); sys.exit(3)": (  # as threads of gloo do
        3,
        "the script ended with exit code 3 and its process by SIGABRT after 5 of 6 steps",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_script_that_fails_keeps_its_steps_and_its_exit_code(end: str, tmp_path: Path) -> None:
    body = f"def end(number):\n    if number == 5:\n        {end}\ntrain(net, end)\n"
    found = run(tmp_path, body)
    assert (found.code, found.reason) == ENDS[end]
    assert [step.number for step in found.ranks[0].profile.steps] == [2, 3, 4]
    assert found.ranks[0].profile.facts.batch == 8
    assert "return of optimizer.step()" in " ".join(found.ranks[0].profile.facts.phases_found_by)


def test_a_script_that_takes_its_steps_is_ended_well(tmp_path: Path) -> None:
    body = "assert sys.argv[1:] == ['--lr', '1']\ntry:\n    train(net)\nfinally:\n    open(__file__ + '.end', 'w')\n"
    found = run(tmp_path, body, "--lr", "1", plan=(1, 3, 1))
    assert (found.code, found.reason, found.stop_signal) == (0, "", 0)
    assert (tmp_path / "train.py.end").exists()
    facts = found.ranks[0].profile.facts
    assert (facts.warmup_steps, facts.timed_steps, facts.recorded_steps) == (1, 3, 1)
    assert found.ranks[0].profile.operators
    assert found.ranks[0].events


def test_a_script_without_a_step_is_no_success(tmp_path: Path) -> None:
    found = run(tmp_path, "print(net(data.tensors[0]).sum().item())\n")
    assert found.code == 2
    assert "no training step was found: it made 0 optimizers; 1 training passes" in found.reason


def test_a_script_that_never_calls_torch_is_reported_as_such(tmp_path: Path) -> None:
    found = run(tmp_path, "sys.exit(4)\n")
    assert found.code == 4
    assert found.ranks == []
    assert "exit code 4, and no training step was found: it called no network" in found.reason


def test_ctrl_c_reaches_the_script_and_keeps_its_steps(tmp_path: Path) -> None:
    body = "def wait(number):\n    time.sleep(0.05)\ntry:\n    train(net, wait)\nfinally:\n    open('end', 'w')\n"
    os.chdir(tmp_path)
    job = make_job(tmp_path, body, plan=(1, 10_000, 0))

    def interrupt() -> None:
        while not any((folder / STEPS_FILE).exists() for folder in list_folders(job)):
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        found = run_script_job(job, 1, None, print)
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert found.stop_signal == signal.SIGINT
    assert found.reason.startswith("the script was interrupted by SIGINT")
    assert (tmp_path / "end").exists()
    assert found.ranks[0].profile.steps


DISTRIBUTED = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def work(rank=-1, size=-1, file=""):
    if file:
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    else:
        dist.init_process_group("gloo")
    train(DistributedDataParallel(net))
"""


def check_ranks(found: ScriptRun) -> None:
    assert (found.code, found.reason) == (0, "")
    assert [rank.rank for rank in found.ranks] == [0, 1]
    for rank in found.ranks:
        assert [step.rank for step in rank.profile.steps] == [rank.rank] * 4
        assert rank.profile.facts.ranks == 2
    zeros = [rank.profile.facts.zero_unix_us for rank in found.ranks]
    assert None not in zeros


def test_ranks_are_started_and_each_is_profiled(tmp_path: Path) -> None:
    check_ranks(run(tmp_path, f"{DISTRIBUTED}work()\n", ranks=2))


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.slow), "fork"])
def test_processes_that_the_script_starts_are_profiled(method: str, tmp_path: Path) -> None:
    start = f"""
import torch.multiprocessing as mp
if __name__ == "__main__":
    file = {str(tmp_path / "meeting")!r}
    mp.start_processes(work, (2, file), nprocs=2, start_method={method!r})
    open({str(tmp_path / "end")!r}, "w")
"""
    check_ranks(run(tmp_path, DISTRIBUTED + start))
    assert (tmp_path / "end").exists()  # the script goes on after its processes have ended


@pytest.mark.slow
def test_torchrun_inside_a_script_is_profiled(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(f"{HEAD}{DISTRIBUTED}work()\n")
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "rank.py")]
    check_ranks(run(tmp_path, f"import subprocess\nsys.exit(subprocess.call([sys.executable, *{words!r}]))\n"))


def test_the_script_has_the_environment_that_it_has_without_viaduct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    variables = build_environment(Path("job.json"))
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in variables
    assert "GOMP_SPINCOUNT" not in variables
    assert variables["PYTHONPATH"].endswith(f"hook{os.pathsep}/mine")


TIMED = """\
import json
from time import perf_counter as now

net = nn.Sequential(nn.Linear(16, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU(), nn.Linear(1200, 4))
optimizer = torch.optim.Adam(net.parameters())
data = TensorDataset(torch.randn(2048, 16), torch.randint(0, 4, (2048,)))
times, end = [], None
try:
    for epoch in range(99):
        for x, y in DataLoader(data, batch_size=64):
            time.sleep(0.004)
            start = now()
            value = loss(net(x), y)
            optimizer.zero_grad()
            value.backward()
            back = now()
            optimizer.step()
            before, end = end, now()
            if before is not None:
                times.append((start - before, back - start, end - back, end - before))
finally:
    json.dump(times, open(os.environ["TIMES"], "w"))
"""


@dataclass
class Parts:
    """Return the medians of the four times of a step, by timers in the script and by the profiler."""

    hand: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    @property
    def worst(self) -> float:
        return max(abs(own / hand - 1) for own, hand in zip(self.ours, self.hand, strict=True))


@pytest.mark.slow
def test_phases_agree_with_timers_placed_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for attempt in range(4):  # a loaded machine may stand still between two calls of the clock
        folder = tmp_path / str(attempt)
        folder.mkdir()
        monkeypatch.setenv("TIMES", str(folder / "times.json"))
        profile = run(folder, TIMED, plan=(10, 60, 0)).ranks[0].profile
        rows = json.loads((folder / "times.json").read_text())[9:]
        steps = list(profile.steps)
        parts = Parts([median(row[part] for row in rows) * 1e6 for part in range(4)], measure(steps))
        found.append(parts.worst)
        for step in steps:
            assert step.data_tail_us is not None
            total = step.data_tail_us + step.forward_backward_us + step.update_tail_us
            assert total == pytest.approx(step.iteration_us, rel=1e-9)
        if parts.worst < 0.05:
            return
    pytest.fail(f"they differ by {[f'{share:.1%}' for share in found]}")


def measure(steps: list[Step]) -> list[float]:
    figures: list[Any] = [
        [step.data_tail_us for step in steps],
        [step.forward_backward_us for step in steps],
        [step.update_tail_us for step in steps],
        [step.iteration_us for step in steps],
    ]
    return [median(figure) for figure in figures]


def test_of_several_ranks_the_one_that_failed_first_is_named(tmp_path: Path) -> None:
    body = DISTRIBUTED + "train_on = train\ndef train(net):\n    train_on(net, end)\n"
    body += "def end(number):\n    if number == 4 and dist.get_rank() == 1:\n        sys.exit(9)\nwork()\n"
    found = run(tmp_path, body, plan=(1, 20, 0), ranks=2)
    reason = found.reason.replace(" and its process by SIGABRT", "")  # threads of gloo sometimes abort it
    assert (found.code, reason) == (9, "rank 1 ended with exit code 9 after 4 of 21 steps")
    assert [len(rank.profile.steps) for rank in found.ranks] == [3, 3]
