"""Devices that are compared with cuda."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import torch\nimport torch_npu\n"
HELPER = "from accelerator_device import accelerator\n"


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
def test_comparisons_without_cuda_stay(source: str) -> None:
    check_noop("device_compare", HEAD + source)


def test_a_comparison_with_something_that_may_be_no_device_is_reported() -> None:
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
def test_a_device_is_compared_with_the_card(test: str) -> None:
    source = f"if {test}:\n    pass\n"
    after = source.replace("'cuda'", "'npu'").replace("'cuda:", "'npu:")
    check_rewrite("device_compare", HEAD + source, HEAD + after)


def test_a_variable_that_holds_a_device_counts_as_one() -> None:
    source = HEAD + "where = pick()\nx.to(where)\nif where == 'cuda':\n    pass\n"
    check_rewrite("device_compare", source, source.replace("'cuda'", "'npu'"))


def test_cases_over_a_device_are_edited() -> None:
    source = HEAD + "match device.type:\n    case 'cuda' | 'mps':\n        pass\n    case _:\n        print('cuda')\n"
    check_rewrite("device_compare", source, source.replace("case 'cuda'", "case 'npu'"))


def test_a_match_of_something_that_may_be_no_device_is_reported() -> None:
    source = "import torch\nmatch kind:\n    case 'cuda':\n        pass\n"
    check_says("device_compare", source, "manual", "may be no device", to="npu")


@pytest.mark.parametrize(
    "line",
    [
        "if 'cuda' in state:\n    pass",
        "if device.type == 'cpu':\n    pass",
    ],
)
def test_a_comparison_with_something_else_stays_for_any_card(line: str) -> None:
    check_noop("device_compare", f"import torch\n{line}\n", to="any")


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
    ],
)
def test_a_comparison_with_cuda_becomes_one_with_any_card(before: str, after: str) -> None:
    check_rewrite("device_compare", f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


def test_something_that_may_be_a_device_is_reported_for_any_card() -> None:
    result = check_says(
        "device_compare",
        "import torch\nif kind == 'cuda':\n    pass\n",
        "manual",
        "may be no device",
        to="any",
    )
    assert result.findings[0].risk == "low"


def test_a_text_that_is_taken_apart_needs_manual_review() -> None:
    source = "import torch\nn = str(device).replace('cuda:', '')\n"
    check_says("device_compare", source, "manual", "takes a device's text apart", to="any")


def test_a_match_of_something_that_may_be_no_device_is_reported_for_any_card() -> None:
    source = "import torch\nmatch kind:\n    case 'cuda':\n        pass\n"
    check_says("device_compare", source, "manual", "may be no device", to="any")


def test_a_case_needs_manual_review() -> None:
    source = "import torch\nmatch device.type:\n    case 'cuda':\n        pass\n"
    check_says("device_compare", source, "manual", 'case "cuda" | "npu"', to="any")


@pytest.mark.parametrize(
    "source",
    [
        "if d.type == 'cuda':\n    a()\nelif d.type == 'npu':\n    b()\n",
        "if d.type == 'npu':\n    b()\nelif d.type == 'cuda':\n    a()\nelse:\n    c()\n",
        "k = 1 if d.type == 'cuda' else 2 if d.type == 'mlu' else 3\n",
        "if d.type == 'cpu':\n    c()\nelif d.type == 'xpu':\n    b()\nelif d.type == 'cuda':\n    a()\n",
    ],
)
def test_a_branch_beside_that_of_another_card_needs_manual_review(source: str) -> None:
    text = f"import torch\nd = torch.device(name)\n{source}"
    check_says("torch.device_compare", text, "manual", "its branch", to="any")


def test_a_chain_of_comparisons_needs_manual_review_for_any_card() -> None:
    source = "import torch\nif device.type == 'cuda' == other:\n    pass\n"
    check_says("device_compare", source, "manual", "compare with accelerator.TYPES", to="any")


def test_a_device_that_is_named_in_a_comparison_is_compared_once() -> None:
    source = "import torch\nif (d := torch.device('cuda')).type == 'cuda':\n    pass\n"
    after = migrate_source(source, to="any").after.decode()
    assert "if (d := accelerator.device()).type in accelerator.TYPES:" in after
