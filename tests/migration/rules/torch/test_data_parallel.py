from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import torch\nfrom torch import nn\n"


@pytest.mark.parametrize("unwrapping", ["report", "unwrap"])
@pytest.mark.parametrize(
    "source",
    [
        HEAD + "model = nn.parallel.DistributedDataParallel(net, device_ids=[0])\nmodel.module.save()\n",
        "import torch\nfrom mylib import DataParallel\nmodel = DataParallel(net)\n",
        HEAD + "raw = model.module if isinstance(model, nn.DataParallel) else model\n",
    ],
)
def test_what_is_no_data_parallel_is_left_alone(source: str, unwrapping: str) -> None:
    check_noop("data_parallel", source, data_parallel=unwrapping)


def test_by_default_data_parallel_stays_and_the_steps_are_listed() -> None:
    source = HEAD + "net = nn.Linear(1, 1)\nnet = nn.DataParallel(net, device_ids=[0, 1])\n"
    result = check_says("data_parallel", source, "manual", 'init_process_group("hccl")')
    assert "DistributedDataParallel(net, device_ids=[LOCAL_RANK])" in result.findings[0].message
    assert result.findings[0].risk == "high"
    check_says("data_parallel", source, "manual", 'init_process_group("cncl")', to="mlu")


def test_a_branch_that_only_wraps_keeps_a_pass() -> None:
    check_rewrite(
        "data_parallel",
        HEAD + "if torch.cuda.device_count() > 1:\n    net = nn.DataParallel(net)  # all cards\nnet.cuda()\n",
        HEAD + "if torch.cuda.device_count() > 1:\n    pass  # all cards\nnet.cuda()\n",
        data_parallel="unwrap",
    )


def test_a_derived_class_and_the_function_are_reported() -> None:
    check_says("data_parallel", HEAD + "class Mine(nn.DataParallel): pass\n", "manual", "Mine derives")
    check_says("data_parallel", HEAD + "y = nn.parallel.data_parallel(net, x)\n", "manual", "torchrun")


def test_a_script_with_a_distributed_path_is_started_that_way_and_keeps_its_module() -> None:
    source = """\
import torch
from torch import nn
if many:
    torch.distributed.init_process_group("nccl")
    net = nn.parallel.DistributedDataParallel(net)
else:
    net = nn.DataParallel(net)
net.module.save()
"""
    check_says("data_parallel", source, "manual", "by its distributed path")
    result = migrate_source(source, "data_parallel", data_parallel="unwrap")
    assert "net.module.save()" in result.after.decode()
    assert any("no .module any more" in finding.message for finding in result.findings)


def test_removal_of_the_module_prefix_is_reported() -> None:
    source = HEAD + (
        "net = nn.DataParallel(make())\ntorch.save(net.state_dict(), 'n.pt')\n"
        "net.load_state_dict({k[7:]: v for k, v in torch.load('n.pt').items()})\n"
        "net.load_state_dict(other.state_dict())\noptimizer.load_state_dict(torch.load('o.pt'))\nrest = name[7:]\n"
    )
    result = migrate_source(source, "torch.data_parallel", data_parallel="unwrap")
    assert [(finding.status, finding.line) for finding in result.findings if "module." in finding.message] == [
        ("advice", result.findings[-1].line),
        ("manual", result.findings[-1].line),
    ]
    assert "removeprefix" in result.findings[-1].message


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize("name", ["replicate", "scatter", "gather", "parallel_apply"])
def test_the_parts_of_data_parallel_need_review(name: str, to: str) -> None:
    source = f"import torch\nfrom torch.nn.parallel import {name}\nparts = {name}(net, devices)\n"
    result = migrate_source(source, to=to)
    assert [(finding.status, name in finding.message) for finding in result.findings] == [("manual", True)]


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "line",
    [
        "net = net.module if isinstance(net, torch.nn.DataParallel) else net",
        "wrapped = isinstance(net, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))",
        "wrapped = type(net) is torch.nn.DataParallel",
        "def unwrap(net: torch.nn.DataParallel): return net",
    ],
)
def test_a_test_for_data_parallel_is_no_place_of_the_ledger(line: str, to: str) -> None:
    assert migrate_source(f"import torch\n{line}\n", to=to).places == ()


def test_data_parallel_stays_and_is_reported() -> None:
    source = "import torch\nmodel = torch.nn.DataParallel(model)\n"
    check_says("data_parallel", source, "manual", "on CUDA only", to="any")


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("import torch\ntorch.nn.parallel.data_parallel(m, x)\n", "manual", "on CUDA only"),
        ("import torch\nclass Wrapper(torch.nn.DataParallel):\n    pass\n", "manual", "on CUDA only"),
    ],
)
def test_what_needs_review_for_the_available_card_is_reported(source: str, status: str, word: str) -> None:
    check_says("data_parallel", source, status, word, to="any")
