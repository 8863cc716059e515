"""Expressions that are devices."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, migrate_source

RULE = "torch.device_left"


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "x = {'cuda': 1, 'cpu': 2}",
        "x = table['cuda']",
        "x = table.get('cuda')",
        "print('cuda')",
        "'cuda'",
        "x = 'built for cuda'",
        "import xgboost\nx = xgboost.XGBClassifier(device='cuda')",
        "parser.add_argument('--kind', default='cuda')",
        "x = name == 'cuda'",
    ],
)
def test_keys_messages_and_other_libraries_are_not_reported(text: str, to: str) -> None:
    check_noop(RULE, f"import torch\n{text}\n", to=to)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("for d in ('cuda:0', 'cuda:1')[:n]:\n    x.to(d)", "for d in ('npu:0', 'npu:1')[:n]:\n    x.to(d)"),
        ('for d in ["cuda:" + str(i) for i in r]:\n    x.to(d)', 'for d in ["npu:" + str(i) for i in r]:\n    x.to(d)'),
    ],
)
def test_a_loop_over_devices_is_followed(before: str, after: str) -> None:
    check_rewrite(
        "torch.device_string",
        f"import torch\nimport torch_npu\n{before}\n",
        f"import torch\nimport torch_npu\n{after}\n",
    )


@pytest.mark.parametrize(
    "comparison",
    [
        "device == torch.device('cuda:0')",
        "str(torch.device('cuda:0')) == name",
        "device in (torch.device('cuda:0'), other)",
        "device == (torch.device('cuda:0') if fast else other)",
    ],
)
@pytest.mark.parametrize(("to", "text"), [("npu", "'npu:0'"), ("any", "accelerator.card(0)")])
def test_a_constructor_in_a_comparison_is_edited_once(comparison: str, to: str, text: str) -> None:
    after = migrate_source(f"import torch\nx = {comparison}\n", to=to).after.decode()
    assert f"x = {comparison}".replace("'cuda:0'", text) in after
