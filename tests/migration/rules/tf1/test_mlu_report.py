from __future__ import annotations

from migration.checking import check_says

HEAD = "import tensorflow as tf\n"


def test_functions_for_gpus_are_reported() -> None:
    check_says("mlu_report", HEAD + "y = tf.contrib.nccl.all_sum(x)\n", "manual", "NVIDIA", to="mlu")
    check_says("mlu_report", HEAD + "if tf.test.is_gpu_available():\n    pass\n", "advice", "MLU", to="mlu")
