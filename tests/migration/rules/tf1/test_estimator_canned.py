from __future__ import annotations

from migration.checking import migrate_source

HEAD = "import tensorflow as tf\n"


def test_a_positional_config_of_a_canned_estimator_is_replaced_in_place() -> None:
    source = HEAD + "m = tf.estimator.LinearEstimator(head, columns, None, opt, old)\n"
    text = migrate_source(source, "estimator_canned").after.decode()
    assert "LinearEstimator(head, columns, None, opt, npu_run_config_init(run_config=old))" in text


def test_a_run_config_for_canned_estimators_keeps_its_class() -> None:
    source = (
        HEAD + "config = tf.estimator.RunConfig(model_dir='x', train_distribute=s)\n"
        "model = tf.estimator.DNNClassifier([64], columns, config=config)\n"
        "other = tf.estimator.LinearRegressor(columns, config=tf.estimator.RunConfig('y'))\n"
    )
    text = migrate_source(source).after.decode()
    assert "config = tf.estimator.RunConfig(model_dir='x')" in text
    assert "columns, config=npu_run_config_init(run_config=config))" in text
    assert "config=npu_run_config_init(run_config=tf.estimator.RunConfig('y')))" in text
    assert "NPURunConfig" not in text


def test_a_run_config_for_both_kinds_needs_review_at_the_canned_one() -> None:
    source = (
        HEAD + "config = tf.estimator.RunConfig(model_dir='x')\nfirst = tf.estimator.Estimator(f, config=config)\n"
        "model = tf.estimator.DNNClassifier([64], columns, config=config)\n"
    )
    result = migrate_source(source)
    assert "config = NPURunConfig(model_dir='x')" in result.after.decode()
    assert [
        finding.line
        for finding in result.findings
        if finding.status == "manual" and "its own RunConfig" in finding.message
    ] == [4]
