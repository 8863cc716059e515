"""RunConfig, Estimator, canned and TPU estimators, and what the command line adds to them."""

from __future__ import annotations

import pytest

from migration.checking import migrated

HEAD = "import tensorflow as tf\n"
CONFIG = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"
ESTIMATOR = "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator\n"


def test_all_estimator_rules_together_leave_a_whole_script() -> None:
    source = (
        HEAD + "c = tf.estimator.RunConfig('out', save_checkpoints_steps=9)\ne = tf.estimator.Estimator(fn, config=c)\n"
    )
    text = migrated(source).after.decode()
    assert text == (
        HEAD
        + CONFIG
        + ESTIMATOR
        + "c = NPURunConfig(model_dir='out', save_checkpoints_steps=9)\ne = NPUEstimator(fn, config=c)\n"
    )


def test_a_run_config_for_ready_made_estimators_stays_one() -> None:
    source = (
        HEAD + "config = tf.estimator.RunConfig(model_dir='x', train_distribute=s)\n"
        "model = tf.estimator.DNNClassifier([64], columns, config=config)\n"
        "other = tf.estimator.LinearRegressor(columns, config=tf.estimator.RunConfig('y'))\n"
    )
    text = migrated(source).after.decode()
    assert "config = tf.estimator.RunConfig(model_dir='x')" in text
    assert "columns, config=npu_run_config_init(run_config=config))" in text
    assert "config=npu_run_config_init(run_config=tf.estimator.RunConfig('y')))" in text
    assert "NPURunConfig" not in text


def test_one_that_goes_to_both_kinds_is_left_to_a_person_at_the_ready_made_one() -> None:
    source = (
        HEAD + "config = tf.estimator.RunConfig(model_dir='x')\nfirst = tf.estimator.Estimator(f, config=config)\n"
        "model = tf.estimator.DNNClassifier([64], columns, config=config)\n"
    )
    result = migrated(source)
    assert "config = NPURunConfig(model_dir='x')" in result.after.decode()
    assert [one.line for one in result.findings if one.status == "manual" and "of its own" in one.message] == [4]


# ---- E10, E11: what a TPU's configuration carries along


@pytest.mark.parametrize(
    ("arguments", "word"),
    [("f, config=c, **sizes", "come by **"), ("f, config=given, train_batch_size=1", "not shown")],
)
def test_arguments_of_a_tpu_estimator_that_are_not_seen_are_unresolved(arguments: str, word: str) -> None:
    result = migrated(HEAD + f"def g(given, sizes):\n    return tf.contrib.tpu.TPUEstimator({arguments})\n")
    assert any(word in one.message for one in result.findings if one.status == "unresolved")


CONVERTED = "import tensorflow as tf\nfrom npu_bridge.npu_init import npu_run_config_init\n"


@pytest.mark.parametrize(
    "text",
    [
        "c = tf.contrib.tpu.RunConfig(master='', model_dir='x')\n"
        "tf.contrib.tpu.TPUEstimator(use_tpu=False, config=npu_run_config_init(run_config=c), train_batch_size=8)\n",
        "c = npu_run_config_init(run_config=tf.estimator.tpu.RunConfig(model_dir='x'))\n"
        "tf.estimator.tpu.TPUEstimator(use_tpu=False, config=c, train_batch_size=8)\n",
        "c = tf.estimator.RunConfig('x')\ntf.estimator.Estimator(f, config=npu_run_config_init(run_config=c))\n",
        "def make(c=None):\n    c = npu_run_config_init(c)\n    return tf.estimator.Estimator(f, 'x', c)\n",
    ],
)
def test_what_the_vendors_converter_wrote_stays_with_its_run_config(text: str) -> None:
    """TPUEstimator refuses a config of another class than its own."""
    result = migrated(CONVERTED + text)
    assert not result.changed, result.after.decode()
    assert {place.state for place in result.places} == {"right"}


def test_a_run_config_that_npu_estimator_gets_is_converted_all_the_same() -> None:
    head = CONVERTED + "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator\n"
    text = "NPUEstimator(f, config=npu_run_config_init(run_config=tf.estimator.RunConfig(model_dir='x')))\n"
    assert "npu_run_config_init(run_config=NPURunConfig(model_dir='x'))" in migrated(head + text).after.decode()


def test_a_session_is_given_the_fusion_switches_too() -> None:
    text = migrated(HEAD + "s = tf.Session()\ns.run(x)\n", fusion_switch="/etc/off.cfg").after.decode()
    assert 'parameter_map["fusion_switch_file"].s = tf.compat.as_bytes("/etc/off.cfg")\n' in text
