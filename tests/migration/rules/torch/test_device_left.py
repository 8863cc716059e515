from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source

RULE = "torch.device_left"


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "names = 'cuda:0,cuda:1'.split(',')",
        "for name in 'cpu cuda'.split(): pass",
        "setattr(state, 'device', 'cuda' if n else 'cpu')",
        "KINDS = ('cuda', 'cpu')",
    ],
)
def test_an_unexplained_device_text_is_reported_once(text: str, to: str) -> None:
    result = check_says(RULE, f"import torch\n{text}\n", "manual", "looks like a device", to=to)
    assert len(result.findings) == 1


def test_the_advice_keeps_the_numbers_of_the_devices() -> None:
    source = "import torch\nnames = 'cuda:0,cuda:1'.split(',')\n"
    check_says(RULE, source, "manual", "if it is one, write npu:0,npu:1")


def test_a_method_chosen_by_a_condition_is_reported() -> None:
    check_says(RULE, "import torch\nx = (x.cuda if use else x.cpu)()\n", "manual", "one of these methods is .cuda")


def test_what_another_rule_has_reported_is_not_reported_again() -> None:
    found = migrate_source("import torch\nwhere = 'cuda'\n").findings
    assert [finding.rule for finding in found] == ["torch.device_string"]
