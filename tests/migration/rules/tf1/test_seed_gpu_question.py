from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, migrate_source

HEAD = "import tensorflow as tf\n"
LIST = "tf.config.list_physical_devices('GPU')"


@pytest.mark.parametrize(
    "source",
    [
        f"gpus = {LIST}\nfor gpu in gpus:\n    set_up(gpu)\n",
        f"n = len({LIST})\n",
        f"print({LIST})\n",
        f"x = {LIST} or ['cpu']\n",
        "if tf.config.list_physical_devices('TPU'):\n    pass\n",
        "if tf.config.list_physical_devices():\n    pass\n",
        "if tf.config.list_physical_devices(kind):\n    pass\n",
        f"from mine import tf\nif {LIST}:\n    pass\n",
    ],
)
def test_a_list_used_for_more_than_its_truth_stays(source: str) -> None:
    check_noop("seed_gpu_question", HEAD + source, preset="resnet-seed")


@pytest.mark.parametrize("use", ["f = 'a' if {} else 'b'", "if not {}:\n    pass", "ok = bool({})", "assert {}"])
@pytest.mark.parametrize(
    "listed", [LIST, "tf.config.experimental.list_physical_devices('GPU')", LIST.replace("'GPU'", "device_type='GPU'")]
)
def test_a_test_of_the_list_becomes_a_test_of_the_build(use: str, listed: str) -> None:
    after = HEAD + use.format("tf.test.is_built_with_cuda()") + "\n"
    check_rewrite("seed_gpu_question", HEAD + use.format(listed) + "\n", after, preset="resnet-seed")


def test_nothing_is_changed_without_the_preset() -> None:
    source = HEAD + f"f = 'a' if {LIST} else 'b'\n"
    assert migrate_source(source).after.decode() == source
