from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

RULE = "torch.out_of_memory"


@pytest.mark.parametrize("text", ["print('CUDA out of memory')", "x = 'out of memory' in str(e)"])
def test_own_messages_and_a_question_that_fits_all_cards_are_left(text: str) -> None:
    check_noop(RULE, f"import torch\n{text}\n")


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize("text", ["'CUDA out of memory' in str(e)", "str(e).startswith('CUDA out of memory.')"])
def test_a_question_for_cudas_message_is_named(text: str, to: str) -> None:
    check_says(RULE, f"import torch\nx = {text}\n", "advice", "torch.OutOfMemoryError", to=to)
