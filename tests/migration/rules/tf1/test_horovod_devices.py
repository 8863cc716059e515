from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("config.gpu_options.visible_device_list = str(hvd.local_rank())\nx = 1\n", "x = 1\n"),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = str(hvd.local_rank())\nx = 1\n", "import os\nx = 1\n"),
        (
            "o = tf.GPUOptions(allow_growth=True, visible_device_list=str(hvd.local_rank()))\n",
            "o = tf.GPUOptions(allow_growth=True)\n",
        ),
        ("tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')\nx = 1\n", "x = 1\n"),
    ],
)
def test_the_choice_of_a_gpu_is_removed(before: str, later: str) -> None:
    check_rewrite("horovod_devices", HEAD + before, HEAD + later)


def test_devices_that_do_not_come_from_horovod_stay() -> None:
    check_noop("horovod_devices", HEAD + "config.gpu_options.visible_device_list = '0'\nlocal_rank = 1\n")
