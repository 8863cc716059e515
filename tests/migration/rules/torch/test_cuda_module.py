"""torch.cuda as a value."""

from __future__ import annotations

from migration.checking import check_noop, check_rewrite, migrate_source

RULE = "torch.cuda_module"


def test_a_call_is_no_value() -> None:
    check_noop(RULE, "import torch\ntorch.cuda.synchronize()\nfrom numba import cuda\nf(cuda)\n")


def test_the_module_is_renamed_and_gets_advice() -> None:
    before = "import torch\nmodule = torch.cuda\nf(torch.cuda)\n"
    after = "import torch\nimport torch_npu\nmodule = torch.npu\nf(torch.npu)\n"
    result = check_rewrite(RULE, before, after)
    assert [finding.line for finding in result.findings if finding.status == "advice"] == [2, 3]


def test_calls_on_the_alias_are_the_cards() -> None:
    before = "import torch\nmodule = torch.cuda\nmodule.synchronize()\n"
    result = migrate_source(before)
    assert result.after.decode() == "import torch\nimport torch_npu\nmodule = torch.npu\nmodule.synchronize()\n"
