from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from migration.checking import check_noop
from migration.rules.torch.data_parallel_script import SCRIPT, ddp


def test_a_script_without_data_parallel_is_left_alone() -> None:
    check_noop(
        "data_parallel_ddp",
        dedent(SCRIPT).replace("nn.DataParallel(model, device_ids=[0, 1])", "model"),
        data_parallel="ddp",
    )


def test_the_mlu_gets_its_own_names() -> None:
    after, _ = ddp(to="mlu")
    assert "model.mlu(), device_ids=[local_rank]" in after
    assert 'torch.mlu.set_device(local_rank)\n    dist.init_process_group("cncl")' in after


def test_a_script_without_main_and_with_card_numbers_is_rewritten() -> None:
    after, _ = ddp(
        """\
        import os
        import sys
        import torch
        from torch.utils.data import DataLoader
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        gpu = 0
        device = torch.device(f"cuda:{gpu}")
        torch.cuda.set_device(gpu)
        if not os.path.exists("out"):
            os.makedirs("out")
        loader = DataLoader(make(), 16, True, num_workers=2)
        net = torch.nn.DataParallel(build()).cuda(gpu)
        for epoch in range(3):
            for x in loader:
                net(x.cuda(gpu, non_blocking=True)).sum().backward()
            with open("net.pt", "wb") as file:
                # the weights
                torch.save(net.module.state_dict(), file)
        raw = net.module if isinstance(net, torch.nn.DataParallel) else net
        raw.load_state_dict(torch.load("net.pt"))
        sys.exit(evaluate(raw))
        """
    )
    start = 'gpu = 0\nlocal_rank = int(os.environ["LOCAL_RANK"])\ntorch.npu.set_device(local_rank)\n'
    assert start + 'dist.init_process_group("hccl")\ndevice = torch.device("npu")\nif not' in after
    assert 'os.makedirs("out", exist_ok=True)' in after
    assert "train_dataset = make()\nloader = DataLoader(train_dataset, 16 // dist.get_world_size(), sampler=" in after
    assert "net = DistributedDataParallel(build().npu(), device_ids=[local_rank]).cuda()" in after
    assert "x.cuda(non_blocking=True)" in after
    guard = '    if dist.get_rank() == 0:\n        with open("net.pt", "wb") as file:\n            # the weights\n'
    assert guard + "            torch.save(" in after
    assert "isinstance(net, DistributedDataParallel)" in after
    assert 'dist.barrier()\nraw.load_state_dict(torch.load("net.pt"))' in after
    assert after.endswith("status = evaluate(raw)\ndist.destroy_process_group()\nsys.exit(status)\n")


FAKE = """\
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import distributed

    class Npu:
        @staticmethod
        def set_device(index): pass

    torch.npu = Npu
    torch.nn.Module.npu = lambda self: self
    torch.Tensor.npu = lambda self: self
    move = torch.nn.Module.to
    torch.nn.Module.to = lambda self, where: move(self, "cpu")
    group = lambda store, rank, size, timeout: dist.ProcessGroupGloo(store, rank, size, timeout)
    dist.Backend.register_backend("hccl", group, devices=["cpu"])
    begin = distributed.DistributedDataParallel.__init__
    def init(self, module, device_ids):
        assert len(device_ids) == 1
        begin(self, module)
    distributed.DistributedDataParallel.__init__ = init
    """


@pytest.mark.slow
def test_two_ranks_train_like_one_and_only_one_saves(tmp_path: Path) -> None:
    """The migrated text is run as it is; a stand-in gives it a card that is the CPU, and gloo for HCCL."""
    torch = pytest.importorskip("torch")
    (tmp_path / "torch_npu.py").write_text(dedent(FAKE))
    (tmp_path / "train.py").write_text(ddp(rule="")[0])
    weights = []
    for ranks in (1, 2):
        path = tmp_path / f"net{ranks}.pt"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [*command, "train.py", "--save", str(path)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("saved") == 2, "once an epoch, on rank 0"
        weights.append(torch.load(path, weights_only=True))
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-5, atol=1e-6)
