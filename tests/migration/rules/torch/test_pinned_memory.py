"""Pinned memory of data loaders."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HEAD = "import torch\nimport torch_npu\nfrom torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    "source",
    [
        "DataLoader(x)\n",
        "DataLoader(x, pin_memory=False)\n",
        "DataLoader(x, pin_memory=True, pin_memory_device='npu')\n",
        "from mine import DataLoader as Mine\nMine(x, pin_memory=True)\n",
        "x.pin_memory()\n",
        "options = {'pin_memory': True}\nuse(**options)\n",
        "options = {'pin_memory': True, 'pin_memory_device': 'npu'}\nDataLoader(x, **options)\n",
        "options = dict(pin_memory=True, pin_memory_device='npu')\nDataLoader(x, **options)\n",
        "class Mine(DataLoader):\n    def __init__(self, data, pin_memory):\n        pass\nMine(x, pin_memory=True)\n",
        "class Mine:\n    pass\nMine(x, pin_memory=True)\n",
    ],
)
def test_what_does_not_pin_or_says_where_stays(source: str) -> None:
    check_noop("pinned_memory", HEAD + source)


def test_a_switch_is_advice() -> None:
    check_says("pinned_memory", HEAD + "DataLoader(x, pin_memory=args.pin)\n", "advice", "pin_memory_device='npu'")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DataLoader(x, pin_memory=True)", 'DataLoader(x, pin_memory=True, pin_memory_device="npu")'),
        (
            "DataLoader(\n    x,\n    pin_memory=True,  # fast\n)",
            'DataLoader(\n    x,\n    pin_memory=True,  # fast\n    pin_memory_device="npu",\n)',
        ),
        (
            "DataLoader(x, pin_memory=torch.npu.is_available())",
            'DataLoader(x, pin_memory=torch.npu.is_available(), pin_memory_device="npu")',
        ),
        (
            "DataLoader(x, pin_memory=True if torch.npu.is_available() else False)",
            'DataLoader(x, pin_memory=True if torch.npu.is_available() else False, pin_memory_device="npu")',
        ),
        (
            "DataLoader(x, pin_memory=device.type == 'npu')",
            "DataLoader(x, pin_memory=device.type == 'npu', pin_memory_device=\"npu\")",
        ),
        (
            "kw = {}\nmore = {'pin_memory': True}\nkw.update(more)\nDataLoader(x, **kw)",
            "kw = {}\nmore = {'pin_memory': True, 'pin_memory_device': 'npu'}\nkw.update(more)\nDataLoader(x, **kw)",
        ),
        (
            "kw = {'num_workers': 1, 'pin_memory': True} if ready else {}\nDataLoader(x, **kw)\nDataLoader(y, **kw)",
            "kw = {'num_workers': 1, 'pin_memory': True, 'pin_memory_device': 'npu'} if ready else {}\n"
            "DataLoader(x, **kw)\nDataLoader(y, **kw)",
        ),
        (
            "kw = dict(num_workers=1, pin_memory=True)\nDataLoader(x, **kw)\nDataLoader(y, **kw)",
            'kw = dict(num_workers=1, pin_memory=True, pin_memory_device="npu")\n'
            "DataLoader(x, **kw)\nDataLoader(y, **kw)",
        ),
        (
            "class Endless(DataLoader):\n    pass\nEndless(x, pin_memory=True)",
            'class Endless(DataLoader):\n    pass\nEndless(x, pin_memory=True, pin_memory_device="npu")',
        ),
        (
            "class Endless(DataLoader):\n    def __init__(self, *a, **kw):\n        super().__init__(*a, **kw)\n"
            "Endless(x, pin_memory=True)",
            "class Endless(DataLoader):\n    def __init__(self, *a, **kw):\n        super().__init__(*a, **kw)\n"
            'Endless(x, pin_memory=True, pin_memory_device="npu")',
        ),
    ],
)
def test_batches_are_pinned_for_the_accelerator(before: str, after: str) -> None:
    check_rewrite("pinned_memory", HEAD + before + "\n", HEAD + after + "\n")
