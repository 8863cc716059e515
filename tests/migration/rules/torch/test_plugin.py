"""The import of torch_npu or torch_mlu: after torch, once, and only where the card is used."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, migrate_source

RULE = "torch.plugin"


@pytest.mark.parametrize(
    "line",
    [
        "import torch_npu",
        "from torch_npu.contrib import transfer_to_npu",
        "import torch_npu.npu as npu",
        "try:\n    import torch_npu\nexcept ImportError:\n    torch_npu = None",
    ],
)
def test_an_existing_import_is_enough(line: str) -> None:
    check_noop(RULE, f"import torch\n{line}\ntorch.npu.set_device(0)\n")


def test_a_device_text_before_torch_needs_no_earlier_import() -> None:
    check_noop(RULE, "kind = 'npu'\nimport torch\nimport torch_npu\ntorch.npu.init()\n")


def test_an_import_that_does_not_bind_the_name_is_not_enough_for_it() -> None:
    before = "import torch\nfrom torch_npu.npu import amp\ntorch_npu.profiler.profile()\n"
    check_rewrite(RULE, before, before.replace("torch\n", "torch\nimport torch_npu\n", 1))


def test_an_import_in_one_function_is_not_enough_for_other_code() -> None:
    before = "import torch\ndef f():\n    from torch_npu.npu import amp\ntorch.npu.set_device(0)\n"
    check_rewrite(RULE, before, before.replace("torch\n", "torch\nimport torch_npu\n", 1))


def test_an_import_that_comes_too_late_is_not_enough() -> None:
    before = "import torch\ntorch.npu.set_device(0)\nfrom torch_npu.npu import amp\n"
    check_rewrite(RULE, before, before.replace("torch\n", "torch\nimport torch_npu\n", 1))


def test_a_file_without_torch_gets_no_import() -> None:
    check_noop(RULE, "def move(x):\n    return x.npu()\n")


def test_the_import_follows_the_first_import_of_torch() -> None:
    before = "import os\nimport torch  # first\nimport torch.nn as nn\nimport numpy\ntorch.npu.set_device(0)\n"
    after = "import os\nimport torch  # first\nimport torch_npu\nimport torch.nn as nn\nimport numpy\n"
    check_rewrite(RULE, before, after + "torch.npu.set_device(0)\n")


def test_an_import_of_torch_in_a_function_is_followed_there() -> None:
    before = "def go():\n    import torch\n    torch.npu.set_device(0)\n"
    check_rewrite(RULE, before, "def go():\n    import torch\n    import torch_npu\n    torch.npu.set_device(0)\n")


def test_a_function_without_device_code_gets_no_import() -> None:
    before = (
        "def f():\n    import torch\n    return torch.zeros(1).npu()\ndef g():\n    import torch\n    return torch.e\n"
    )
    check_rewrite(RULE, before, before.replace("torch\n", "torch\n    import torch_npu\n", 1))


def test_a_number_on_the_mlu_gets_the_import_in_its_function() -> None:
    before = (
        "def f():\n    import torch\n    return torch.zeros(1).mlu()\ndef g(x):\n    import torch\n    return x.to(0)\n"
    )
    after = before.replace("import torch\n", "import torch\n    import torch_mlu\n")
    assert migrate_source(before, to="mlu").after.decode() == after


def test_a_function_within_one_that_imports_it_needs_no_import() -> None:
    before = (
        "def f():\n    import torch\n    def g(x):\n        import torch.nn as nn\n        return nn.ReLU()(x.npu())\n"
        "    return g(torch.zeros(1).npu())\n"
    )
    check_rewrite(RULE, before, before.replace("torch\n", "torch\n    import torch_npu\n", 1))


def test_each_function_that_imports_torch_gets_an_import() -> None:
    before = (
        "def f():\n    import torch\n    return torch.device('cuda')\n"
        "def g():\n    import torch as th\n    return th.zeros(1).cuda()\n"
    )
    after = (
        "def f():\n    import torch\n    import torch_npu\n    return torch.device('npu')\n"
        "def g():\n    import torch as th\n    import torch_npu\n    return th.zeros(1).npu()\n"
    )
    assert migrate_source(before).after.decode() == after


def test_an_import_for_type_checkers_does_not_count() -> None:
    before = "if TYPE_CHECKING:\n    import torch\nfrom torch import nn\nx = nn.Linear(1, 1).npu()\n"
    check_rewrite(RULE, before, before.replace("nn\n", "nn\nimport torch_npu\n", 1))


def test_an_import_of_torch_in_a_try_is_followed_there() -> None:
    before = "try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.npu.init()\n"
    check_rewrite(RULE, before, before.replace("torch\n", "torch\n    import torch_npu\n", 1))


def test_an_import_among_statements_on_one_line_is_followed() -> None:
    check_rewrite(RULE, "import torch; torch.npu.init()\n", "import torch; import torch_npu; torch.npu.init()\n")


def test_without_torch_the_import_follows_torchvision() -> None:
    before = "from torchvision import models\nnet = models.resnet18().mlu()\n"
    check_rewrite(RULE, before, before.replace("models\n", "models\nimport torch_mlu\n", 1), to="mlu")


def test_crlf_line_ends_are_kept() -> None:
    result = migrate_source("import torch\r\ntorch.cuda.synchronize()\r\n")
    assert result.after == b"import torch\r\nimport torch_npu\r\ntorch.npu.synchronize()\r\n"


DONE = """\
import torch
import torch_npu
torch.npu.set_device(0)
x = torch.zeros(3, device="npu:0").npu()
print(x.is_npu)
"""


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_a_script_that_was_migrated_before_is_recognised(to: str) -> None:
    assert not migrate_source(DONE.replace("npu", to), to=to).changed


def test_the_run_time_patch_counts_as_an_import() -> None:
    before = "import torch\nimport torch_npu\nfrom torch_npu.contrib import transfer_to_npu\ntorch.cuda.synchronize()\n"
    assert migrate_source(before).after.decode() == before.replace("torch.cuda", "torch.npu")
