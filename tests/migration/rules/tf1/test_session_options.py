from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

HEAD = "import tensorflow as tf\n"

RULE = "session_options"
NPU = """
import tensorflow as tf
config = tf.ConfigProto()
op = config.graph_options.rewrite_options.custom_optimizers.add()
op.name = "NpuOptimizer"
op.parameter_map["use_off_line"].b = True  # on the device
{}sess = tf.Session(config=config)
"""


def test_keys_that_are_set_stay_as_they_are() -> None:
    text = NPU.format('op.parameter_map["precision_mode"].s = tf.compat.as_bytes("force_fp16")\n')
    check_noop(RULE, text, precision="allow_mix_precision")
    both = NPU.format('op.parameter_map["precision_mode_v2"].s = tf.compat.as_bytes("fp16")\n')
    check_noop(RULE, both, precision="allow_mix_precision")


@pytest.mark.parametrize(
    ("present", "asked"), [("precision_mode_v2", "allow_mix_precision"), ("precision_mode", "mixed_float16")]
)
def test_a_set_precision_gets_no_second_one(present: str, asked: str) -> None:
    text = NPU.format(f'op.parameter_map["{present}"].s = tf.compat.as_bytes("fp16")\n')
    after = migrate_source(text, RULE, precision=asked, fusion_switch="/f.cfg").after.decode()
    assert "fusion_switch_file" in after
    assert after.count("precision_mode") == 1


def test_nothing_is_added_unless_requested() -> None:
    assert migrate_source(NPU.format(""), style="explicit").after.decode().count("parameter_map") == 1


def test_keys_follow_the_command_line() -> None:
    result = migrate_source(
        NPU.format(""), RULE, precision="mixed_float16", profile="/tmp/p", dump="/d", dump_step="0|5"
    )
    assert result.after.decode() == NPU.format(
        'op.parameter_map["precision_mode_v2"].s = tf.compat.as_bytes("mixed_float16")\n'
        'op.parameter_map["profiling_mode"].b = True\n'
        'op.parameter_map["profiling_options"].s = tf.compat.as_bytes(\'{"output": "/tmp/p", '
        '"training_trace": "on", "fp_point": "", "bp_point": ""}\')\n'
        'op.parameter_map["enable_dump"].b = True\n'
        'op.parameter_map["dump_path"].s = tf.compat.as_bytes("/d")\n'
        'op.parameter_map["dump_step"].s = tf.compat.as_bytes("0|5")\n'
        'op.parameter_map["dump_mode"].s = tf.compat.as_bytes("all")\n'
    )


def test_a_plain_session_gets_config_and_options() -> None:
    text = "from tensorflow import Session\ns = Session()\ns.run(a)\n"
    after = migrate_source(text, precision="allow_mix_precision").after.decode()
    assert '.parameter_map["precision_mode"].s = "allow_mix_precision".encode()\n' in after


def test_vendor_helpers_need_manual_review() -> None:
    text = "import tensorflow as tf\nfrom npu_bridge.npu_init import *\ns = tf.Session(config=npu_config_proto())\n"
    check_says(RULE, text, "manual", "precision_mode", precision="force_fp32")
    canned = migrate_source("import tensorflow as tf\ne = tf.estimator.DNNClassifier([64], columns)\n", loop=10)
    assert any("takes no iterations_per_loop" in finding.message for finding in canned.findings)


def test_loops_of_a_session_get_advice() -> None:
    check_says(RULE, NPU.format(""), "advice", "set_iteration_per_loop", loop=100)


def test_a_session_gets_the_fusion_switch_file() -> None:
    text = migrate_source(HEAD + "s = tf.Session()\ns.run(x)\n", fusion_switch="/etc/off.cfg").after.decode()
    assert 'parameter_map["fusion_switch_file"].s = tf.compat.as_bytes("/etc/off.cfg")\n' in text
