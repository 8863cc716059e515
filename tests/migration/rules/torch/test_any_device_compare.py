from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HELPER = "from accelerator_device import accelerator\n"


def check(rule: str, before: str, after: str) -> None:
    check_rewrite(rule, f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    "line",
    [
        "if 'cuda' in state:\n    pass",
        "if device.type == 'cpu':\n    pass",
        "class T:\n    def __init__(self):\n        self.is_cuda = False\nprint(T().is_cuda)",
    ],
)
def test_a_question_for_something_else_stays(line: str) -> None:
    check_noop("any_device_compare", f"import torch\n{line}\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = device.type == 'cuda'", "a = device.type in accelerator.TYPES"),
        ("a = 'cuda' == device.type", "a = device.type in accelerator.TYPES"),
        ("a = x.device.type != 'cuda' and b", "a = x.device.type not in accelerator.TYPES and b"),
        ("a = args.device == 'cuda:0'", "a = args.device == accelerator.card(0)"),
        ("a = str(device) != f'cuda:{args.gpu}'", "a = str(device) != accelerator.card(args.gpu)"),
        ("a = str(device) in ('cuda', 'cuda:0')", "a = str(device) in (*accelerator.TYPES, accelerator.card(0))"),
        ("a = 'cuda:0' in str(device)", "a = accelerator.card(0) in str(device)"),
        ("a = device != torch.device('cuda')", "a = device != torch.device(accelerator.card())"),
        ("a = device == torch.device('cuda', 1)", "a = device == torch.device(accelerator.card(), 1)"),
        ("a = torch.device(f'cuda:{i}') == x.device", "a = torch.device(accelerator.card(i)) == x.device"),
        (
            "a = device in (torch.device('cuda:0'), torch.device('cpu'))",
            "a = device in (torch.device(accelerator.card(0)), torch.device('cpu'))",
        ),
        (
            "a = device == torch.device('cuda:0' if fast else 'cpu')",
            "a = device == torch.device(accelerator.card(0) if fast else 'cpu')",
        ),
        ("a = args.device.startswith('cuda')", "a = args.device.startswith(accelerator.TYPES)"),
        (
            "a = args.device.startswith('cuda:')",
            'a = args.device.startswith(tuple(kind + ":" for kind in accelerator.TYPES))',
        ),
        ("a = 'cuda' in str(device)", "a = any(kind in str(device) for kind in accelerator.TYPES)"),
        ("a = 'cuda' not in str(device)", "a = not any(kind in str(device) for kind in accelerator.TYPES)"),
        ("a = device.type in ('cuda', 'mps')", "a = device.type in (*accelerator.TYPES, 'mps')"),
        ("a = x.is_cuda", "a = x.device.type in accelerator.TYPES"),
        ("a = not x.is_cuda", "a = not x.device.type in accelerator.TYPES"),
        (
            "assert x.is_cuda == y.is_cuda",
            "assert (x.device.type in accelerator.TYPES) == (y.device.type in accelerator.TYPES)",
        ),
    ],
)
def test_a_question_for_cuda_is_one_for_any_card(before: str, after: str) -> None:
    check("any_device_compare", before, after)


def test_something_that_may_be_a_device_is_pointed_out() -> None:
    result = check_says(
        "any_device_compare",
        "import torch\nif kind == 'cuda':\n    pass\n",
        "manual",
        "may be no device",
        to="any",
    )
    assert result.findings[0].risk == "low"


def test_a_text_that_is_taken_apart_needs_manual_review() -> None:
    source = "import torch\nn = str(device).replace('cuda:', '')\n"
    check_says("any_device_compare", source, "manual", "takes a device's text apart", to="any")


def test_a_match_of_something_that_may_be_no_device_is_reported() -> None:
    source = "import torch\nmatch kind:\n    case 'cuda':\n        pass\n"
    check_says("any_device_compare", source, "manual", "may be no device", to="any")
