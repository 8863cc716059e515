from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

RULE = "torch.out_of_memory"


@pytest.mark.parametrize("text", ["print('CUDA out of memory')", "x = 'out of memory' in str(e)"])
def test_other_messages_and_a_search_for_out_of_memory_get_no_advice(text: str) -> None:
    check_noop(RULE, f"import torch\n{text}\n")


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize("text", ["'CUDA out of memory' in str(e)", "str(e).startswith('CUDA out of memory.')"])
def test_a_search_for_cudas_message_gets_advice(text: str, to: str) -> None:
    check_says(RULE, f"import torch\nx = {text}\n", "advice", "torch.OutOfMemoryError", to=to)
