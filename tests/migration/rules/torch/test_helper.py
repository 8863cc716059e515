"""Calls of the helper module, and code that cannot call it."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says


@pytest.mark.parametrize("rule", ["is_cuda", "cuda_api", "device_compare"])
def test_code_that_torchscript_compiles_is_reported(rule: str) -> None:
    body = "torch.cuda.synchronize() if x.is_cuda or x.device.type == 'cuda' else None"
    source = f"import torch\n@torch.jit.script\ndef f(x):\n    {body}\n"
    check_says(rule, source, "manual", "torch.jit.script compiles this", to="any")


@pytest.mark.parametrize("test", ["torch.cuda.is_available()", "torch.accelerator.is_available() and big"])
def test_a_branch_under_a_test_for_a_card_needs_no_other(test: str) -> None:
    check_noop("pinned_memory", f"import torch\nif {test}:\n    x.pin_memory()\n", to="any")
