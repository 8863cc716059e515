from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import viaduct
from migration.checking import check_noop, check_rewrite, migrate_source

MAIN = "if __name__ == '__main__':\n    main()\n"
NPU = "import torch_npu\nfrom torch_npu.contrib import transfer_to_npu\n"
MLU = "import torch_mlu\nimport torch_mlu.utils.gpu_migration\n"


@pytest.mark.parametrize(
    "source",
    [
        "import numpy\nprint(numpy.zeros(1))\n",
        "import torch\n" + NPU + "torch.zeros(1).cuda()\n",
        "import torch\nimport torch_npu\nimport torch_npu.contrib.transfer_to_npu\ntorch.zeros(1).cuda()\n",
    ],
)
def test_a_script_without_torch_or_patched_before_is_left_alone(source: str) -> None:
    check_noop("patch_mode", source, mode="patch")


def test_the_patch_is_all_that_is_written() -> None:
    source = (
        "import torch\nimport torch.distributed as dist\nx = torch.zeros(1).cuda()\ndist.init_process_group('nccl')\n"
    )
    after = migrate_source(source, mode="patch").after.decode()
    assert after == source.replace("import torch\n", "import torch\n" + NPU, 1)


@pytest.mark.parametrize(("to", "lines"), [("npu", NPU), ("mlu", MLU)])
def test_the_patch_follows_torch_and_precedes_the_projects_imports(to: str, lines: str) -> None:
    head = '"""Train."""\nfrom __future__ import annotations\nimport os\nimport torch  # first\n'
    script = "from model import Net\n" + MAIN
    check_rewrite("patch_mode", head + script, head + lines + script, to=to, mode="patch")


def test_an_import_in_a_comment_is_no_patch() -> None:
    source = "# from torch_npu.contrib import transfer_to_npu\nimport torch\nx = torch.zeros(1).cuda()\n"
    after = migrate_source(source, mode="patch").after.decode()
    assert after == source.replace("import torch\n", "import torch\n" + NPU, 1)


def test_an_imported_plug_in_is_not_imported_twice() -> None:
    head = "import torch\nimport torch_npu\n"
    after = head + "from torch_npu.contrib import transfer_to_npu\n" + MAIN
    check_rewrite("patch_mode", head + MAIN, after, mode="patch")


def test_only_the_started_script_gets_the_patch() -> None:
    model = "import torch\nnet = torch.nn.Linear(1, 1)\nprint(net)\n"
    main = "from model import net\n" + MAIN
    others = {"main.py": main}
    assert not migrate_source(model, "patch_mode", path="model.py", others=others, mode="patch").changed
    result = migrate_source(main, "patch_mode", path="main.py", others={"model.py": model}, mode="patch")
    assert result.after.decode() == "import torch\n" + NPU + main


def test_mode_patch_contradicts_to_any_rewriting_flags_and_tensorflow(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.zeros(1).cuda()\n")
    refused = viaduct("migrate", str(script), "--mode", "patch", "--to", "any")
    assert refused.returncode == 2
    assert "one vendor's" in refused.stderr
    refused = viaduct("migrate", str(script), "--mode", "patch", "--data-parallel", "ddp")
    assert refused.returncode == 2
    assert "rewrites nothing" in refused.stderr
    script.write_text("import tensorflow as tf\n")
    refused = viaduct("migrate", str(script), "--mode", "patch")
    assert refused.returncode == 2
    assert "for PyTorch" in refused.stderr


def test_the_command_writes_the_import_and_lists_what_is_left(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nif torch.zeros(1).device.type == 'cuda':\n    torch.nn.DataParallel(net)\n")
    done = viaduct("migrate", str(script), "--mode", "patch", "--in-place")
    assert done.returncode == 0, done.stderr
    assert script.read_text().startswith("import torch\n" + NPU + "if torch.zeros(1).device.type == 'cuda':\n")
    assert "torch.patch_limits" in done.stdout
    assert "torch.data_parallel" in done.stdout
