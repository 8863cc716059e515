"""Strings that reach a backend argument."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_rewrite, migrate_source

HEAD = "import torch.distributed as dist\n"


DONE = "import torch.distributed as dist\nimport torch_npu\n"


def test_the_backend_is_edited_where_its_string_is_written() -> None:
    before = """\
        import os
        import torch.distributed as dist
        BACKEND = os.environ.get("BACKEND", "nccl")
        settings = dict(backend="nccl", rank=0)
        other = {"dist": "nccl"}
        def setup(rank, backend="nccl"):
            dist.init_process_group(backend, rank=rank)
        class Trainer:
            def __init__(self):
                self.backend = "nccl"
            def start(self):
                dist.init_process_group(self.backend)
        dist.init_process_group(BACKEND)
        dist.init_process_group(**settings)
        dist.init_process_group(other["dist"])
        """
    result = migrate_source(dedent(before), "backend")
    after = result.after.decode()
    assert "nccl" not in after
    assert after.count("hccl") == 5
    assert not [finding for finding in result.findings if finding.status == "manual"]


def test_a_backend_that_callers_pass_is_edited() -> None:
    check_rewrite(
        "backend",
        HEAD + "def setup(rank, kind):\n    dist.init_process_group(kind)\nsetup(0, 'nccl')\nsetup(1, kind='gloo')\n",
        DONE + "def setup(rank, kind):\n    dist.init_process_group(kind)\nsetup(0, 'hccl')\nsetup(1, kind='gloo')\n",
    )


def test_a_backend_passed_to_another_file_is_edited() -> None:
    result = migrate_source(
        "import torch\nfrom helpers import setup\nsetup(backend='nccl')\n",
        "backend",
        others={
            "helpers.py": "import torch.distributed as dist\ndef setup(backend): dist.init_process_group(backend)\n"
        },
    )
    assert "setup(backend='hccl')" in result.after.decode()


@pytest.mark.parametrize("holder", ["argparse.Namespace", "types.SimpleNamespace"])
def test_a_backend_in_settings_is_edited(holder: str) -> None:
    source = f"import torch, {holder.partition('.')[0]}\nargs = {holder}(dist_backend='nccl', lr=1)\n"
    assert "dist_backend='hccl', lr=1" in migrate_source(source).after.decode()
