from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

RULE = "session_gpu_options"


def test_other_variables_and_options_get_no_advice() -> None:
    check_noop(RULE, "import os\nos.environ['HOME'] = 'x'\nos.environ.setdefault('A', 'b')\n")
    check_noop(RULE, "environ = {}\nenviron['CUDA_VISIBLE_DEVICES'] = '0'\nprint('gpu_options')\n")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("config.gpu_options.allow_growth = True", "allow_growth"),
        ("config.gpu_options.visible_device_list = '0'", "visible_device_list"),
        ("o = tf.GPUOptions(per_process_gpu_memory_fraction=0.5)", "per_process_gpu_memory_fraction"),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "ASCEND_DEVICE_ID"),
        ("os.environ.setdefault('TF_XLA_FLAGS', '--tf_xla_auto_jit=2')", "XLA"),
        ("os.environ['TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE'] = '1'", "--precision"),
    ],
)
def test_settings_without_effect_get_advice(line: str, word: str) -> None:
    head = "import os\nimport tensorflow as tf\nconfig = tf.ConfigProto()\n"
    check_says(RULE, f"{head}{line}\n", "advice", word)
