"""Operators that a vendor documents as missing or limited."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx = torch.zeros(3) + torch.relu(y)\ntorch.sum(x)\ntorch.sum(x, dtype=None)\n",
        "import torch.nn.functional as F\nF.interpolate(x, size=4)\nF.kl_div(a, b, log_target=False)\n",
        "import torch\ntorch.topk(x, 3)\ntorch.topk(x, 3, sorted=True)\ntorch.unique(x)\n",
        "from mylib import functional as F\nF.grid_sample(x, y)\n",
        "import torch\ngrid_sample = 1\n",
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_operators_without_a_limit_are_not_reported(text: str, to: str) -> None:
    check_noop("torch.operators", text, to=to)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("import torch.nn.functional as F\ny = F.grid_sample(x, g)\n", "unsupported"),
        ("import torch\ny = torch.sum(x, dtype=torch.float32)\n", "dtype"),
        ("import torch\ny = x.scatter_reduce(0, i, s, 'sum')\n", "unsupported"),
        ("import torch\ny = torch.kthvalue(x, 3)\n", "int32"),
        ("from torch.nn.functional import interpolate\ny = interpolate(x, scale_factor=2)\n", "size"),
        ("import torch\ny = torch.topk(x, 3, sorted=False)\n", "sorted"),
        ("import torch\ny = torch.std(x)\n", "CPU"),
    ],
)
def test_limits_in_the_npus_table_are_reported(text: str, word: str) -> None:
    result = check_says("torch.operators", text, "manual", word)
    assert all("torch 2.6" in finding.message for finding in result.findings)


def test_for_any_card_the_limits_of_each_are_reported() -> None:
    found = migrate_source("import torch\ny = torch.heaviside(x, v)\n", "torch.operators", to="any").findings
    assert sorted(finding.message.split(":")[0] for finding in found) == [
        "heaviside on the MLU",
        "heaviside on the NPU",
    ]


@pytest.mark.parametrize("to", ["npu", "any"])
def test_a_tensor_that_one_branch_moves_to_the_card_is_on_it(to: str) -> None:
    source = (
        "import torch\ndef run(fast):\n    if fast:\n        x = torch.ones(1).to('cuda')\n    else:\n"
        "        x = torch.ones(1)\n    return torch.nn.functional.grid_sample(x, x)\n"
    )
    assert "grid_sample" in " ".join(finding.message for finding in migrate_source(source, to=to).findings)
