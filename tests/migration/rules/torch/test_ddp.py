from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "from torch.nn.parallel import DistributedDataParallel as DDP\n"


HELPER = "from accelerator_device import accelerator\n"
DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\n"


@pytest.mark.parametrize(
    "lines",
    [
        "model = DDP(model)",
        "model = DDP(model, device_ids=None)",
        "if torch.cuda.is_available():\n    model = DDP(model, device_ids=[gpu])",
        "if not torch.cuda.is_available():\n    pass\nelif many:\n    model = DDP(model, device_ids=[gpu])",
        "on = torch.cuda.is_available()\nif on and many:\n    model = DDP(model, device_ids=[gpu])",
    ],
)
def test_a_wrapper_without_devices_or_under_a_test_stays(lines: str) -> None:
    check_noop("ddp", f"import torch\n{DDP}{lines}\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DDP(model, device_ids=[gpu])", "DDP(model, device_ids=accelerator.unless_cpu([gpu]))"),
        (
            "DDP(model, [gpu], output_device=gpu)",
            "DDP(model, accelerator.unless_cpu([gpu]), output_device=accelerator.unless_cpu(gpu))",
        ),
        (
            "if torch.cuda.is_available():\n    pass\nelse:\n    DDP(model, device_ids=[0])",
            "if torch.cuda.is_available():\n    pass\nelse:\n    DDP(model, device_ids=accelerator.unless_cpu([0]))",
        ),
    ],
)
def test_device_arguments_are_none_without_a_card(before: str, after: str) -> None:
    check_rewrite("ddp", f"import torch\n{DDP}{before}\n", f"import torch\n{DDP}{HELPER}{after}\n", to="any")


def test_settings_that_the_script_has_get_no_advice() -> None:
    check_noop("ddp", HEAD + "m = DDP(net, broadcast_buffers=False, bucket_cap_mb=100)\nn = DDP(net, **more)\n")


def test_both_cards_get_advice_on_buffers_and_the_npu_on_buckets() -> None:
    source = HEAD + "m = DDP(net, device_ids=[0])\n"
    check_says("ddp", source, "advice", "broadcast_buffers=False")
    check_says("ddp", source, "advice", "bucket_cap_mb=500")
    assert len(migrate_source(source, "ddp", to="mlu").findings) == 1
