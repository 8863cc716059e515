"""Processes that a script starts itself take part in its rehearsal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rehearsal.rehearsing import TRAINS, rehearse_script


def test_without_a_step_nothing_was_rehearsed_and_processes_of_the_scripts_own_are_on_the_stage(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import os\nos.environ['MINE'] = 'ran'\n")
    other = "import os, sys, torch; print(os.environ['MINE'], torch.cuda.is_available())"
    source = TRAINS + f"import subprocess\nsubprocess.run([sys.executable, '-c', {other!r}], check=True)\n"
    answer = rehearse_script(
        tmp_path, source, "--on", "original", PYTHONPATH=f"{tmp_path / 'own'}:{os.environ.get('PYTHONPATH', '')}"
    )
    assert answer.stdout.split() == ["ran", "True"], answer.stderr
    assert answer.code == 1
    assert "no step was recognised" in answer.stderr


@pytest.mark.slow
def test_a_script_that_calls_torchrun_is_run_once_and_its_ranks_are_on_the_stage(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(
        TRAINS
        + "import torch.distributed as dist, torch_npu\n"
        + "dist.init_process_group('hccl')\n"
        + "print(torch.npu.device_count())\n"
        + "network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).npu())\n"
        + "optimizer = torch.optim.SGD(network.parameters(), 0.1)\n"
        + "while True:\n    network(torch.ones(2, 4).npu()).sum().backward()\n    optimizer.step()\n"
    )
    words = f"'-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', {str(tmp_path / 'ddp.py')!r}"
    answer = rehearse_script(
        tmp_path,
        f"import subprocess, sys\nsys.exit(subprocess.call([sys.executable, {words}]))\n",
        "--ranks",
        "2",
        "--steps",
        "2",
    )
    assert answer.code == 0, answer.stderr
    assert answer.stdout.split() == ["2", "2"]
    assert answer.summary["steps"] == 2
