"""A rehearsal is bounded, keeps to its own folder, passes the exit code on, reaches processes of the script's own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy
import pytest

from forked_viaduct import start_viaduct
from rehearsal.rehearsing import TRAINS, rehearse_script


def test_nothing_of_the_users_is_overwritten_and_the_exit_code_is_the_scripts(tmp_path: Path) -> None:
    here = tmp_path / "elsewhere"
    (here / "data").mkdir(parents=True)
    (here / "model.pth").write_bytes(b"x" * 2**20)
    (here / "table.csv").write_bytes(b"x" * 2**20)
    (here / "data" / "list.txt").write_text("mine")
    source = TRAINS + (
        "assert open('data/list.txt').read() == 'mine'\n"
        "open('model.pth', 'w').write('new'); open('data/list.txt', 'w').write('new'); open('log', 'w').write('new')\n"
        "open('table.csv', 'r+b').write(b'new')\n"
        "train(2)\nsys.exit(7)\n"
    )
    answer = rehearse_script(tmp_path, source, "--on", "original")
    assert (answer.code, answer.summary["steps"]) == (7, 2), answer.stderr
    assert (here / "model.pth").stat().st_size == 2**20
    assert (here / "data" / "list.txt").read_text() == "mine"
    assert (here / "table.csv").read_bytes() == b"x" * 2**20
    assert sorted(path.name for path in here.iterdir()) == ["data", "model.pth", "table.csv"]
    assert answer.summary["wrote"] == ["data/list.txt", "log", "model.pth", "table.csv"]
    assert (answer.record / "work" / "log").read_text() == "new"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interruption_is_reported_as_one_with_the_steps_that_were_taken(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINS + "train(3)\nprint('waits', flush=True)\nimport time\ntime.sleep(100)\n")
    with start_viaduct("rehearse", "train.py", "--on", "original", "--record", "record", cwd=tmp_path) as command:
        command.wait_for(lambda output: "waits" in output)
        os.kill(command.pid, number)
        _, stderr = command.communicate(60)
    assert command.returncode == code, stderr
    assert "viaduct rehearse: 3 steps, " in stderr
    assert f"The rehearsal was interrupted by {number.name}." in stderr
    summary = json.loads((tmp_path / "record" / "summary.json").read_text())
    assert (summary["steps"], summary["interrupted"]) == (3, number)
    assert summary["peak_bytes"] > 2**20


BOTH = """\
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 5))
net.cuda()
optimizer, scaler = torch.optim.Adam(net.parameters(), 1e-3), torch.amp.GradScaler("cuda")
for _ in range(10**9):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(torch.randn(4, 3, 8, 8).cuda()), torch.randint(5, (4,)).cuda())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.slow
def test_the_original_and_the_migrated_script_compute_the_same_bits(tmp_path: Path) -> None:
    migrated = BOTH.replace("cuda", "npu").replace("import torch\n", "import torch, torch_npu\n", 1)
    answers = []
    for on, source in (("original", BOTH), ("npu", migrated)):
        (tmp_path / on).mkdir()
        answers.append(rehearse_script(tmp_path / on, source, "--on", on, "--steps", "3", "--seed", "11"))
    assert [answer.code for answer in answers] == [0, 0], answers[0].stderr + answers[1].stderr
    assert answers[0].summary["losses"] == answers[1].summary["losses"]
    for name in ("gradients.npz", "weights.npz"):
        left, right = (numpy.load(answer.record / "observed" / "rank-0" / name) for answer in answers)
        assert sorted(left) == sorted(right)
        assert all((left[key] == right[key]).all() for key in left)


SPAWNS = (
    TRAINS
    + """\
import os
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    train(10**9, torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2)))


if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
    print("joined")
"""
)


def free_port() -> str:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_a_script_that_spawns_its_ranks_is_run_once_and_all_of_them_stop(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, SPAWNS, "--on", "npu", "--ranks", "2", "--steps", "2", "--", free_port())
    assert answer.code == 0, answer.stderr
    assert answer.stdout.split() == ["joined"]
    assert "starts its ranks itself (train.py:" in answer.stderr
    weights = [numpy.load(answer.record / "observed" / f"rank-{rank}" / "weights.npz") for rank in range(2)]
    assert sorted(weights[0]) == ["bias", "weight"]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


RANKS = (
    TRAINS
    + """\
import json, os
import torch.distributed as dist

dist.init_process_group("gloo")
names = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK")
print(json.dumps({name: os.environ.get(name) for name in names}))
train(2, torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2)))
dist.destroy_process_group()
"""
)


def test_ranks_are_started_with_their_variables_and_their_lines_are_marked(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, RANKS, "--on", "npu", "--ranks", "2")
    assert answer.code == 0, answer.stderr
    output = dict(line[1:].split("] ", 1) for line in answer.stdout.splitlines())
    assert sorted(output) == ["rank 0", "rank 1"]
    assert json.loads(output["rank 1"]) == {
        "RANK_ID": "1", "RANK_SIZE": "2", "DEVICE_ID": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"
    }  # fmt: skip
    table = json.loads((answer.record / "rank_table.json").read_text())
    assert len(table["server_list"][0]["device"]) == 2
    assert answer.summary["steps"] == 2


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    source = TRAINS + (
        "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('unwell')\ntime.sleep(600)\n"
    )
    answer = rehearse_script(tmp_path, source, "--on", "original", "--ranks", "2")
    assert answer.code == 1
    assert "rank 1 ended" in answer.stderr
    assert "ValueError: unwell" in answer.stderr


DIES = (
    TRAINS
    + """\
import os
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    os._exit(3)
dist.barrier()
"""
)


@pytest.mark.slow
def test_a_rank_that_dies_is_not_explained_by_anothers_line(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, DIES, "--on", "original", "--ranks", "2")
    assert answer.code == 3, answer.stderr
    assert (answer.summary["failed_rank"], answer.summary["failure"]) == (1, "rank 1 ended with exit code 3")


def test_a_package_that_is_missing_is_named_before_anything_runs(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, "import torch\nimport cv2_not_there\nimport yaml_not_there as y\nprint('ran')\n")
    assert answer.code == 2
    assert answer.stdout == ""
    assert "cv2_not_there (train.py:2), yaml_not_there (train.py:3)" in answer.stderr
    assert "pip install cv2_not_there yaml_not_there" in answer.stderr
