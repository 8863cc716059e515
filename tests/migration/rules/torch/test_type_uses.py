"""Uses of the old tensor types."""

from __future__ import annotations

import pytest

from migration.checking import check_noop

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
def test_what_is_no_cuda_tensor_type_stays(source: str) -> None:
    check_noop("tensor_type", HEAD + source)
