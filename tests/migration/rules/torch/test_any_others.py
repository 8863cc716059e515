"""Checkpoints, loaders, profilers, variables, types by name, imports that are left over: for whatever card there is."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

HELPER = "from accelerator_device import accelerator\n"
LOADER = "from torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (
            "any_map_location",
            "import torch\ntorch.load(f, map_location='cpu')\ntorch.load(f, device)\n",
        ),
        ("any_map_location", "import json\njson.load(f)\n"),
        ("any_pinned_memory", f"{LOADER}DataLoader(d)\nDataLoader(d, pin_memory=False)\nDataLoader(d, **more)\n"),
        ("any_pinned_memory", f"{LOADER}DataLoader(d, pin_memory=True)\nDataLoader(d, **dict(pin_memory=True))\n"),
        ("any_pinned_memory", "import torch\nif torch.cuda.is_available():\n    x = x.pin_memory()\n"),
        ("any_profiler", "from torch.profiler import ProfilerActivity as A\nprint(A.CPU)\n"),
        ("any_visible_devices", "import torch\nprint('set CUDA_VISIBLE_DEVICES')\n"),
        ("any_visible_devices", "import torch\n'CUDA_VISIBLE_DEVICES'\n"),
        ("any_type_text", "import torch\nx = x.type('torch.FloatTensor')\ny = x.type()\n"),
        ("any_unused_imports", "import torch\nfrom torch.cuda.amp import autocast\n"),
        (
            "any_unused_imports",
            f"import torch\nfrom torch.cuda import nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n",
        ),
        ("any_unused_imports", f'from torch.cuda.amp import autocast\n{HELPER}__all__ = ["autocast", "accelerator"]\n'),
        ("any_rng_state", "import torch\nwith torch.random.fork_rng(device_type='cpu'):\n    pass\n"),
    ],
)
def test_what_needs_nothing_stays(rule: str, source: str) -> None:
    check_noop(rule, source, to="any")


@pytest.mark.parametrize(
    ("rule", "head", "before", "after"),
    [
        (
            "any_map_location",
            "import torch",
            "m.load_state_dict(torch.load(f)['x'])",
            "m.load_state_dict(torch.load(f, map_location=accelerator.map_location())['x'])",
        ),
        (
            "any_profiler",
            "from torch.profiler import *\nimport torch",
            "a = torch.profiler.ProfilerActivity.CUDA",
            "a = accelerator.activity()",
        ),
        (
            "any_type_text",
            "import torch",
            "x = x.type('torch.cuda.FloatTensor')",
            "x = x.type(accelerator.FloatTensor)",
        ),
    ],
)
def test_it_follows_the_card(rule: str, head: str, before: str, after: str) -> None:
    check_rewrite(rule, f"{head}\n{before}\n", f"{head}\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize("given", ["None", "map_location=None"])
def test_a_map_location_of_none_is_the_default_too(given: str) -> None:
    said = given.replace("None", "accelerator.map_location()")
    use = "m.load_state_dict(a)\n"
    before = f"import torch\na = torch.load(f, {given})\n{use}"
    after = f"import torch\n{HELPER}a = torch.load(f, {said})\n{use}"
    check_rewrite("any_map_location", before, after, to="any")


def test_each_kind_of_card_is_told_which_are_seen() -> None:
    after = migrated(
        "import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1'  # two\n", "any_visible_devices", to="any"
    )
    told = "os.environ['ASCEND_RT_VISIBLE_DEVICES'] = os.environ['MLU_VISIBLE_DEVICES'] = '0,1'  # two\n"
    assert after.after.decode().endswith(f"os.environ['CUDA_VISIBLE_DEVICES'] = {told}")


def test_a_list_that_an_npu_does_not_take_is_left_to_a_person() -> None:
    source = "import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '1,0'\n"
    check_says("any_visible_devices", source, "manual", "ascending", to="any")


def test_a_variable_that_is_read_is_pointed_out() -> None:
    source = "import os, torch\nn = os.environ.get('CUDA_VISIBLE_DEVICES', '').count(',')\n"
    check_says("any_visible_devices", source, "advice", "ASCEND_RT_VISIBLE_DEVICES", to="any")


@pytest.mark.parametrize(
    ("rule", "source", "status", "word"),
    [
        ("any_pinned_memory", "import torch\nx = x.pin_memory()\n", "advice", "is_available"),
        ("any_map_location", "import torch\nm.load_state_dict(torch.load(f, **more))\n", "unresolved", "map_location"),
        (
            "any_cuda_api",
            "import torch\ntry:\n    f()\nexcept torch.cuda.OutOfMemoryError:\n    pass\n",
            "advice",
            "2.5",
        ),
        ("any_data_parallel", "import torch\ntorch.nn.parallel.data_parallel(m, x)\n", "manual", "CUDA alone"),
        ("any_profiler", "import torch\ntorch.autograd.profiler.profile(use_cuda=True)\n", "manual", "use_device"),
        ("any_type_text", "import torch\nif x.type() == 'torch.cuda.FloatTensor':\n    pass\n", "manual", "dtype"),
        ("any_rng_state", "import torch\nwith torch.random.fork_rng():\n    pass\n", "advice", "device_type"),
        ("any_rng_state", "import torch\ntorch.cuda.set_rng_state_all(s)\n", "advice", "kind of card"),
    ],
)
def test_what_a_person_must_see_is_said(rule: str, source: str, status: str, word: str) -> None:
    check_says(rule, source, status, word, to="any")


def test_what_is_still_used_is_still_imported() -> None:
    before = f"from torch.cuda import amp, nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n"
    after = f"from torch.cuda import nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n"
    check_rewrite("any_unused_imports", before, after, to="any")
