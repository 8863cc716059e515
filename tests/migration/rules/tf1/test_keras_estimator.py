from __future__ import annotations

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

RULE = "keras_estimator"
HEAD = "import tensorflow as tf\n"
MINE = "from npu_bridge.estimator.npu import keras_to_npu\n"
CONFIG = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"


def test_a_function_of_the_project_with_this_name_is_left_alone() -> None:
    check_noop(RULE, "from mylib import model_to_estimator\nmodel_to_estimator(m)\n")


def test_unpacked_positional_arguments_need_manual_review() -> None:
    check_says(RULE, HEAD + "tf.keras.estimator.model_to_estimator(*args)\n", "manual", "unpacked")


def test_positional_arguments_after_the_fourth_are_named() -> None:
    check_rewrite(
        RULE,
        HEAD + CONFIG + "e = tf.keras.estimator.model_to_estimator(m, None, None, 'd', NPURunConfig(), 'saver')\n",
        HEAD + CONFIG + MINE + "e = keras_to_npu.model_to_npu_estimator("
        "m, None, None, 'd', config=NPURunConfig(), checkpoint_format='saver')\n",
    )


def test_a_config_of_unknown_kind_needs_manual_review() -> None:
    result = migrate_source(HEAD + "def f(c):\n    return tf.keras.estimator.model_to_estimator(m, config=c)\n", RULE)
    assert any(finding.status == "manual" and "NPURunConfig" in finding.message for finding in result.findings)


def test_with_the_rule_for_run_config_nothing_needs_review() -> None:
    text = HEAD + "c = tf.estimator.RunConfig('d')\ne = tf.keras.estimator.model_to_estimator(m, config=c)\n"
    result = migrate_source(text)
    assert "e = keras_to_npu.model_to_npu_estimator(m, config=c)\n" in result.after.decode()
    assert not [finding for finding in result.findings if finding.status == "manual"]
