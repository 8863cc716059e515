"""Numbers of devices, which mean the plug-in's card once it is imported."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, migrate_source

HELPER = "from accelerator_device import accelerator\n"
HEAD = "import argparse\nimport os\nimport torch\nimport torch.distributed as dist\n"
PARSER = "p = argparse.ArgumentParser()\np.add_argument('--gpu', {})\nargs = p.parse_args()\n"


@pytest.mark.parametrize(
    "source",
    [
        "x.to(device)\n",
        "x.to(torch.float16)\n",
        "x.to(other)\n",
        "x.to(True)\n",
        "class Foo:\n    def to(self, base):\n        return base\nFoo().to(0)\n",
        "from elsewhere import Foo\nFoo().to(0)\n",
        "rank = torch.device('cpu')\nx.to(rank)\n",
        "def f(x, gpu: torch.device):\n    x.to(gpu)\n",
        "def f(x, rank: str):\n    x.to(rank)\n",
        "build(device=0)\n",
        "torch.nn.parallel.DistributedDataParallel(m, device_ids=[0], output_device=0)\n",
        PARSER.format("default='cpu'") + "x.to(args.gpu)\n",
        "def train(x, device):\n    x.to(device)\ntrain(x, rank)\ntrain(x, 'cpu')\n",
        "x.to(names[0])\n",
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_what_is_no_number_requests_no_import(source: str, to: str) -> None:
    check_noop("device_integer", HEAD + source, to=to)


@pytest.mark.parametrize(
    "source",
    [
        "x.to(0)",
        "x.to(rank, non_blocking=True)",
        "x.to(device=args.local_rank)",
        "torch.device(args.gpu)",
        "torch.device(0)",
        "torch.zeros(3, device=1)",
        "x.new_zeros(3, device=local_rank)",
        "x.to(dist.get_rank() % 8)",
        "torch.device(int(os.environ['LOCAL_RANK']))",
        "n = dist.get_rank()\nx.to(n)",
        "x.to(rank if spread else 'cpu')",
        "device = rank if spread else 'cpu'\nx.to(device)",
        "one, two = rank * 2, rank * 2 + 1\nx.to(two)",
        "class Net(torch.nn.Module):\n    def __init__(self, one):\n        self.one = one\n"
        "    def forward(self, x):\n        return x.to(self.one)\nNet(rank)",
        "x.to(y.get_device())",
        "x.to(device_ids[0])",
        "from elsewhere import Foo\nFoo().to(rank)",
        "def train(x, device):\n    x.to(device)\ntrain(x, rank)\ntrain(x, device=0)",
        "for i in range(2):\n    x.to(i)",
        "def f(x, n: int):\n    x.to(n)",
        "import torch.multiprocessing as mp\ndef work(i, x):\n    x.to(i)\nmp.spawn(work, nprocs=2)",
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_a_number_stays_and_the_plug_in_is_imported(source: str, to: str) -> None:
    before = f"{HEAD}{source}\n"
    after = migrate_source(before, to=to).after.decode()
    assert after == before.replace("import torch\n", f"import torch\nimport torch_{to}\n"), after


def test_a_file_beside_one_that_imports_the_plug_in_needs_no_import() -> None:
    others = {"main.py": "import torch\nimport torch_npu\nimport layers\n"}
    check_noop("", "import torch\ndef place(x, rank):\n    return x.to(rank)\n", path="layers.py", others=others)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.to(0)", "x.to(accelerator.device(0))"),
        ("x.to(local_rank, torch.float16)", "x.to(accelerator.device(local_rank), torch.float16)"),
        ("torch.device(args.gpu)", "accelerator.device(args.gpu)"),
        ("x.to(device=0, non_blocking=True)", "x.to(device=accelerator.device(0), non_blocking=True)"),
        ("x.new_zeros(3, device=1)", "x.new_zeros(3, device=accelerator.device(1))"),
        ("m.to_empty(device=local_rank)", "m.to_empty(device=accelerator.device(local_rank))"),
        ("torch.zeros(3, device=rank)", "torch.zeros(3, device=accelerator.device(rank))"),
        (
            "r = int(os.environ['LOCAL_RANK'])\nx.to(r)",
            "r = int(os.environ['LOCAL_RANK'])\nx.to(accelerator.device(r))",
        ),
    ],
)
def test_a_number_becomes_a_device_of_the_available_card(before: str, after: str) -> None:
    check_rewrite("device_integer", f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")
