from __future__ import annotations

import pytest

from migration.checking import check_noop, list_findings


@pytest.mark.parametrize(
    "written",
    [
        "print(torch.version.cuda)",
        "torch.backends.cuda.is_built()",
        "torch.backends.cuda.enable_flash_sdp(True)",
        "if torch.backends.cudnn.is_available(): pass",
        "import torch.utils.cpp_extension as extension; print(extension.CUDA_HOME)",
    ],
)
def test_values_and_settings_of_cuda_are_reported(written: str) -> None:
    assert [line for line, _ in list_findings(f"import torch\n{written}\n", "backends_cuda")] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.backends.cudnn.benchmark = True\ntorch.version.git_version\n",
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n",
    ],
)
def test_nothing_is_reported_without_cause(text: str) -> None:
    check_noop("torch.backends_cuda", text)
