"""Code for the card beside code for CUDA."""

from __future__ import annotations

from migration.checking import migrate_source


def test_a_file_with_code_for_both_gets_advice() -> None:
    text = "import torch\nif torch.cuda.is_available(): a()\nelif torch.npu.is_available(): b()\n"
    found = [finding for finding in migrate_source(text).findings if finding.rule == "torch.already"]
    assert [(finding.line, finding.status) for finding in found] == [(2, "advice")]
    assert not migrate_source(text).changed
    assert not [
        finding
        for finding in migrate_source("import torch\ntorch.npu.init()\n").findings
        if finding.rule == "torch.already"
    ]
