from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from migration.checking import check_noop, check_says, migrated

SCRIPT = """\
    import argparse
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x)

    def get_loaders(batch):
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))
        train = DataLoader(data, batch_size=batch, shuffle=True)
        test = DataLoader(data, batch_size=batch)
        return train, test

    def train_epoch(model, loader, optimizer):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()

    def save_checkpoint(model, path):
        \"\"\"Keep the weights.\"\"\"
        torch.save(model.module.state_dict(), path)
        print("saved")

    def main(args):
        torch.manual_seed(1)
        train_loader, test_loader = get_loaders(8)
        model = Net()
        model = nn.DataParallel(model, device_ids=[0, 1])
        model.to("cuda:0")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(args.epochs):
            train_epoch(model, train_loader, optimizer)
            save_checkpoint(model, args.save)

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=2)
        parser.add_argument("--save", default="net.pt")
        main(parser.parse_args())
    """


def ddp(source: str = SCRIPT, rule: str = "data_parallel_ddp", **options: object) -> tuple[str, list[tuple[str, str]]]:
    result = migrated(dedent(source), rule, data_parallel="ddp", **options)
    return result.after.decode(), [(one.status, one.message) for one in result.findings]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("shuffle=True", "shuffle=batch > 1", "decided at run time"),
        ("shuffle=True", "sampler=other", "sampler of its own"),
        ("train = DataLoader", "train = make", "goes over a DataLoader"),
        ("batch_size=batch, shuffle=True", "shuffle=True, **settings", "**settings"),
        ("batch_size=batch, shuffle=True", "batch_size=None, shuffle=True", "no batch size"),
        ("train = DataLoader", "a = train = DataLoader", "goes over a DataLoader"),
        ("for epoch in range(args.epochs):", "while True:", "no loop over epochs"),
        ("device_ids=[0, 1])", "dim=1)", "dim 0"),
        ("nn.DataParallel(model, ", "nn.DataParallel(**kw, ", "which model"),
        ("def main(args):", "import hydra\n@hydra.main()\ndef main(args):", "decorator"),
        ("torch.manual_seed(1)", "os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "visible cards"),
        ('model.to("cuda:0")', "model.cuda(pick())", "which card pick()"),
        ("torch.manual_seed(1)", "torch.distributed.init_process_group('nccl')", "distributed path already"),
        ("class Net(nn.Module)", "class Mine(nn.DataParallel): pass\nclass Net(nn.Module)", "Mine derives"),
    ],
)
def test_if_one_step_cannot_be_done_none_is_and_the_condition_is_named(old: str, new: str, reason: str) -> None:
    source = dedent(SCRIPT).replace(old, new)
    result = check_says("data_parallel_ddp", source, "manual", reason, data_parallel="ddp")
    assert ("init_process_group('hccl')" in result.findings[0].message) == ("path already" not in reason)
    assert len(result.findings) == 1


def test_a_notebook_and_a_file_that_others_import_are_left() -> None:
    result = migrated(dedent(SCRIPT), "data_parallel_ddp", path="train.ipynb", data_parallel="ddp")
    assert not result.changed
    assert "notebook" in result.findings[0].message
    library = dedent(SCRIPT).partition("if __name__")[0]
    result = migrated(library, "data_parallel_ddp", data_parallel="ddp")
    assert not result.changed
    assert "not the one that is started" in result.findings[0].message


def test_a_script_without_data_parallel_is_left_alone() -> None:
    check_noop(
        "data_parallel_ddp",
        dedent(SCRIPT).replace("nn.DataParallel(model, device_ids=[0, 1])", "model"),
        data_parallel="ddp",
    )


def test_loader_epoch_saving_device_and_entry() -> None:
    after, said = ddp()
    for line in (
        "    train = DataLoader(data, batch_size=batch // dist.get_world_size(), sampler=DistributedSampler(data))\n",
        "    test = DataLoader(data, batch_size=batch)\n",
        "    model = DistributedDataParallel(model.npu(), device_ids=[local_rank])\n",
        '    model.to("npu")\n',
        "    for epoch in range(args.epochs):\n        train_loader.sampler.set_epoch(epoch)\n",
        '    """Keep the weights."""\n    if dist.get_rank() != 0:\n        return\n    torch.save(',
        '    torch.npu.set_device(local_rank)\n    dist.init_process_group("hccl")\n    main(parser.parse_args())\n'
        "    dist.destroy_process_group()\n",
    ):
        assert line in after, after
    assert any("torchrun --nproc_per_node=2 script.py" in message for _, message in said)
    assert not [one for one in said if one[0] == "manual"]


def test_the_mlu_has_its_own_words() -> None:
    after, _ = ddp(to="mlu")
    assert "model.mlu(), device_ids=[local_rank]" in after
    assert 'torch.mlu.set_device(local_rank)\n    dist.init_process_group("cncl")' in after


def test_a_module_level_script_with_explicit_cards() -> None:
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


def test_a_trainer_that_keeps_its_loader() -> None:
    after, said = ddp(
        """\
        import torch
        from torch.utils.data import DataLoader
        class Trainer:
            def __init__(self, model, data):
                self.model = torch.nn.DataParallel(model)
                self.loader = DataLoader(data, batch_size=4, shuffle=True)
            def epoch(self):
                for x in self.loader:
                    self.model(x).sum().backward()
            def fit(self, epochs):
                for number in range(epochs):
                    self.epoch()
        if __name__ == "__main__":
            Trainer(build(), data()).fit(3)
        """
    )
    assert "for number in range(epochs):\n            self.loader.sampler.set_epoch(number)\n" in after, said


def test_what_uses_the_card_before_the_main_guard_starts_the_ranks_there() -> None:
    after, _ = ddp(SCRIPT.replace("def main(args):", "mean = torch.zeros(1).cuda()\n\n    def main(args):"))
    assert 'dist.init_process_group("hccl")\nmean = torch.zeros(1).cuda()\n' in after
    assert after.endswith("    main(parser.parse_args())\n    dist.destroy_process_group()\n")
    source = dedent(SCRIPT).replace("def main(args):", "mean = torch.zeros(1).cuda()\ndef main(args):")
    others = {"other.py": "from script import Net\n"}
    result = migrated(source, "data_parallel_ddp", others=others, data_parallel="ddp")
    assert not result.changed
    assert "others import it" in result.findings[0].message


def test_a_training_loader_that_does_not_shuffle_is_shared_out_too() -> None:
    after, _ = ddp(SCRIPT.replace(", shuffle=True", ""))
    assert "sampler=DistributedSampler(data, shuffle=False))" in after


def test_an_evaluation_that_shuffles_sees_all_samples() -> None:
    after, _ = ddp(
        SCRIPT.replace("test = DataLoader(data, batch_size=batch)", "test = DataLoader(data, 4, shuffle=True)")
    )
    assert "test = DataLoader(data, 4, shuffle=True)\n" in after
    assert after.count("set_epoch") == 1


def test_rank_0_downloads_first() -> None:
    data = "data = TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))"
    after, _ = ddp(SCRIPT.replace(data, "data = fetch(\n            root, download=True)  # big"))
    assert "    if dist.get_rank() != 0:\n        dist.barrier()\n    data = fetch(\n" in after
    assert "download=True)  # big\n    if dist.get_rank() == 0:\n        dist.barrier()\n" in after


def test_a_loader_behind_a_progress_bar() -> None:
    after, said = ddp(SCRIPT.replace("for x, y in loader:", "bar = tqdm(loader)\n        for x, y in bar:"))
    assert "train_loader.sampler.set_epoch(epoch)" in after, said


def test_a_condition_that_could_leave_the_ranks_apart_is_named() -> None:
    wrap = "model = nn.DataParallel(model, device_ids=[0, 1])"
    _, said = ddp(SCRIPT.replace(wrap, f"if args.parallel:\n            {wrap}"))
    assert any("only if args.parallel" in message for _, message in said)
    _, said = ddp(SCRIPT.replace(wrap, f"if torch.cuda.device_count() > 1:\n            {wrap}"))
    assert not any("only if" in message for _, message in said)


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
def test_two_ranks_train_as_one_does_and_one_of_them_saves(tmp_path: Path) -> None:
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


LOOP = """\
import math
import torch
from torch import nn
from torch.utils.data import DataLoader

def train(net, loader, opt):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        total += loss.item() * x.size(0)
        if i % 10 == 0:
            print(loss)
    return total

def main(data, test):
    loader = DataLoader(data, batch_size=20, shuffle=True)
    net = nn.DataParallel(nn.Linear(6, 3).cuda())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    best, bad = 1e9, 0
    for epoch in range(20):
        total = train(net, loader, opt)
        DECISION

if __name__ == "__main__":
    main(1, 2)
"""


@pytest.mark.parametrize(
    "decision",
    [
        "sched.step(total)",
        "bad = bad + 1 if total > best else 0\n        if bad > 3:\n            break",
        "if math.isnan(total):\n            break",
        "if total < best:\n            torch.save(net.state_dict(), 'best.pt')",
        "stopper(total, net)\n        if stopper.early_stop:\n            break",
        "history = []\n        history.append(total)\n        if min(history[-3:]) > best:\n            return",
        "for group in opt.param_groups:\n            group['lr'] = 0.1 if total > 1 else 0.01",
    ],
)
def test_a_decision_by_what_one_rank_has_seen_is_refused(decision: str) -> None:
    result = migrated(LOOP.replace("DECISION", decision), "torch.data_parallel_ddp", data_parallel="ddp")
    assert not result.changed
    assert [one.status for one in result.findings] == ["manual"]
    assert "one rank alone" in result.findings[0].message
    assert "all_reduce" in result.findings[0].message


@pytest.mark.parametrize(
    "decision",
    [
        "print(total)",
        "if total < best:\n            best = total\n            print('better', best)",
        "if not math.isfinite(total):\n            raise ValueError(total)",
        "accuracy = evaluate(net, test)\n        if accuracy > best:\n            break",
        "if epoch > 3:\n            break",
    ],
)
def test_what_is_told_or_alike_on_every_rank_decides_nothing(decision: str) -> None:
    assert migrated(LOOP.replace("DECISION", decision), "torch.data_parallel_ddp", data_parallel="ddp").changed


@pytest.mark.parametrize(("batch", "cards"), [("1", "[0, 1]"), ("20", "[0, 1, 2]")])
def test_a_batch_that_cannot_be_shared_out_is_refused(batch: str, cards: str) -> None:
    text = LOOP.replace("DECISION", "pass").replace("batch_size=20", f"batch_size={batch}")
    text = text.replace(".cuda())", f".cuda(), device_ids={cards})")
    result = migrated(text, "torch.data_parallel_ddp", data_parallel="ddp")
    assert not result.changed
    assert "cannot be shared out" in result.findings[0].message


def test_files_that_every_rank_writes_are_named() -> None:
    text = LOOP.replace("DECISION", "open('log.txt', 'a').write('x')\n        open('names.txt').read()")
    result = migrated(text, "torch.data_parallel_ddp", data_parallel="ddp")
    said = [one.message for one in result.findings if one.status == "manual"]
    assert len(said) == 1
    assert "open('log.txt', 'a')" in said[0]
    assert any("divides by the number of ranks" in one.message for one in result.findings)
