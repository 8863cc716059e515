"""cuDNN's flags and TF32."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated


@pytest.mark.parametrize(
    "text",
    [
        "from mylib.backends import cudnn\ncudnn.benchmark = True\ncudnn.enabled = False\n",
        "import torch\nif torch.backends.cudnn.is_available(): pass\n",
        "import torch\nallow_tf32 = True\nself.allow_tf32 = allow_tf32\n",
    ],
)
@pytest.mark.parametrize("rule", ["torch.cudnn", "torch.tf32"])
@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_other_flags_are_left_alone(rule: str, text: str, to: str) -> None:
    check_noop(rule, text, to=to)


def test_harmless_flags_stay_and_are_explained() -> None:
    text = "import torch.backends.cudnn as cudnn\ncudnn.benchmark = True\n"
    check_says("torch.cudnn", text, "advice", "no harm")
    text = "import torch\ntorch.backends.cudnn.deterministic = True\n"
    check_says("torch.cudnn", text, "advice", "use_deterministic_algorithms")


def test_enabled_on_the_mlu_through_an_alias() -> None:
    before = "import torch.backends.cudnn as cudnn\ncudnn.enabled = False\n"
    after = f"{before.splitlines()[0]}\nimport torch_mlu\nimport torch\ntorch.backends.mlufusion.enabled = False\n"
    check_rewrite("torch.cudnn", before, after, to="mlu")


@pytest.mark.parametrize(
    ("to", "matmul", "conv"),
    [
        ("npu", "torch.npu.matmul.allow_hf32", "torch.npu.conv.allow_hf32"),
        ("mlu", "torch.backends.mlu.matmul.allow_tf32", "torch.backends.cnnl.allow_tf32"),
    ],
)
def test_tf32_has_a_like_on_each_card(to: str, matmul: str, conv: str) -> None:
    before = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = a\nprint(torch.backends.cudnn.allow_tf32)\n"
    after = f"import torch\nimport torch_{to}\n{matmul} = a\nprint({conv})\n"
    check_rewrite("torch.tf32", before, after, to=to)


def test_tf32_is_named_by_one_rule() -> None:
    found = migrated("import torch\ntorch.backends.cudnn.allow_tf32 = True\n").findings
    assert {finding.rule for finding in found} == {"torch.tf32", "torch.plugin"}
