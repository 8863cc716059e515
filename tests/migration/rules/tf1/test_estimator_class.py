from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import tensorflow as tf\n"
CONFIG = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"
ESTIMATOR = "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator\n"


def list_messages(result: object, status: str) -> list[str]:
    return [finding.message for finding in result.findings if finding.status == status]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "source",
    [
        "from sklearn.base import Estimator\nEstimator(1)\n",
        HEAD + "tf.estimator.EstimatorSpec(mode, loss=loss)\n",
        HEAD + "assert isinstance(e, tf.estimator.Estimator)\n",
    ],
)
def test_other_estimators_are_left_alone(source: str) -> None:
    check_noop("estimator_class", source)


def test_a_config_is_added_where_there_is_none() -> None:
    check_rewrite(
        "estimator_class",
        HEAD + "e = tf.estimator.Estimator(fn, model_dir=FLAGS.dir)\n",
        HEAD
        + CONFIG
        + ESTIMATOR
        + "e = NPUEstimator(fn, model_dir=FLAGS.dir, config=NPURunConfig(model_dir=FLAGS.dir))\n",
    )
    text = migrate_source(HEAD + "e = tf.estimator.Estimator(fn, None, None)\n", "estimator_class").after.decode()
    assert "NPUEstimator(fn, None, NPURunConfig())" in text


def test_a_config_from_elsewhere_is_followed_through_the_project() -> None:
    source = HEAD + "from setup import make_config\ne = tf.estimator.Estimator(fn, config=make_config())\n"
    other = HEAD + CONFIG + "def make_config():\n    return NPURunConfig(model_dir='a')\n"
    assert not list_messages(migrate_source(source, "estimator_class", others={"setup.py": other}), "manual")
    assert list_messages(migrate_source(source, "estimator_class"), "manual")


def test_directories_that_differ_are_reported() -> None:
    source = (
        HEAD + CONFIG + "c = NPURunConfig(model_dir='a')\ne = tf.estimator.Estimator(fn, model_dir={!r}, config=c)\n"
    )
    assert list_messages(migrate_source(source.format("b"), "estimator_class"), "manual")
    assert not list_messages(migrate_source(source.format("a"), "estimator_class"), "manual")


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("import functools\nmake = functools.partial(tf.estimator.Estimator, model_fn=f)\n", "passed on"),
        ("classes = {'a': tf.estimator.Estimator}\n", "passed on"),
        ("e = tf.contrib.learn.Estimator(f)\n", "tf.estimator first"),
        ("from tensorflow.contrib import learn\ne = learn.DNNClassifier([1])\n", "tf.estimator first"),
    ],
)
def test_estimators_that_cannot_be_converted_are_reported(source: str, word: str) -> None:
    result = check_says("estimator_class", HEAD + source, "manual", word)
    assert result.findings[0].risk == "high"


def test_isinstance_and_annotations_stay() -> None:
    source = "def f(x: tf.estimator.Estimator) -> tf.estimator.Estimator:\n    isinstance(x, tf.estimator.Estimator)\n"
    check_noop("estimator_class", HEAD + source)


def test_all_estimator_rules_together_give_a_complete_script() -> None:
    source = (
        HEAD + "c = tf.estimator.RunConfig('out', save_checkpoints_steps=9)\ne = tf.estimator.Estimator(fn, config=c)\n"
    )
    text = migrate_source(source).after.decode()
    assert text == (
        HEAD
        + CONFIG
        + ESTIMATOR
        + "c = NPURunConfig(model_dir='out', save_checkpoints_steps=9)\ne = NPUEstimator(fn, config=c)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "word"),
    [("f, config=c, **sizes", "passed by **"), ("f, config=given, train_batch_size=1", "does not show")],
)
def test_arguments_of_a_tpu_estimator_that_are_not_seen_are_unresolved(arguments: str, word: str) -> None:
    result = migrate_source(HEAD + f"def g(given, sizes):\n    return tf.contrib.tpu.TPUEstimator({arguments})\n")
    assert any(word in finding.message for finding in result.findings if finding.status == "unresolved")


def test_defaults_that_differ_get_advice_or_are_written_into_an_added_config() -> None:
    source = HEAD + "e = tf.estimator.Estimator(model_fn)\n"
    assert len(list_messages(migrate_source(source, "estimator_class"), "advice")) == 2
    after = migrate_source(source, "estimator_class", keep_defaults=True).after.decode()
    assert "config=NPURunConfig(save_summary_steps=100, save_checkpoints_secs=600)" in after
