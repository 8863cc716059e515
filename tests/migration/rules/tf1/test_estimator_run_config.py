from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import tensorflow as tf\n"
CONFIG = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"


def list_messages(result: object, status: str) -> list[str]:
    return [finding.message for finding in result.findings if finding.status == status]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "source",
    [
        "from mylib import RunConfig\nRunConfig('out')\n",
        "class tf:\n    class estimator:\n        RunConfig = dict\ntf.estimator.RunConfig('out')\n",
        HEAD + "def f(tf):\n    return tf.estimator.RunConfig('out')\n",
        HEAD + "assert isinstance(config, tf.estimator.RunConfig)\n",
        HEAD + "def f(config: tf.estimator.RunConfig) -> None: ...\n",
    ],
)
def test_other_run_configs_are_left_alone(source: str) -> None:
    check_noop("estimator_run_config", source)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("import tensorflow.compat.v1 as tf1\n", "tf1.estimator.RunConfig"),
        ("from tensorflow.compat.v1 import estimator as tf_estimator\n", "tf_estimator.RunConfig"),
        ("from tensorflow.estimator import RunConfig as RC\n", "RC"),
        ("import tensorflow as tf\nestimator = tf.compat.v1.estimator\n", "estimator.RunConfig"),
        ("from tensorflow import *\n", "estimator.RunConfig"),
    ],
)
def test_every_way_to_name_run_config_is_replaced(head: str, name: str) -> None:
    text = migrate_source(f"{head}c = {name}(model_dir='a')\n", "estimator_run_config").after.decode()
    assert text.endswith("c = NPURunConfig(model_dir='a')\n"), text


def test_positional_arguments_are_named_and_unknown_ones_removed() -> None:
    arguments = "'out', 1, 10, 20, None, session, 5, 1, 100, strategy, None, 'grpc'"
    check_rewrite(
        "estimator_run_config",
        HEAD + f"c = tf.estimator.RunConfig({arguments})\n",
        HEAD
        + CONFIG
        + "c = NPURunConfig(model_dir='out', tf_random_seed=1, save_summary_steps=10, save_checkpoints_steps=20, "
        "save_checkpoints_secs=None, session_config=session, keep_checkpoint_max=5, keep_checkpoint_every_n_hours=1, "
        "log_step_count_steps=100)\n",
    )


def test_an_argument_is_removed_with_its_line_and_comments_stay() -> None:
    check_rewrite(
        "estimator_run_config",
        HEAD
        + """\
c = tf.estimator.RunConfig(
    train_distribute=strategy,
    session_config=config,  # of ours
    eval_distribute=None,  # not needed
    save_checkpoints_secs=60*60*24)
""",
        HEAD
        + CONFIG
        + """\
c = NPURunConfig(
    session_config=config,  # of ours
    # not needed
    save_checkpoints_secs=60*60*24)
""",
    )


def test_findings_name_unused_variables_and_dropped_calls() -> None:
    result = migrate_source(
        HEAD + "c = tf.estimator.RunConfig(train_distribute=strategy, device_fn=make())\n", "estimator_run_config"
    )
    text = " ".join(list_messages(result, "changed"))
    assert "strategy may now be unused" in text
    assert "the call make() is no longer made" in text
    assert "train_distribute is removed: every device has its own process" in text  # newer releases accept it
    assert "device_fn is removed: NPURunConfig does not have it" in text


def test_defaults_that_differ_get_advice_or_are_written_out() -> None:
    source = HEAD + "c = tf.estimator.RunConfig('out')\n"
    assert len(list_messages(migrate_source(source, "estimator_run_config"), "advice")) == 2
    text = migrate_source(source, "estimator_run_config", keep_defaults=True).after.decode()
    assert "NPURunConfig(model_dir='out', save_summary_steps=100, save_checkpoints_secs=600)" in text
    quiet = HEAD + "c = tf.estimator.RunConfig(save_summary_steps=1, save_checkpoints_steps=5)\n"
    assert not list_messages(migrate_source(quiet, "estimator_run_config"), "advice")


def test_unpacked_arguments_need_manual_review() -> None:
    check_says("estimator_run_config", HEAD + "c = tf.estimator.RunConfig(*a)\n", "manual", "unpacked")
    result = migrate_source(HEAD + "c = tf.estimator.RunConfig(**kw)\n", "estimator_run_config")
    assert "NPURunConfig(**kw)" in result.after.decode()
    assert list_messages(result, "manual")


def test_a_subclass_and_the_contrib_class_need_manual_review() -> None:
    check_says("estimator_run_config", HEAD + "class C(tf.estimator.RunConfig): pass\n", "manual", "derives")
    check_says("estimator_run_config", HEAD + "tf.contrib.learn.RunConfig()\n", "manual", "another class")
