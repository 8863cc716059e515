"""Texts in torch.device(…) that a comparison contains."""

from __future__ import annotations

import pytest

from migration.checking import migrate_source


@pytest.mark.parametrize(
    "comparison",
    [
        "device == torch.device('cuda:0')",
        "str(torch.device('cuda:0')) == name",
        "device in (torch.device('cuda:0'), other)",
        "device == (torch.device('cuda:0') if fast else other)",
    ],
)
@pytest.mark.parametrize(("to", "text"), [("npu", "'npu:0'"), ("any", "accelerator.card(0)")])
def test_a_constructor_in_a_comparison_is_edited_once(comparison: str, to: str, text: str) -> None:
    after = migrate_source(f"import torch\nx = {comparison}\n", to=to).after.decode()
    assert f"x = {comparison}".replace("'cuda:0'", text) in after
