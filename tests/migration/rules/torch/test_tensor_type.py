"""Types of tensors by their names."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

HEAD = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    "source",
    [
        "print('torch.cuda.FloatTensor')\n",
        "x.type('torch.FloatTensor')\n",
        "x.type('torch.cuda.DoubleTensor')\n",
        "names = {'torch.cuda.FloatTensor': 1}\n",
        "# torch.cuda.FloatTensor\n",
        "torch.set_default_tensor_type('torch.cuda.FloatTensor')\n",
    ],
)
def test_what_is_no_type_of_a_device_stays(source: str) -> None:
    check_noop("tensor_type", HEAD + source)


@pytest.mark.parametrize(
    "source",
    [
        "x.type('torch.cuda.FloatTensor')\n",
        "x.type('torch.cuda.HalfTensor' if ready else 'torch.FloatTensor')\n",
        "if x.type() == 'torch.cuda.LongTensor':\n    pass\n",
    ],
)
def test_a_type_is_the_accelerators(source: str) -> None:
    check_rewrite("tensor_type", HEAD + source, HEAD + source.replace("torch.cuda", "torch.npu"))
