"""Scripts whose ranks set no device."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

HEAD = "import os\nimport torch\nimport torch.distributed as dist\n"
INIT = "dist.init_process_group('hccl')\n"
RANK = "local_rank = int(os.environ['LOCAL_RANK'])\n"


@pytest.mark.parametrize("source", [INIT, RANK, RANK + INIT + "torch.npu.set_device(local_rank)\n"])
def test_a_script_that_sets_a_device_or_reads_no_rank_gets_no_advice(source: str) -> None:
    check_noop("local_rank", HEAD + source)


def test_a_device_set_through_the_helper_counts() -> None:
    output = migrate_source(
        HEAD + RANK + INIT.replace("hccl", "nccl") + "torch.cuda.set_device(local_rank)\n", to="any"
    ).findings
    assert not any(finding.rule == "torch.local_rank" for finding in output)


def test_a_script_that_reads_its_rank_and_sets_no_device_gets_advice() -> None:
    check_says("local_rank", HEAD + RANK + INIT, "advice", "torch.npu.set_device(local_rank)")
    check_says("local_rank", HEAD + RANK + INIT, "advice", "torch.accelerator.set_device_index", to="any")
