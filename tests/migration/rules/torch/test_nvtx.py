from __future__ import annotations

import pytest

from migration.checking import check_noop, list_findings, migrate_source


def test_nvtx_marks_stay_on_the_npu_and_are_renamed_on_the_mlu() -> None:
    text = "import torch\nfrom torch.cuda import nvtx\nnvtx.range_push('a')\ntorch.cuda.nvtx.range_pop()\n"
    assert list_findings(text, "nvtx") == [(3, "manual"), (4, "manual")]
    result = migrate_source(text, to="mlu")
    assert "torch.mlu.cnpx.range_pop()" in result.after.decode()
    assert "nvtx.range_push('a')" in result.after.decode()
    assert not [finding for finding in result.findings if finding.status == "manual"]


@pytest.mark.parametrize(
    "text",
    [
        "import nvtx\nnvtx.push_range('a')\n",
    ],
)
def test_nothing_is_reported_without_cause(text: str) -> None:
    check_noop("torch.nvtx", text)
