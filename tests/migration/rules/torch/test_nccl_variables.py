"""Environment variables for NCCL and CUDA."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import os\nimport torch\n"


@pytest.mark.parametrize(
    "source",
    [
        "print('NCCL_DEBUG')\n",
        "os.environ['NCCL'] = '1'\n",
        "os.environ['HCCL_IF_IP'] = 'x'\n",
        "x = {'NCCL_DEBUG': 1}\n",
    ],
)
def test_other_variables_are_not_reported(source: str) -> None:
    check_noop("nccl_variables", HEAD + source)


def test_a_variable_of_nccl_is_reported_with_the_nearest_ones() -> None:
    source = HEAD + "os.environ['NCCL_SOCKET_IFNAME'] = 'eth0'\n"
    check_says("nccl_variables", source, "manual", "HCCL_CONNECT_TIMEOUT")
    check_says("nccl_variables", source, "manual", "CNCL_BLOCKING_WAIT", to="mlu")


def test_other_variables_of_cuda_get_advice() -> None:
    check_says(
        "nccl_variables", HEAD + "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n", "advice", "ASCEND_LAUNCH_BLOCKING"
    )
    source = HEAD + "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'x'\n"
    check_says("nccl_variables", source, "advice", "PYTORCH_MLU_ALLOC_CONF", to="mlu")
