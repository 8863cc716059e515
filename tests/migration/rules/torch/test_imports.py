"""Imports from torch.cuda: the statement changes, the body does not."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

RULE = "torch.imports"


@pytest.mark.parametrize(
    "text",
    [
        "from torch import nn\nimport torch.nn as nn\n",
        "from .cuda import synchronize\n",
        "from mylib.torch.cuda import synchronize\n",
        "import pycuda\nfrom numba import cuda\n",
        "from torch.cuda import jiterator\njiterator._create_jit_fn('')\n",
    ],
)
def test_other_imports_are_left_alone(text: str) -> None:
    check_noop(RULE, text)


def test_a_star_import_needs_manual_review() -> None:
    check_says(RULE, "from torch.cuda import *\nsynchronize()\n", "manual", "star import")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch.cuda import synchronize", "from torch_npu.npu import synchronize"),
        ("from torch.cuda import amp", "from torch_npu.npu import amp"),
        ("from torch.cuda.amp import autocast as ac", "from torch_npu.npu.amp import autocast as ac"),
        ("import torch.cuda as cuda", "import torch_npu.npu as cuda"),
        ("import torch.cuda.amp as amp, os", "import torch_npu.npu.amp as amp, os"),
        ("from torch import cuda", "from torch_npu import npu as cuda"),
        ("from torch import cuda as gpu", "from torch_npu import npu as gpu"),
        ("from torch import nn, cuda", "from torch_npu import npu as cuda\nfrom torch import nn"),
        ("from torch.cuda import Event, comm", "from torch_npu.npu import Event\nfrom torch.cuda import comm"),
        ("from torch.cuda \\\n    import Event", "from torch_npu.npu import Event"),
        (
            "if y: from torch.cuda import Event, comm",
            "if y: from torch_npu.npu import Event; from torch.cuda import comm",
        ),
        ("import torch.cuda", "import torch"),
        ("import torch\nimport torch.cuda", "import torch"),
        ("import torch, torch.cuda, os", "import torch, os"),
        ("from torch.cuda import (  # here\n    Event,\n)", "from torch_npu.npu import (  # here\n    Event,\n)"),
    ],
)
def test_the_statement_is_rewritten(before: str, after: str) -> None:
    check_rewrite(RULE, before + "\nx = 1\n", after + "\nx = 1\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch.cuda import CUDAGraph", "from torch_mlu.mlu import MLUGraph as CUDAGraph"),
        ("from torch.cuda import nvtx", "from torch_mlu.mlu import cnpx as nvtx"),
        ("from torch.cuda.nvtx import range_push", "from torch_mlu.mlu.cnpx import range_push"),
    ],
)
def test_a_name_that_differs_on_the_mlu_keeps_its_local_name(before: str, after: str) -> None:
    check_rewrite(RULE, before + "\n", after + "\n", to="mlu")


def test_moved_imports_keep_their_local_names() -> None:
    before = "import torch\ndef go():\n    from torch import cuda\n    return cuda.memory_allocated()\n"
    after = before.replace("from torch import cuda", "from torch_npu import npu as cuda")
    assert migrate_source(before).after.decode() == after
