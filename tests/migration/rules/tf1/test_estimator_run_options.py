from __future__ import annotations

from migration.checking import migrate_source

HEAD = "import tensorflow as tf\n"
CONFIG = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"


def test_options_are_added_once_and_do_not_replace_what_is_there() -> None:
    source = HEAD + CONFIG + "c = NPURunConfig(precision_mode='force_fp32')\n"
    text = migrate_source(source, "estimator_run_options", loop=10, precision="allow_mix_precision").after.decode()
    assert "NPURunConfig(precision_mode='force_fp32', iterations_per_loop=10)" in text


def test_newer_precision_modes_use_the_newer_keyword() -> None:
    text = migrate_source(HEAD + CONFIG + "c = NPURunConfig()\n", "estimator_run_options", precision="mixed_float16")
    assert 'NPURunConfig(precision_mode_v2="mixed_float16")' in text.after.decode()


def test_profiling_and_dump_configurations_are_imported() -> None:
    result = migrate_source(
        HEAD + CONFIG + "c = NPURunConfig()\n", "estimator_run_options", profile="/p", dump="/d", dump_step="0|5"
    )
    text = result.after.decode()
    assert "import ProfilingConfig" in text
    assert "import DumpConfig" in text
    assert "dump_config=DumpConfig(enable_dump=True, dump_path='/d', dump_step='0|5', dump_mode=\"all\")" in text


def test_a_fusion_switch_file_is_set_unless_the_script_has_one() -> None:
    text = migrate_source(HEAD + CONFIG + "c = NPURunConfig()\n", "estimator_run_options", fusion_switch="/etc/off.cfg")
    assert "c = NPURunConfig(fusion_switch_file='/etc/off.cfg')\n" in text.after.decode()
    own = HEAD + CONFIG + "c = NPURunConfig(fusion_switch_file='mine.cfg')\n"
    assert migrate_source(own, "estimator_run_options", fusion_switch="/etc/off.cfg").after.decode() == own


def test_a_config_with_the_older_or_newer_precision_gets_no_second_one() -> None:
    source = HEAD + CONFIG + "c = NPURunConfig(precision_mode_v2='fp16')\n"
    assert migrate_source(source, "estimator_run_options", precision="force_fp32").after.decode() == source


def test_the_config_that_is_added_to_an_estimator_gets_the_options_too() -> None:
    source = HEAD + "e = tf.estimator.Estimator(model_fn)\nk = tf.keras.estimator.model_to_estimator(model)\n"
    after = migrate_source(source, loop=10, precision="force_fp32").after.decode()
    assert after.count('NPURunConfig(iterations_per_loop=10, precision_mode="force_fp32")') == 2
