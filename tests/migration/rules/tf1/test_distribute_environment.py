from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite


@pytest.mark.parametrize(
    "source",
    [
        "n = int(os.getenv('RANK_SIZE'))\n",  # not migrated: somebody else's variable
        "from npu_bridge.estimator import npu_ops\nn = int(os.getenv('RANK_SIZE', '8'))\n",
        "from npu_bridge.estimator import npu_ops\nn = os.getenv('RANK_SIZE')\nm = int(os.getenv('OTHER'))\n",
    ],
)
def test_other_variables_and_those_with_a_default_stay(source: str) -> None:
    check_noop("distribute_environment", "import os\n" + source)


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("int(os.environ.get('RANK_ID'))", "int(os.environ.get('RANK_ID', \"0\"))"),
        ("int(os.environ['RANK_SIZE'])", "int(os.environ.get('RANK_SIZE', \"1\"))"),
        ("int(os.environ.get('RANK_SIZE', '').strip())", "int(os.environ.get('RANK_SIZE', \"1\").strip())"),
        ("int(os.getenv('DEVICE_ID'))", "int(os.getenv('DEVICE_ID', \"0\"))"),
    ],
)
def test_a_default_is_written(before: str, later: str) -> None:
    head = "import os\nfrom hccl.manage.api import get_rank_id\nx = "
    check_rewrite("distribute_environment", head + before + "\n", head + later + "\n")


def test_a_variable_that_int_converts_later_gets_a_default() -> None:
    head = "import os\nfrom npu_bridge.npu_init import *\n"
    before = head + "size = os.environ.get('RANK_SIZE', '').strip()\nif int(size) > 1:\n    print(int(size))\n"
    check_rewrite("distribute_environment", before, before.replace("''", '"1"'))
