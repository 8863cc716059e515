from __future__ import annotations

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\nfrom npu_bridge.estimator import npu_ops\nop = npu_ops.initialize_system()\n"


def test_a_shutdown_anywhere_in_the_project_is_enough() -> None:
    check_noop("lifecycle_shutdown", HEAD + "end = npu_ops.shutdown_system()\n")
    other = "import tensorflow\nfrom npu_bridge.estimator import npu_ops\nnpu_ops.shutdown_system()\n"
    check_noop("lifecycle_shutdown", HEAD, others={"end.py": other})


def test_a_missing_shutdown_is_advice() -> None:
    check_says("lifecycle_shutdown", HEAD, "advice", "shut down")
