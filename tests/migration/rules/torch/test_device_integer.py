"""Numbers of devices, which mean CUDA unless it is said what they mean."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HEAD = "import argparse\nimport os\nimport torch\nimport torch_npu\nimport torch.distributed as dist\n"
PARSER = "p = argparse.ArgumentParser()\np.add_argument('--gpu', {})\nargs = p.parse_args()\n"


@pytest.mark.parametrize(
    "source",
    [
        "x.to(device)\n",
        "x.to(torch.float16)\n",
        "x.to(other)\n",
        "x.to(True)\n",
        "x.npu(0)\n",
        "torch.npu.set_device(0)\n",
        "torch.device('npu', 0)\n",
        "class Foo:\n    def to(self, base):\n        return base\nFoo().to(0)\n",
        "rank = torch.device('cpu')\nx.to(rank)\n",
        "def f(x, gpu: torch.device):\n    x.to(gpu)\n",
        "def f(x, rank: str):\n    x.to(rank)\n",
        "args.gpu = 'npu:0'\nx.to(args.gpu)\n",
        "build(device=0)\n",
        "torch.nn.parallel.DistributedDataParallel(m, device_ids=[0], output_device=0)\n",
        PARSER.format("default='npu:0'") + "x.to(args.gpu)\n",
        "x.to(f'npu:{rank}')\n",
        "def train(x, device):\n    x.to(device)\ntrain(x, rank)\ntrain(x, 'cpu')\n",
        "x.to(names[0])\n",
    ],
)
def test_what_is_no_number_for_torch_stays(source: str) -> None:
    check_noop("device_integer", HEAD + source)


def test_the_mlu_takes_numbers() -> None:
    source = HEAD.replace("npu", "mlu") + "x.to(0)\n"
    check_noop("device_integer", source, to="mlu")


@pytest.mark.parametrize("line", ["x.to(0)", "x = x.to(local_rank)", "x = torch.zeros(3, device=rank)"])
def test_a_number_alone_is_device_code_on_the_mlu(line: str) -> None:
    before = f"import torch\n{line}\n"
    check_rewrite("device_integer", before, before.replace("torch\n", "torch\nimport torch_mlu\n", 1), to="mlu")


def test_an_object_that_nobody_knows_is_left_to_a_person() -> None:
    check_says("device_integer", HEAD + "from elsewhere import Foo\nFoo().to(0)\n", "manual", "can be a number")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.to(0)", 'x.to("npu:0")'),
        ("x.to(rank, non_blocking=True)", 'x.to(f"npu:{rank}", non_blocking=True)'),
        ("x.to(device=args.local_rank)", 'x.to(device=f"npu:{args.local_rank}")'),
        ("torch.device(args.gpu)", 'torch.device(f"npu:{args.gpu}")'),
        ("torch.zeros(3, device=1)", 'torch.zeros(3, device="npu:1")'),
        ("x.new_zeros(3, device=local_rank)", 'x.new_zeros(3, device=f"npu:{local_rank}")'),
        ("x.to(dist.get_rank() % 8)", 'x.to(f"npu:{dist.get_rank() % 8}")'),
        ("x.to(torch.npu.current_device())", 'x.to(f"npu:{torch.npu.current_device()}")'),
        ("torch.device(int(os.environ['LOCAL_RANK']))", "torch.device(f\"npu:{int(os.environ['LOCAL_RANK'])}\")"),
        ('torch.device(int(os.environ["A"]))', "torch.device(f'npu:{int(os.environ[\"A\"])}')"),
        ("torch.device(int(d['a'][\"b\"]))", 'torch.device("npu:{}".format(int(d[\'a\']["b"])))'),
        ("n = dist.get_rank()\nx.to(n)", 'n = dist.get_rank()\nx.to(f"npu:{n}")'),
        ("x.to(rank if spread else 'cpu')", "x.to(f\"npu:{rank}\" if spread else 'cpu')"),
        (
            "device = rank if spread else 'cpu'\nx.to(device)",
            "device = f\"npu:{rank}\" if spread else 'cpu'\nx.to(device)",
        ),
        (
            "one, two = rank * 2, rank * 2 + 1\nx.to(two)",
            'one, two = rank * 2, rank * 2 + 1\nx.to(f"npu:{two}")',
        ),
        (
            "class Net(torch.nn.Module):\n    def __init__(self, one):\n        self.one = one\n"
            "    def forward(self, x):\n        return x.to(self.one)\nNet(rank)",
            "class Net(torch.nn.Module):\n    def __init__(self, one):\n        self.one = one\n"
            '    def forward(self, x):\n        return x.to(f"npu:{self.one}")\nNet(rank)',
        ),
        ("x.to(y.get_device())", 'x.to(f"npu:{y.get_device()}")'),
        ("x.to(device_ids[0])", 'x.to(f"npu:{device_ids[0]}")'),
        ("from elsewhere import Foo\nFoo().to(rank)", 'from elsewhere import Foo\nFoo().to(f"npu:{rank}")'),
        (
            "def train(x, device):\n    x.to(device)\ntrain(x, rank)\ntrain(x, device=0)",
            'def train(x, device):\n    x.to(f"npu:{device}")\ntrain(x, rank)\ntrain(x, device=0)',
        ),
        ("for i in range(2):\n    x.to(i)", 'for i in range(2):\n    x.to(f"npu:{i}")'),
        ("def f(x, n: int):\n    x.to(n)", 'def f(x, n: int):\n    x.to(f"npu:{n}")'),
        (
            "import torch.multiprocessing as mp\ndef work(i, x):\n    x.to(i)\nmp.spawn(work, nprocs=2)",
            'import torch.multiprocessing as mp\ndef work(i, x):\n    x.to(f"npu:{i}")\nmp.spawn(work, nprocs=2)',
        ),
    ],
)
def test_a_number_says_which_device_it_means(before: str, after: str) -> None:
    check_rewrite("device_integer", HEAD + before + "\n", HEAD + after + "\n")


def test_an_option_that_may_be_missing_stays_none() -> None:
    head = HEAD + PARSER.format("type=int")
    check_rewrite(
        "device_integer",
        head + "x.to(args.gpu)\nif args.gpu is not None:\n    x.to(args.gpu)\n",
        head + 'x.to(None if args.gpu is None else f"npu:{args.gpu}")\n'
        'if args.gpu is not None:\n    x.to(f"npu:{args.gpu}")\n',
    )
