"""Autocast of torch.cuda.amp."""

from __future__ import annotations

import pytest

from migration.checking import check_rewrite, migrate_source

HEAD = "import torch\n"
DONE = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.cuda.amp.autocast()", "torch.npu.amp.autocast()"),
        ("torch.cuda.amp.autocast(args.amp)", "torch.npu.amp.autocast(enabled=args.amp)"),
        ("torch.cuda.amp.autocast(True, torch.float16)", "torch.npu.amp.autocast(enabled=True, dtype=torch.float16)"),
        ("torch.cuda.amp.autocast(enabled=e, dtype=d)", "torch.npu.amp.autocast(enabled=e, dtype=d)"),
        ("torch.cuda.amp.autocast(e := f())", "torch.npu.amp.autocast(e := f())"),
        ("torch.cuda.amp.autocast(*flags)", "torch.npu.amp.autocast(*flags)"),
    ],
)
def test_a_positional_argument_of_autocast_is_named(before: str, after: str) -> None:
    check_rewrite("torch.amp", f"{HEAD}x = {before}\n", f"{DONE}x = {after}\n")


def test_on_the_mlu_positional_arguments_stay() -> None:
    result = migrate_source("from torch.cuda.amp import autocast\nwith autocast(use): pass\n", to="mlu")
    assert result.after.decode() == "from torch_mlu.mlu.amp import autocast\nwith autocast(use): pass\n"


def test_an_imported_autocast_gets_keyword_arguments_too() -> None:
    result = migrate_source("from torch.cuda.amp import GradScaler, autocast\nwith autocast(use): GradScaler(2.0)\n")
    after = "from torch_npu.npu.amp import GradScaler, autocast\nwith autocast(enabled=use): GradScaler(2.0)\n"
    assert result.after.decode() == after


def test_autocast_as_a_decorator_is_replaced() -> None:
    text = "import torch\n@torch.cuda.amp.custom_fwd\ndef forward(c, x): pass\n"
    assert "@torch.npu.amp.custom_fwd\n" in migrate_source(text).after.decode()
