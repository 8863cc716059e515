"""RunConfig, Estimator, canned and TPU estimators, and what the command line adds to them."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

HEAD = "import tensorflow as tf\n"
CONFIG = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"
ESTIMATOR = "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator\n"


def said(result: object, status: str) -> list[str]:
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
def test_every_spelling_is_the_same_class(head: str, name: str) -> None:
    text = migrated(f"{head}c = {name}(model_dir='a')\n", "estimator_run_config").after.decode()
    assert text.endswith("c = NPURunConfig(model_dir='a')\n"), text


def test_positions_become_keywords_and_unknown_ones_go_wherever_they_stand() -> None:
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


def test_an_argument_on_its_own_line_goes_with_its_line_and_its_comment_stays() -> None:
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


def test_the_variable_that_is_no_longer_used_and_the_call_that_is_no_longer_made_are_named() -> None:
    result = migrated(
        HEAD + "c = tf.estimator.RunConfig(train_distribute=strategy, device_fn=make())\n", "estimator_run_config"
    )
    text = " ".join(said(result, "changed"))
    assert "strategy may now be unused" in text
    assert "the call make() is no longer made" in text


def test_defaults_that_differ_are_mentioned_or_written_out() -> None:
    source = HEAD + "c = tf.estimator.RunConfig('out')\n"
    assert len(said(migrated(source, "estimator_run_config"), "advice")) == 2
    text = migrated(source, "estimator_run_config", keep_defaults=True).after.decode()
    assert "NPURunConfig(model_dir='out', save_summary_steps=100, save_checkpoints_secs=600)" in text
    quiet = HEAD + "c = tf.estimator.RunConfig(save_summary_steps=1, save_checkpoints_steps=5)\n"
    assert not said(migrated(quiet, "estimator_run_config"), "advice")


def test_unpacked_arguments_are_left_to_a_person() -> None:
    check_says("estimator_run_config", HEAD + "c = tf.estimator.RunConfig(*a)\n", "manual", "unpacked")
    result = migrated(HEAD + "c = tf.estimator.RunConfig(**kw)\n", "estimator_run_config")
    assert "NPURunConfig(**kw)" in result.after.decode()
    assert said(result, "manual")


def test_a_subclass_and_the_contrib_class_are_left_to_a_person() -> None:
    check_says("estimator_run_config", HEAD + "class C(tf.estimator.RunConfig): pass\n", "manual", "derives")
    check_says("estimator_run_config", HEAD + "tf.contrib.learn.RunConfig()\n", "manual", "another class")


def test_options_are_added_once_and_do_not_replace_what_is_there() -> None:
    source = HEAD + CONFIG + "c = NPURunConfig(precision_mode='force_fp32')\n"
    text = migrated(source, "estimator_run_options", loop=10, precision="allow_mix_precision").after.decode()
    assert "NPURunConfig(precision_mode='force_fp32', iterations_per_loop=10)" in text


def test_newer_precision_words_use_the_newer_keyword() -> None:
    text = migrated(HEAD + CONFIG + "c = NPURunConfig()\n", "estimator_run_options", precision="mixed_float16")
    assert 'NPURunConfig(precision_mode_v2="mixed_float16")' in text.after.decode()


def test_profiling_and_dump_configurations_are_imported() -> None:
    result = migrated(
        HEAD + CONFIG + "c = NPURunConfig()\n", "estimator_run_options", profile="/p", dump="/d", dump_step="0|5"
    )
    text = result.after.decode()
    assert "import ProfilingConfig" in text
    assert "import DumpConfig" in text
    assert "dump_config=DumpConfig(enable_dump=True, dump_path='/d', dump_step='0|5', dump_mode=\"all\")" in text


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
    text = migrated(HEAD + "e = tf.estimator.Estimator(fn, None, None)\n", "estimator_class").after.decode()
    assert "NPUEstimator(fn, None, NPURunConfig())" in text


def test_a_config_from_elsewhere_is_followed_through_the_project() -> None:
    source = HEAD + "from setup import make_config\ne = tf.estimator.Estimator(fn, config=make_config())\n"
    other = HEAD + CONFIG + "def make_config():\n    return NPURunConfig(model_dir='a')\n"
    assert not said(migrated(source, "estimator_class", others={"setup.py": other}), "manual")
    assert said(migrated(source, "estimator_class"), "manual")


def test_directories_that_differ_are_reported() -> None:
    source = (
        HEAD + CONFIG + "c = NPURunConfig(model_dir='a')\ne = tf.estimator.Estimator(fn, model_dir={!r}, config=c)\n"
    )
    assert said(migrated(source.format("b"), "estimator_class"), "manual")
    assert not said(migrated(source.format("a"), "estimator_class"), "manual")


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


def test_a_positional_config_of_a_ready_made_estimator_is_replaced_in_place() -> None:
    source = HEAD + "m = tf.estimator.LinearEstimator(head, columns, None, opt, old)\n"
    text = migrated(source, "estimator_canned").after.decode()
    assert "LinearEstimator(head, columns, None, opt, npu_run_config_init(run_config=old))" in text


def test_a_whole_number_of_steps_is_no_finding() -> None:
    check_noop("estimator_steps", HEAD + "tf.estimator.TrainSpec(fn, max_steps=n // 2)\nmodel.train(steps=n / 2)\n")
    check_says("estimator_steps", HEAD + "n = a / b\ntf.estimator.TrainSpec(fn, max_steps=n)\n", "manual", "float")


def test_tpu_kept_is_only_switched_off() -> None:
    source = HEAD + "e = tf.contrib.tpu.TPUEstimator(use_tpu=FLAGS.tpu, model_fn=f, train_batch_size=8)\n"
    text = migrated(source, "tpu_estimator", tpu="keep").after.decode()
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
    text = migrated(HEAD + f"e = tf.contrib.tpu.TPUEstimator({params})\n", "tpu_estimator").after.decode()
    assert f"e = NPUEstimator({result})" in text, text


def test_metrics_of_a_tpu_that_are_not_written_out_are_left_to_a_person() -> None:
    source = HEAD + "s = tf.contrib.tpu.TPUEstimatorSpec(mode, loss=l, eval_metrics=metrics)\n"
    check_says("tpu_spec", source, "manual", "not a pair")
    pair = HEAD + "s = tf.contrib.tpu.TPUEstimatorSpec(mode, eval_metrics=(f, {'a': a}), scaffold_fn=make)\n"
    text = migrated(pair, "tpu_spec").after.decode()
    assert "NPUEstimatorSpec(mode, eval_metric_ops=f(**{'a': a}), scaffold=make() if make else None)" in text


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


SPEC = "tf.contrib.tpu.TPUEstimatorSpec"


@pytest.mark.parametrize(
    ("before", "metrics"),
    [
        ("m = (fn, [a, b])\n", "m[0](*m[1])"),
        ("m = (fn, {'a': a})\n", "m[0](**m[1])"),
        ("m = None\nif x:\n    m = (fn, [a, b])\n", "m[0](*m[1]) if m else None"),
        ("m = None\n", "None"),
    ],
)
def test_a_pair_of_metrics_with_a_name_is_called_by_its_parts(before: str, metrics: str) -> None:
    text = migrated(f"{HEAD}{before}s = {SPEC}(mode=mode, loss=loss, eval_metrics=m)\n", "tpu_spec").after.decode()
    assert text.endswith(f"{before}s = NPUEstimatorSpec(mode=mode, loss=loss, eval_metric_ops={metrics})\n")


def test_where_one_spec_of_a_function_cannot_follow_none_does() -> None:
    source = (
        f"{HEAD}def f(mode, m):\n    if mode:\n        return {SPEC}(mode=mode, loss=loss)\n"
        f"    return {SPEC}(mode=mode, loss=loss, eval_metrics=m)\n"
    )
    result = check_says("tpu_spec", source, "manual", "not a pair")
    assert [one.line for one in result.findings] == [4, 5]


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("import functools\nmake = functools.partial(tf.estimator.Estimator, model_fn=f)\n", "passed on"),
        ("classes = {'a': tf.estimator.Estimator}\n", "passed on"),
        ("e = tf.contrib.learn.Estimator(f)\n", "tf.estimator first"),
        ("from tensorflow.contrib import learn\ne = learn.DNNClassifier([1])\n", "tf.estimator first"),
    ],
)
def test_estimators_that_cannot_follow_are_named(source: str, word: str) -> None:
    result = check_says("estimator_class", HEAD + source, "manual", word)
    assert result.findings[0].risk == "high"


def test_a_check_or_an_annotation_still_holds() -> None:
    source = "def f(x: tf.estimator.Estimator) -> tf.estimator.Estimator:\n    isinstance(x, tf.estimator.Estimator)\n"
    check_noop("estimator_class", HEAD + source)


def test_metrics_by_position_are_left_to_a_person() -> None:
    check_says("tpu_spec", f"{HEAD}s = {SPEC}(mode, None, loss, op, (fn, [a]))\n", "manual", "not a pair")


# ---- E10, E11: what a TPU's configuration carries along

TPU_CONFIG = (
    "c = tf.contrib.tpu.RunConfig({}tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop={}))\n"
    "e = tf.contrib.tpu.TPUEstimator(f, config=c, train_batch_size=8)\ne.train(fn, {})\n"
)


@pytest.mark.parametrize(
    ("saved", "loop", "steps"),
    [
        ("save_checkpoints_steps=1000, ", "1000", "max_steps=3000"),
        ("save_checkpoints_secs=60, ", "10", "steps=20"),
        ("", "50", "steps=100"),
    ],
)
def test_a_loop_that_divides_all_steps_goes_along(saved: str, loop: str, steps: str) -> None:
    result = migrated(HEAD + TPU_CONFIG.format(saved, loop, steps), "tpu_estimator")
    assert f"c = NPURunConfig({saved}iterations_per_loop={loop})\n" in result.after.decode()
    assert {one.status for one in result.findings} == {"changed", "advice"}


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
def test_a_loop_that_may_not_divide_the_steps_is_left_out_and_reported(saved: str, loop: str, steps: str) -> None:
    result = migrated(HEAD + TPU_CONFIG.format(saved, loop, steps), "tpu_estimator")
    assert "iterations_per_loop" not in result.after.decode()
    assert any("iterations_per_loop" in one.message for one in result.findings if one.status == "manual")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [("f, config=c, **sizes", "come by **"), ("f, config=given, train_batch_size=1", "not shown")],
)
def test_arguments_of_a_tpu_estimator_that_are_not_seen_are_unresolved(arguments: str, word: str) -> None:
    result = migrated(HEAD + f"def g(given, sizes):\n    return tf.contrib.tpu.TPUEstimator({arguments})\n")
    assert any(word in one.message for one in result.findings if one.status == "unresolved")


@pytest.mark.parametrize(
    "config", ["npu_run_config_init(run_config=tf.estimator.RunConfig('d'))", "npu_run_config_init()"]
)
def test_what_the_vendors_converter_wrote_stays(config: str) -> None:
    source = (
        "from npu_bridge.npu_init import *\n" + HEAD + f"c = {config}\n"
        "e = tf.contrib.tpu.TPUEstimator(use_tpu=False, model_fn=f, config=c, train_batch_size=8)\n"
        f"g = tf.contrib.tpu.TPUEstimator(f, None, {config}, use_tpu=False, train_batch_size=8)\n"
    )
    result = migrated(source, "tpu_estimator")
    assert not result.changed
    assert not [one for one in result.findings if one.status in ("manual", "unresolved")]


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


def test_fusion_switches_are_named_unless_the_script_names_its_own() -> None:
    text = migrated(HEAD + CONFIG + "c = NPURunConfig()\n", "estimator_run_options", fusion_switch="/etc/off.cfg")
    assert "c = NPURunConfig(fusion_switch_file='/etc/off.cfg')\n" in text.after.decode()
    own = HEAD + CONFIG + "c = NPURunConfig(fusion_switch_file='mine.cfg')\n"
    assert migrated(own, "estimator_run_options", fusion_switch="/etc/off.cfg").after.decode() == own


def test_a_session_is_given_the_fusion_switches_too() -> None:
    text = migrated(HEAD + "s = tf.Session()\ns.run(x)\n", fusion_switch="/etc/off.cfg").after.decode()
    assert 'parameter_map["fusion_switch_file"].s = tf.compat.as_bytes("/etc/off.cfg")\n' in text
