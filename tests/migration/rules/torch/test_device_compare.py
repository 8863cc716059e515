"""Devices that are compared with cuda."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HEAD = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    "source",
    [
        "if 'cuda' in state:\n    pass\n",
        "if device.type == 'cpu':\n    pass\n",
        "if device.type in ('cuda', 'npu'):\n    pass\n",
        "name.startswith('cuda')\n",
        "device.replace(':', '')\n",
        "print(device == other, 'cuda')\n",
    ],
)
def test_what_does_not_ask_for_cuda_stays(source: str) -> None:
    check_noop("device_compare", HEAD + source)


def test_what_is_not_shown_to_be_a_device_is_reported() -> None:
    check_says("device_compare", HEAD + "if args.kernel == 'cuda':\n    pass\n", "manual", "may be no device")


@pytest.mark.parametrize(
    "test",
    [
        "x.device.type == 'cuda'",
        "'cuda' != self.device.type",
        "args.device == 'cuda:0'",
        "config['device'] == 'cuda'",
        "str(device) == 'cuda'",
        "'cuda' in str(x.device)",
        "'cuda' in device",
        "device not in ['cuda', 'cpu']",
        "device.startswith('cuda')",
        "str(x.device).startswith(('cuda', 'cpu'))",
        "device.split(':')[0] == 'cuda'",
        "int(device.replace('cuda:', ''))",
        "getattr(args, 'device') == 'cuda'",
        "next(model.parameters()).device.type == 'cuda'",
        "device == 'cuda' or device.type == 'cuda'",
    ],
)
def test_a_device_is_compared_with_the_accelerator(test: str) -> None:
    source = f"if {test}:\n    pass\n"
    after = source.replace("'cuda'", "'npu'").replace("'cuda:", "'npu:")
    check_rewrite("device_compare", HEAD + source, HEAD + after)


def test_a_name_that_holds_a_device_is_one() -> None:
    source = HEAD + "where = pick()\nx.to(where)\nif where == 'cuda':\n    pass\n"
    check_rewrite("device_compare", source, source.replace("'cuda'", "'npu'"))


def test_match_follows() -> None:
    source = HEAD + "match device.type:\n    case 'cuda' | 'mps':\n        pass\n    case _:\n        print('cuda')\n"
    check_rewrite("device_compare", source, source.replace("case 'cuda'", "case 'npu'"))


def test_a_match_of_something_that_may_be_no_device_is_reported() -> None:
    source = "import torch\nmatch kind:\n    case 'cuda':\n        pass\n"
    check_says("device_compare", source, "manual", "may be no device", to="npu")
