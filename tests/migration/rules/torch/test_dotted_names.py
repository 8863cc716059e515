"""Dotted names, of which only the parts that differ are edited."""

from __future__ import annotations

from migration.checking import check_rewrite, check_says

HEAD = "import torch\nimport torch_npu\n"


def test_line_breaks_and_comments_in_a_name_stay() -> None:
    before = "stream = (torch  # of PyTorch\n    .cuda\n    .Stream())\n"
    check_rewrite("cuda_api", HEAD + before, HEAD + before.replace(".cuda", ".npu"))


def test_a_name_in_an_f_string_is_replaced_in_its_text() -> None:
    before = "print(f'{torch.cuda.device_count()} of {torch.cuda.device_count()} cards')\n"
    check_rewrite("cuda_api", HEAD + before, HEAD + before.replace(".cuda.", ".npu."))


def test_a_name_that_an_f_string_also_has_as_text_needs_manual_review() -> None:
    source = "print(f'torch.cuda.device_count is {torch.cuda.device_count()}')\n"
    check_says("cuda_api", HEAD + source, "manual", "cannot be edited safely")
