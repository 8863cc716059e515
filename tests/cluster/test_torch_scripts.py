from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from viaduct.cluster.torch_scripts import render_files
from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project
from viaduct.migration.start_scripts import render_start_scripts

DDP = """\
    import torch
    from torch.utils.data import DataLoader

    def main():
        loader = DataLoader(build(), batch_size=8, shuffle=True)
        model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        for epoch in range(2):
            for x in loader:
                model(x).sum().backward()

    if __name__ == "__main__":
        main()
    """


def test_a_script_of_one_process_is_not_started_several_times(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.zeros(1).cuda()\n")
    files = render_start_scripts(migrate_project(tmp_path, Options(), jobs=1))
    assert set(files) == {"scripts/env.sh", "scripts/run_1p.sh"}
    assert "torch.distributed.run" not in files["scripts/run_1p.sh"]
    assert not any("npu_bridge" in text or "RANK_TABLE" in text for text in files.values())


def test_a_script_that_starts_its_ranks_itself_is_started_once(tmp_path: Path) -> None:
    text = "import torch.multiprocessing as mp\nimport torch\ndef work(local_rank): torch.cuda.set_device(local_rank)\n"
    (tmp_path / "train.py").write_text(text + "mp.spawn(work, nprocs=2)\n")
    files = render_start_scripts(migrate_project(tmp_path, Options(), jobs=1))
    assert set(files) == {"scripts/env.sh", "scripts/run_1p.sh"}


def test_what_became_distributed_is_started_by_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(DDP))
    files = render_start_scripts(migrate_project(tmp_path, Options(data_parallel="ddp"), jobs=1))
    assert '--nproc_per_node="${RANKS:-1}" "$here"/../train.py "$@"' in files["scripts/run_1p.sh"]
    assert '--nproc_per_node="${RANKS:-8}" "$here"/../train.py "$@"' in files["scripts/run_8p.sh"]


@pytest.mark.parametrize("kind", ["npu", "mlu"])
@pytest.mark.parametrize("entry", ["", "a folder/train it.py"])
def test_the_scripts_are_bash(tmp_path: Path, kind: str, entry: str) -> None:
    for name, text in render_files(kind, entry, is_started_per_rank=True, needs_torchrun=False).items():  # type: ignore[arg-type]
        (tmp_path / name).write_text(text)
        checked = subprocess.run(["bash", "-n", str(tmp_path / name)], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
