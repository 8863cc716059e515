"""Checkpoints, loaders, profilers, variables, types by name, imports that are left over: for the available card."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HELPER = "from accelerator_device import accelerator\n"
LOADER = "from torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (
            "map_location",
            "import torch\ntorch.load(f, map_location='cpu')\ntorch.load(f, device)\n",
        ),
        ("map_location", "import json\njson.load(f)\n"),
        ("pinned_memory", f"{LOADER}DataLoader(d)\nDataLoader(d, pin_memory=False)\nDataLoader(d, **more)\n"),
        ("pinned_memory", f"{LOADER}DataLoader(d, pin_memory=True)\nDataLoader(d, **dict(pin_memory=True))\n"),
        ("pinned_memory", "import torch\nif torch.cuda.is_available():\n    x = x.pin_memory()\n"),
        ("profiler", "from torch.profiler import ProfilerActivity as A\nprint(A.CPU)\n"),
        ("visible_devices", "import torch\nprint('set CUDA_VISIBLE_DEVICES')\n"),
        ("visible_devices", "import torch\n'CUDA_VISIBLE_DEVICES'\n"),
        ("tensor_type", "import torch\nx = x.type('torch.FloatTensor')\ny = x.type()\n"),
        ("unused_imports", "import torch\nfrom torch.cuda.amp import autocast\n"),
        (
            "unused_imports",
            f"import torch\nfrom torch.cuda import nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n",
        ),
        ("unused_imports", f'from torch.cuda.amp import autocast\n{HELPER}__all__ = ["autocast", "accelerator"]\n'),
        ("rng_state", "import torch\nwith torch.random.fork_rng(device_type='cpu'):\n    pass\n"),
    ],
)
def test_what_needs_nothing_stays(rule: str, source: str) -> None:
    check_noop(rule, source, to="any")


@pytest.mark.parametrize(
    ("rule", "head", "before", "after"),
    [
        (
            "map_location",
            "import torch",
            "m.load_state_dict(torch.load(f)['x'])",
            "m.load_state_dict(torch.load(f, map_location=accelerator.map_location())['x'])",
        ),
        (
            "profiler",
            "from torch.profiler import *\nimport torch",
            "a = torch.profiler.ProfilerActivity.CUDA",
            "a = accelerator.activity()",
        ),
        (
            "tensor_type",
            "import torch",
            "x = x.type('torch.cuda.FloatTensor')",
            "x = x.type(accelerator.FloatTensor)",
        ),
    ],
)
def test_it_follows_the_card(rule: str, head: str, before: str, after: str) -> None:
    check_rewrite(rule, f"{head}\n{before}\n", f"{head}\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    ("rule", "source", "status", "word"),
    [
        ("pinned_memory", "import torch\nx = x.pin_memory()\n", "advice", "is_available"),
        ("map_location", "import torch\nm.load_state_dict(torch.load(f, **more))\n", "unresolved", "map_location"),
        (
            "cuda_api",
            "import torch\ntry:\n    f()\nexcept torch.cuda.OutOfMemoryError:\n    pass\n",
            "advice",
            "2.5",
        ),
        ("data_parallel", "import torch\ntorch.nn.parallel.data_parallel(m, x)\n", "manual", "CUDA only"),
        ("profiler", "import torch\ntorch.autograd.profiler.profile(use_cuda=True)\n", "manual", "use_device"),
        ("tensor_type", "import torch\nif x.type() == 'torch.cuda.FloatTensor':\n    pass\n", "manual", "dtype"),
        ("rng_state", "import torch\nwith torch.random.fork_rng():\n    pass\n", "advice", "device_type"),
        ("rng_state", "import torch\ntorch.cuda.set_rng_state_all(s)\n", "advice", "kind of card"),
    ],
)
def test_what_a_person_must_see_is_said(rule: str, source: str, status: str, word: str) -> None:
    check_says(rule, source, status, word, to="any")
