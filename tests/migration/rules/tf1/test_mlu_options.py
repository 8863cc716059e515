from __future__ import annotations

from migration.checking import check_rewrite, check_says

HEAD = "import tensorflow as tf\n"


def test_the_visible_device() -> None:
    before = (
        HEAD + "c = tf.ConfigProto()\nc.gpu_options.visible_device_list = str(i)\nc.gpu_options.allow_growth = True\n"
    )
    check_rewrite("mlu_options", before, before.replace("gpu_options.visible", "mlu_options.visible"), to="mlu")
    check_says("mlu_options", HEAD + "o = tf.GPUOptions(visible_device_list='0')\n", "manual", "mlu_options", to="mlu")
    check_says(
        "mlu_options", HEAD + "c = tf.ConfigProto(device_count={'GPU': 0})\n", "advice", "device_count", to="mlu"
    )
