from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

RULE = "vendor_code"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntry:\n    import torch_npu\nexcept ImportError:\n    torch_npu = None\n",
        "import torch\nif find_spec('torch_mlu'):\n    import torch_mlu\n    torch.mlu.synchronize()\n",
        "import torch_geometric\nimport mine.torch_npu\n",
        "import torch\nif hasattr(torch, 'npu') and torch.npu.is_available():\n    torch.npu.synchronize()\n",
        "import torch\nfrom accelerator_device import accelerator\naccelerator.synchronize()\n",
        "board.npu()\nprint('torch_npu')\n",
    ],
)
def test_conditional_code_and_other_packages_are_not_reported(source: str) -> None:
    check_noop(RULE, source, to="any")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("import torch_npu", "not on every machine"),
        ("import torch_mlu as mlu", "not on every machine"),
        ("from torch_npu.npu import amp", "not on every machine"),
        ("from torch_npu.contrib import transfer_to_npu", "remove it"),
        ("torch.npu.synchronize()", "write accelerator.synchronize"),
        ("f(torch.mlu.Event)", "write accelerator.Event"),
        ("x = x.npu()", "write .to(accelerator.device())"),
        ("if torch.npu.is_available():\n    torch.npu.synchronize()", "write accelerator.is_available"),
        ("if __name__ == '__main__':\n    x = x.mlu()", "write .to(accelerator.device())"),
    ],
)
def test_code_that_fails_without_the_plug_in_is_reported(line: str, word: str) -> None:
    result = check_says(RULE, f"import torch\n{line}\n", "manual", word, to="any")
    assert all(finding.message_zh for finding in result.findings)


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_with_one_target_it_is_not_reported(to: str) -> None:
    check_noop(RULE, "import torch\nimport torch_npu\nx = x.npu()\n", to=to)
