"""TF32 and its counterpart on each card."""

from __future__ import annotations

import pytest

from migration.checking import check_rewrite, check_says, migrate_source


@pytest.mark.parametrize(
    ("to", "matmul", "conv"),
    [
        ("npu", "torch.npu.matmul.allow_hf32", "torch.npu.conv.allow_hf32"),
        ("mlu", "torch.backends.mlu.matmul.allow_tf32", "torch.backends.cnnl.allow_tf32"),
    ],
)
def test_tf32_has_a_counterpart_on_each_card(to: str, matmul: str, conv: str) -> None:
    before = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = a\nprint(torch.backends.cudnn.allow_tf32)\n"
    after = f"import torch\nimport torch_{to}\n{matmul} = a\nprint({conv})\n"
    check_rewrite("torch.tf32", before, after, to=to)


def test_tf32_is_reported_by_one_rule() -> None:
    found = migrate_source("import torch\ntorch.backends.cudnn.allow_tf32 = True\n").findings
    assert {finding.rule for finding in found} == {"torch.tf32", "torch.plugin"}


def test_a_setting_that_its_f_string_also_names_in_words_is_reported() -> None:
    name = "torch.backends.cuda.matmul.allow_tf32"
    source = f'import torch\nprint(f"{name} is {{{name}}}")\n'
    check_says("tf32", source, "manual", "cannot be edited safely here", to="npu")
