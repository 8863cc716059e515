"""Recognition, from its text, of a script that launches its ranks itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.rehearsal import project
from viaduct.rehearsal.own_launch import find_launch_line


def launch_line(folder: Path, source: str, **files: str) -> str:
    for name, text in {"train": source, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return find_launch_line(project.read_project(folder / "train.py"))


@pytest.mark.parametrize(
    "source",
    [
        "from mylib import spawn\nspawn(f)\n",
        "from mylib.launcher import elastic_launch\nelastic_launch(config, f)()\n",
        "import torch.distributed.launcher as pet\nconfig = pet.LaunchConfig()\n",
        "print('start me with torchrun')\n",
        "import subprocess\nusage = 'torchrun train.py'\nsubprocess.run(['ls'])\n",
        "import subprocess\nsubprocess.run(['pip', 'install', 'accelerate'])\n",
        "import torch.multiprocessing as mp\ndef load(): pass\nmp.Process(target=load)\n",
        "import torch.distributed as dist\ndef f(): dist.init_process_group('gloo')\nf()\n",
    ],
)
def test_what_starts_no_ranks_is_no_launch(tmp_path: Path, source: str) -> None:
    assert launch_line(tmp_path, "import torch\n" + source) == ""


@pytest.mark.parametrize(
    "source",
    [
        "import torch.multiprocessing as mp; mp.spawn(f)",
        "torch.multiprocessing.spawn(f)",
        "from torch.multiprocessing import spawn as go; go(f)",
        "from torch.multiprocessing import start_processes; start_processes(f)",
        "from torch.distributed.launcher.api import LaunchConfig, elastic_launch; elastic_launch(LaunchConfig(), f)(1)",
        "from torch.distributed.launcher import elastic_launch as go; go(config, f)()",
        "import torch.distributed.launcher as pet; pet.elastic_launch(config, f)()",
        "from torch.distributed.launcher.api import launch_agent; launch_agent(config, f, [])",
        "from torch.distributed.run import main; main(['train.py'])",
        "from torch.distributed import run; run.run(options)",
        "from torch.distributed.launch import main; main(['train.py'])",
        "from torch.distributed.elastic.multiprocessing import start_processes; start_processes('f', f)",
        "from torch.distributed.elastic.agent.server import LocalElasticAgent; LocalElasticAgent(spec)",
        "from accelerate import notebook_launcher; notebook_launcher(f, num_processes=2)",
        "import subprocess; subprocess.run(['/opt/bin/torchrun', 'ddp.py'])",
        "import subprocess; subprocess.run(['accelerate', 'launch', 'ddp.py'])",
        "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'torch.distributed.run', 'ddp.py'])",
        "import os; command = 'torchrun ddp.py'; os.system(command)",
        "import os; command = ['torchrun']; command += ['ddp.py']; os.execvp(command[0], command)",
        "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')",
    ],
)
def test_a_script_that_launches_itself_is_known_by_the_line(tmp_path: Path, source: str) -> None:
    assert launch_line(tmp_path, f"import torch\n{source}\n") == "train.py:2"


def test_processes_that_form_a_group_are_a_launch(tmp_path: Path) -> None:
    source = (
        "import torch.distributed as dist\nfrom multiprocessing import Process\n"
        "def worker(rank):\n    dist.init_process_group('gloo', rank=rank, world_size=2)\n"
        "for rank in range(2):\n    Process(target=worker, args=(rank,)).start()\n"
    )
    assert launch_line(tmp_path, source) == "train.py:6"


def test_a_launcher_is_known_with_the_script_that_it_starts(tmp_path: Path) -> None:
    source = "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'torch.distributed.run', 'ddp.py'])\n"
    assert launch_line(tmp_path, source, ddp="import torch\n") == "train.py:2"
    assert project.find_framework(project.read_project(tmp_path / "train.py")) == "torch"
