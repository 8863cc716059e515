from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source

HEAD = "import tensorflow as tf\n"
TPU_CONFIG = (
    "c = tf.contrib.tpu.RunConfig({}tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop={}))\n"
    "e = tf.contrib.tpu.TPUEstimator(f, config=c, train_batch_size=8)\ne.train(fn, {})\n"
)


def test_with_tpu_keep_the_tpu_is_only_switched_off() -> None:
    source = HEAD + "e = tf.contrib.tpu.TPUEstimator(use_tpu=FLAGS.tpu, model_fn=f, train_batch_size=8)\n"
    text = migrate_source(source, "tpu_estimator", tpu="keep").after.decode()
    assert "TPUEstimator(use_tpu=False, model_fn=f, train_batch_size=8)" in text


@pytest.mark.parametrize(
    ("params", "result"),
    [
        ("params=p, train_batch_size=8", "params=dict(p, batch_size=8)"),
        ("params={'a': 1}, train_batch_size=8", "params={'a': 1, \"batch_size\": 8}"),
        ("params={'a': 1,}, train_batch_size=8", "params={'a': 1,\"batch_size\": 8}"),
        ("params={'batch_size': 4}, train_batch_size=8", "params={'batch_size': 4}"),
        ("train_batch_size=8", 'params={"batch_size": 8}'),
        ("use_tpu=True, train_batch_size=8, eval_batch_size=8, config=c", 'config=c, params={"batch_size": 8}'),
        ("predict_batch_size=4", 'params={"batch_size": 4}'),
        ("use_tpu=False, eval_batch_size=n, predict_batch_size=4", 'params={"batch_size": n}'),
        ("train_batch_size=None, predict_batch_size=4, params=None", 'params={"batch_size": 4}'),
        ("predict_batch_size=FLAGS.size, params=hparams", "params=dict(hparams, batch_size=FLAGS.size)"),
        ("f, d, c, {'a': 1}, predict_batch_size=4", "f, d, c, {'a': 1, \"batch_size\": 4}"),
    ],
)
def test_batch_sizes_move_into_params(params: str, result: str) -> None:
    text = migrate_source(HEAD + f"e = tf.contrib.tpu.TPUEstimator({params})\n", "tpu_estimator").after.decode()
    assert f"e = NPUEstimator({result})" in text, text


@pytest.mark.parametrize(
    ("saved", "loop", "steps"),
    [
        ("save_checkpoints_steps=1000, ", "1000", "max_steps=3000"),
        ("save_checkpoints_secs=60, ", "10", "steps=20"),
        ("", "50", "steps=100"),
    ],
)
def test_a_loop_that_divides_all_steps_is_kept(saved: str, loop: str, steps: str) -> None:
    result = migrate_source(HEAD + TPU_CONFIG.format(saved, loop, steps), "tpu_estimator")
    assert f"c = NPURunConfig({saved}iterations_per_loop={loop})\n" in result.after.decode()
    assert {finding.status for finding in result.findings} == {"changed", "advice"}


@pytest.mark.parametrize(
    ("saved", "loop", "steps"),
    [
        ("", "1000", "max_steps=3000"),  # NPURunConfig saves every 100 steps
        ("save_checkpoints_steps=1000, ", "1000", "max_steps=2500"),
        ("save_checkpoints_steps=1000, ", "1000", "max_steps=number"),
        ("save_checkpoints_steps=FLAGS.save, ", "FLAGS.loop", "max_steps=number"),
        ("save_checkpoints_steps=1000, ", "FLAGS.loop", "max_steps=3000"),
    ],
)
def test_a_loop_that_may_not_divide_the_steps_is_dropped_and_reported(saved: str, loop: str, steps: str) -> None:
    result = migrate_source(HEAD + TPU_CONFIG.format(saved, loop, steps), "tpu_estimator")
    assert "iterations_per_loop" not in result.after.decode()
    assert any("iterations_per_loop" in finding.message for finding in result.findings if finding.status == "manual")


@pytest.mark.parametrize(
    "config", ["npu_run_config_init(run_config=tf.estimator.RunConfig('d'))", "npu_run_config_init()"]
)
def test_what_the_vendors_converter_wrote_stays(config: str) -> None:
    source = (
        "from npu_bridge.npu_init import *\n" + HEAD + f"c = {config}\n"
        "e = tf.contrib.tpu.TPUEstimator(use_tpu=False, model_fn=f, config=c, train_batch_size=8)\n"
        f"g = tf.contrib.tpu.TPUEstimator(f, None, {config}, use_tpu=False, train_batch_size=8)\n"
    )
    result = migrate_source(source, "tpu_estimator")
    assert not result.changed
    assert not [finding for finding in result.findings if finding.status in ("manual", "unresolved")]


def test_a_loop_that_the_code_does_not_show_is_reported() -> None:
    source = "import tensorflow as tf\nc = tf.contrib.tpu.RunConfig(tpu_config=make_config())\n"
    result = migrate_source(source, "tpu_estimator")
    assert any("does not show the iterations_per_loop" in finding.message for finding in result.findings)


def test_positional_switches_need_manual_review_in_either_mode() -> None:
    source = HEAD + "e = tf.contrib.tpu.TPUEstimator(model_fn, 'out', config, {}, True)\n"
    for tpu in ("convert", "keep"):
        check_says("tpu_estimator", source, "manual", "name TPUEstimator's arguments", tpu=tpu)


def test_defaults_of_a_tpu_config_that_differ_get_advice_or_are_written_out() -> None:
    source = HEAD + "c = tf.contrib.tpu.RunConfig(model_dir='out')\n"
    statuses = [finding.status for finding in migrate_source(source, "tpu_estimator").findings]
    assert sorted(statuses) == ["advice", "advice", "changed"]
    after = migrate_source(source, "tpu_estimator", keep_defaults=True).after.decode()
    assert "NPURunConfig(model_dir='out', save_summary_steps=100, save_checkpoints_secs=600)" in after
