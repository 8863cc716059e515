"""Uses of a RunConfig."""

from __future__ import annotations

import pytest

from migration.checking import migrate_source

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
    result = migrate_source(CONVERTED + text)
    assert not result.changed, result.after.decode()
    assert {location.state for location in result.places} == {"right"}


def test_a_run_config_for_npu_estimator_is_converted() -> None:
    head = CONVERTED + "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator\n"
    text = "NPUEstimator(f, config=npu_run_config_init(run_config=tf.estimator.RunConfig(model_dir='x')))\n"
    assert "npu_run_config_init(run_config=NPURunConfig(model_dir='x'))" in migrate_source(head + text).after.decode()
