from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nx = torch.zeros(1, device='cuda').cuda()\ntorch.cuda.synchronize()\n",
        "import torch\nstate = torch.load('x.pt', map_location='cpu')\n",
        "import torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader(data, pin_memory=False)\n",
        "import torch\nif name == 'cudable': pass\n",
        "import torch\nif config.device == 'cuda': torch.zeros(1, device=config.device)\n",
        "import torch\nif args.device.startswith('cuda'): pass\n",
    ],
)
def test_what_the_patch_replaces_is_not_reported(source: str) -> None:
    check_noop("patch_limits", source, mode="patch")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("if device.type == 'cuda': pass", "write npu here"),
        ("if 'cuda' in str(device): pass", "write npu here"),
        ("if x.device.type in ('cpu', 'cuda'): pass", "write npu here"),
        ("if str(x.device).startswith('cuda'): pass", "write npu here"),
        ("kind = device.type\nif kind == 'cuda': pass", "write npu here"),
        ("where = {'cuda:0': 'cuda:1'}\ntorch.load('x', map_location=where)", "map_location='cpu'"),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "ASCEND_RT_VISIBLE_DEVICES"),
        ("@torch.jit.script\ndef f(x):\n    return x", "disables torch.jit.script"),
        ("major, _ = torch.cuda.get_device_capability()", "get_device_capability"),
        ("graph = torch.cuda.CUDAGraph()", "CUDAGraph"),
        ("x = x.to(memory_format=torch.channels_last)", "contiguous"),
    ],
)
def test_what_the_patch_cannot_replace_needs_manual_review(line: str, word: str) -> None:
    check_says("patch_limits", f"import os\nimport torch\n{line}\n", "manual", word, mode="patch")


@pytest.mark.parametrize(
    ("line", "to", "word"),
    [
        ("torch.cuda.get_device_capability()", "npu", "returns None on an NPU"),
        ("torch.cuda.get_device_capability()", "mlu", "returns the MLU's generation"),
    ],
)
def test_the_message_describes_this_card(line: str, to: str, word: str) -> None:
    check_says("patch_limits", f"import os\nimport torch\n{line}\n", "manual", word, mode="patch", to=to)
