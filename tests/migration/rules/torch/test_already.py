"""Code for the card beside code for CUDA."""

from __future__ import annotations

from migration.checking import migrated


def test_a_file_with_code_for_both_is_pointed_out() -> None:
    text = "import torch\nif torch.cuda.is_available(): a()\nelif torch.npu.is_available(): b()\n"
    found = [one for one in migrated(text).findings if one.rule == "torch.already"]
    assert [(one.line, one.status) for one in found] == [(2, "advice")]
    assert not migrated(text).changed
    assert not [one for one in migrated("import torch\ntorch.npu.init()\n").findings if one.rule == "torch.already"]
