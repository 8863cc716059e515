from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrated

EVERYWHERE = ("npu", "mlu", "any")


@pytest.mark.parametrize("to", EVERYWHERE)
@pytest.mark.parametrize(
    "written", ["torch.cuda.get_device_capability()[0] >= 8", "f(torch.cuda.get_device_capability)"]
)
def test_the_compute_capability_is_for_a_person(to: str, written: str) -> None:
    check_says("torch.capability", f"import torch\nx = {written}\n", "manual", "is_bf16_supported", to=to)


def test_the_compute_capability_stays_reported_where_the_mlu_has_its_own() -> None:
    result = migrated("import torch\nprint(torch.cuda.get_device_capability())\n", to="mlu")
    assert "torch.mlu.get_device_capability()" in result.after.decode()
    assert "torch.capability" in {finding.rule for finding in result.findings if finding.status == "manual"}


@pytest.mark.parametrize(
    "text",
    [
        "def get_device_capability(): pass\nget_device_capability()\n",
    ],
)
def test_nothing_is_said_without_cause(text: str) -> None:
    check_noop("torch.capability", text)
