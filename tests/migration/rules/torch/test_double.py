"""Double precision: reported for tensors that are or may be on the card."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, list_findings, migrate_source

EVERYWHERE = ("npu", "mlu", "any")


HEAD = "import torch\n"
DATASET = """
from torch.utils.data import Dataset
class Rows(Dataset):
    def __getitem__(self, index):
        row = self.rows[index]
        return row.double()
"""


def list_risks(text: str, **options: object) -> list[tuple[int, str]]:
    found = migrate_source(HEAD + text, "torch.double", **options).findings
    return [(finding.line - 1, finding.risk) for finding in found]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x.cpu().double()\n",
        "def f(x):\n    return x.detach().to('cpu').to(torch.float64)\n",
        "def f(x):\n    return x.to(torch.device('cpu')).double()\n",
        "def f(x):\n    return x.double().cpu()\n",
        "x = torch.from_numpy(rows)\ny = x.double()\n",
        "import numpy as np\nx = torch.as_tensor(np.zeros(3))\ny = x.double()\n",
        "x = torch.zeros(3, dtype=torch.double)\ny = torch.cat([x, x]).double()\n",
        "class A:\n    def f(self):\n        self.m = torch.zeros(3)\n        return self.m.double()\n",
        "def f(x):\n    return x.double().float().cuda()\n".replace("x.", "torch.zeros(2)."),
        "a = torch.zeros(2, dtype=torch.double).float()\nb = a.cuda()\n",
        "import array\narray.double(3)\n",
        DATASET,
    ],
)
def test_double_precision_on_the_cpu_is_not_reported(text: str) -> None:
    check_noop("torch.double", HEAD + text)


@pytest.mark.parametrize(
    "text",
    [
        "a = torch.zeros(2, dtype=torch.double).cuda()\n",
        "a = torch.zeros(2, dtype=torch.double).reshape(1, 2).cuda()\n",
        "a = torch.zeros(2, device='cuda').double()\n",
        "a = x.cuda().mean().to(torch.float64)\n",
        "a = x.cuda().type(torch.float64)\n",
        "a = torch.sum(x.cuda()).double()\n",
        "a = (x.cuda() * 2).double()\n",
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_double_precision_on_the_card_is_reported_once(text: str, to: str) -> None:
    assert list_risks(text, to=to) == [(1, "medium")]


@pytest.mark.parametrize(
    "line", ["x = x.double()", "y = x.softmax(1).to(torch.double) * 2", "y = torch.bincount(x).reshape(2, 2).double()"]
)
def test_a_tensor_at_an_unknown_location_is_reported_at_low_risk(line: str) -> None:
    assert list_risks(f"def f(x):\n    {line}\n    return x\n") == [(2, "low")]


def test_a_variable_is_followed_to_its_move() -> None:
    text = "def f(x, device):\n    x = x.to(device)\n    return x.double()\n"
    assert list_risks(text) == [(3, "medium")]


def test_an_attribute_is_followed_to_its_assignment() -> None:
    text = (
        "class Sums:\n    def __init__(self, device):\n        self.total = torch.zeros(3, device=device)\n"
        "    def mean(self):\n        return self.total.double()\n"
    )
    assert list_risks(text) == [(5, "medium")]


@pytest.mark.parametrize(
    "written",
    [
        "torch.cuda.DoubleTensor(3)",
        "torch.set_default_dtype(torch.float64)",
        "torch.zeros(3, dtype=torch.double, device=device)",
        "x.to(device, torch.float64)",
        "x.to(device=device, dtype=torch.float64)",
        "x.double().cuda()",
        "x.cuda().double()",
        "x.double().to('cuda:0')",
    ],
)
@pytest.mark.parametrize("to", EVERYWHERE)
def test_every_double_tensor_on_the_card_is_reported(written: str, to: str) -> None:
    assert list_findings(f"import torch\ny = {written}\n", "double", to=to) == [(2, "manual")]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx = torch.zeros(3, dtype=torch.float64)\ny = x.double()\nz = x.to(torch.float64)\n",
        "import torch\nx = torch.zeros(3, dtype=torch.float64, device='cpu')\ny = x.to('cpu').double()\n",
    ],
)
def test_nothing_is_reported_without_cause(text: str) -> None:
    check_noop("torch.double", text)
