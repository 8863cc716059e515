"""cuDNN's flags and TF32."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says


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
