"""Programs put together at random: whatever stands beside what, the result parses and leaves no known name behind."""

from __future__ import annotations

import random
import re

import pytest

from migration.checking import migrate_source

IMPORTS = (
    "import torch",
    "import torch as t",
    "from torch import cuda",
    "import torch.cuda as tc",
    "from torch.cuda import amp, Event as E",
    "from torch.cuda.amp import (\n    autocast,  # a\n    GradScaler,\n)",
    "import torch, torch.cuda",
    "try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None",
    "from torch.profiler import profile, ProfilerActivity, record_function",
    "import torch.backends.cudnn as cudnn",
    "if True:\n\timport torch.cuda.amp as ca",
)
LINES = (
    "import torch; torch.cuda.synchronize()",
    "x = torch.cuda.device_count() if torch.cuda.is_available() else 0  # 个",
    "print(f'{torch.cuda.memory_allocated() / 2**20:.1f} of {torch.cuda.max_memory_allocated()}')",
    "with torch.cuda.amp.autocast(flag, torch.float16), record_function('a'): pass",
    "s = [torch.cuda.Stream() for _ in range(torch.cuda.device_count())]",
    "cuda.synchronize(); tc.empty_cache()",
    "e = E(enable_timing=True)",
    "f = lambda d: torch.cuda.get_device_name(d)",
    "cudnn.benchmark, cudnn.enabled = True, False",
    "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
    "with profile(activities=[ProfilerActivity.CUDA]) as p: p.step()",
    "y = x.is_cuda and not x.is_cuda",
    "scaler = torch.amp.GradScaler(\n    enabled=True,  # on\n)",
    "with torch.autocast('cuda' if flag else \"cpu\"): pass",
    "class A:\n    def go(self):\n        torch.cuda.nvtx.range_push(f'{self}')\n        return torch.cuda",
    "def g(s: torch.cuda.Stream = None) -> 'torch.cuda.Event':\n    return torch.cuda.current_stream().wait_stream(s)",
    "m = torch.cuda; m.init()",
)
KEPT = ("nvtx",)  # what the NPU has no name for


def draw_program(seed: int) -> str:
    chosen = random.Random(seed)
    parts = [*chosen.sample(IMPORTS, 4), *chosen.sample(LINES, 7)]
    return chosen.choice(["\n", "\r\n"]).join("\n".join(parts).split("\n")) + "\n"


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_is_migrated_to_valid_code(seed: int, to: str) -> None:
    text = "import torch\n" + draw_program(seed)
    result = migrate_source(text, to=to)
    after = result.after.decode()
    left = [line for line in after.splitlines() if "torch.cuda" in line and not any(name in line for name in KEPT)]
    assert left == []
    assert re.search(rf"^\s*(import|from) torch_{to}\b", after, re.MULTILINE)
