"""Scripts that count the GPUs that TensorFlow lists."""

from __future__ import annotations

import pytest

from migration.checking import check_says

HEAD = "import tensorflow as tf\nfrom tensorflow.python.client import device_lib\n"
RULES = [("npu", "unsupported_api"), ("mlu", "mlu_report")]


@pytest.mark.parametrize(("to", "rule"), RULES)
@pytest.mark.parametrize(
    "text",
    [
        "print(device_lib.list_local_devices())\n",
        "found = device_lib.list_local_devices()\nprint(found)\n",
        "gpus = tf.config.experimental.list_physical_devices('GPU')\nfor gpu in gpus:\n    print(gpu)\n",
        "use = tf.test.is_gpu_available()\n",
    ],
)
def test_devices_that_are_only_printed_are_not_counted(text: str, to: str, rule: str) -> None:
    check_says(rule, HEAD + text, "advice", "GPU", to=to)


@pytest.mark.parametrize(("to", "rule"), RULES)
@pytest.mark.parametrize(
    "text",
    [
        "names = [x.name for x in device_lib.list_local_devices() if x.device_type == 'GPU']\n",
        "found = device_lib.list_local_devices()\ncount = sum(x.device_type == 'GPU' for x in found)\n",
        "towers = len(tf.config.experimental.list_physical_devices('GPU'))\n",
        "gpus = tf.config.list_physical_devices('GPU')\nbatch = 32 * len(gpus)\n",
    ],
)
def test_devices_that_are_counted_need_manual_review(text: str, to: str, rule: str) -> None:
    check_says(rule, HEAD + text, "manual", "GPU", to=to)
