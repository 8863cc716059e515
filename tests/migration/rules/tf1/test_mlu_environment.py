from __future__ import annotations

import pytest

from migration.checking import check_rewrite


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("os.environ['TF_GPU_THREAD_COUNT'] = '2'", "os.environ['TF_MLU_THREAD_COUNT'] = '2'"),
        ("os.environ.setdefault('CUDA_VISIBLE_DEVICES', '0')", "os.environ.setdefault('MLU_VISIBLE_DEVICES', '0')"),
        ("x = os.getenv('TF_GPU_THREAD_MODE')", "x = os.getenv('TF_MLU_THREAD_MODE')"),
    ],
)
def test_variables_for_gpus_become_those_for_mlus(before: str, later: str) -> None:
    check_rewrite("mlu_environment", f"import os\n{before}\n", f"import os\n{later}\n", to="mlu")
