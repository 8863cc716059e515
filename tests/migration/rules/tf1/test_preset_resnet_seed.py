from __future__ import annotations

from migration.checking import check_noop, check_rewrite

HEAD = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"


def test_without_the_preset_and_for_other_configurations_nothing_is_set() -> None:
    source = HEAD + "import tensorflow as tf\nmine.NPURunConfig()\ntf.estimator.RunConfig()\n"
    check_noop("preset_resnet_seed", source, preset="resnet-seed")
    check_noop("", HEAD + "config = NPURunConfig(model_dir='out')\n")


def test_what_the_script_sets_stays() -> None:
    before = HEAD + "config = NPURunConfig(iterations_per_loop=10)\n"
    after = HEAD + "config = NPURunConfig(iterations_per_loop=10, hcom_parallel=True, enable_data_pre_proc=True)\n"
    check_rewrite("preset_resnet_seed", before, after, preset="resnet-seed")
