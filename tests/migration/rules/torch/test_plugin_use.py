"""Signs that a file uses the card."""

from __future__ import annotations

from migration.checking import check_noop, check_rewrite, migrate_source

RULE = "torch.plugin"


def test_a_file_without_device_code_gets_no_import() -> None:
    check_noop(RULE, "import torch\nx = torch.zeros(3)\n")


def test_a_device_in_a_comment_or_docstring_is_no_device_code() -> None:
    check_noop(RULE, '"""npu"""\nimport torch\n"npu"\n# torch.npu\nx = torch.zeros(3)\n')


def test_a_file_of_a_project_that_was_migrated_before_is_left_alone() -> None:
    text = "import torch\n\n\ndef move(x):\n    return x.npu()\n"
    others = {"main.py": "import torch\nimport torch_npu\nimport helper\n"}
    assert not migrate_source(text, RULE, "helper.py", others).changed
    commented = {"main.py": "import torch\n# import torch_npu\nimport helper\n"}
    assert b"import torch_npu\n" in migrate_source(text, RULE, "helper.py", commented).after


def test_the_import_accompanies_any_rule_that_writes_device_code() -> None:
    after = "import torch\nimport torch_npu\ntorch.npu.synchronize()\n"
    check_rewrite("torch.cuda_api", "import torch\ntorch.cuda.synchronize()\n", after)
