"""Migrate and rehearse agree: the example of every TensorFlow 1 rule, made a program, runs and meets no limit.

Each program is the example before the rule, with what it leaves undefined, and goes through all rules, as a user's
would. A rule whose example cannot be run has its reason here.
"""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

from migration.checking import examples, first_example, migrate_source
from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script
from viaduct.migration.rule import Rule, all_rules

pytestmark = [needs_tensorflow]

MODEL_FN = """\
def model_fn(features, labels, mode, params):
    loss = tf.reduce_mean(tf.square(tf.layers.dense(features, 1)))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)
"""
VARIABLE = 'w = tf.get_variable("w", [2])\n'
# What examples leave undefined; a definition may need others.
DEFINITIONS = {
    "files": (
        'files = ["data.tfrecord"]\nwith tf.python_io.TFRecordWriter(files[0]) as writer:\n'
        '    for _ in range(64):\n        writer.write(b"one")\n'
    ),
    "x": "import numpy as np\nx = np.ones([64, 4], np.float32)\n",
    "y": "y = np.ones([64, 10], np.float32)\n",
    "a": "a = 0.4\n",
    "w": VARIABLE,
    "loss": "loss = tf.reduce_mean(tf.square(w))\n",
    "step": "step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)\n",
    "opt": "opt = tf.train.GradientDescentOptimizer(0.1)\n",
    "manager": (
        "from npu_bridge.estimator.npu.npu_loss_scale_manager import FixedLossScaleManager\n"
        "manager = FixedLossScaleManager(128)\n"
    ),
    "labels": "labels = tf.constant([1.0, 0.0])\n",
    "predictions": "predictions = tf.constant([1.0, 1.0])\n",
    "logits": "logits = tf.constant([0.3, 0.6])\n",
    "mode": "mode = tf.estimator.ModeKeys.EVAL\n",
    "metric_fn": 'def metric_fn(labels, logits):\n    return {"mean": tf.metrics.mean(logits)}\n',
    "model_fn": MODEL_FN,
    "start": "start = None\n",
    "columns": 'columns = [tf.feature_column.numeric_column("x", shape=[4])]\n',
    "model": 'model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[4])])\nmodel.compile("sgd", "mse")\n',
    "run": "def run(value):\n    print(value)\n",
    "train": "def train(value):\n    print(value)\n",
    "boundaries": "boundaries = [10, 20]\n",
    "values": "values = [0.1, 0.2, 0.3]\n",
    "global_step": "global_step = tf.train.get_or_create_global_step()\n",
    "strategy": "strategy = None\n",
    "fp16": "fp16 = True\n",
    "config": (
        "from npu_bridge.npu_init import npu_config_proto\nconfig = npu_config_proto(config_proto=tf.ConfigProto())\n"
    ),
    "run_config": (
        "from npu_bridge.estimator.npu.npu_config import NPURunConfig\nrun_config = NPURunConfig(model_dir='out')\n"
    ),
    "data": (
        "def data(size):\n    ds = tf.data.Dataset.from_tensor_slices(np.ones([64, 4], np.float32))\n"
        "    return ds.map(lambda one: (one, one)).batch(4, drop_remainder=True)\n"
    ),
}
CONSTANTS = {"loss": "loss = tf.constant(1.0)\n", "step": "step = tf.constant(2.0)\n"}
OTHERWISE = {"session_close": CONSTANTS, "session_config_helper": CONSTANTS}  # these initialise no variables
NEEDS = {"loss": ["w"], "step": ["w", "loss"], "y": ["x"], "data": ["x"]}
INPUT = (
    "def feed(params=None):\n"
    "    ds = tf.data.Dataset.from_tensor_slices(([[1.0] * 4] * 64, [[0.0]] * 64)).repeat()\n"
    "    return ds.batch(4, drop_remainder=True)\n"
)
SESSION = "with tf.Session() as sess:\n    sess.run(tf.global_variables_initializer())\n    print(sess.run({}))\n"
# What is done with what an example makes, so that the device gets to see it.
DRIVERS = {
    "device_block": SESSION.format("x"),
    "horovod_lifecycle": "main(None)\n",
    "horovod_collectives": "mean(tf.constant([1.0]))\n",
    "horovod_optimizer": VARIABLE + "step = opt.minimize(tf.reduce_sum(w))\n" + SESSION.format("step"),
    "horovod_broadcast": (
        VARIABLE + "tf.train.get_or_create_global_step()\nstep = tf.train.AdamOptimizer(0.1).minimize("
        "tf.reduce_sum(w))\nwith train() as sess:\n    sess.run(step)\n"
    ),
    "precision_graph_rewrite": SESSION.format("step"),
    "loss_scale_managers": (
        VARIABLE + "for scale in (fixed, moving):\n    opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer("
        "tf.train.GradientDescentOptimizer(0.1), scale)\n"
    ),
    "loss_scale_optimizer": VARIABLE + "step = opt.minimize(tf.reduce_sum(w))\n" + SESSION.format("step"),
    "session_xla": "with tf.Session(config=config) as sess:\n    sess.run(tf.constant(1.0))\n",
    "tpu_estimator": INPUT + "model.train(feed, steps=100)\n",
    "estimator_class": INPUT + "classifier.train(feed, steps=2)\n",
    "estimator_canned": (
        "def feed():\n    ds = tf.data.Dataset.from_tensor_slices(({'x': [[1.0] * 4] * 64}, [1] * 64)).repeat()\n"
        "    return ds.batch(4, drop_remainder=True)\nmodel.train(feed, steps=2)\n"
    ),
    "keras_estimator": INPUT + "estimator.train(feed, steps=2)\n",
    "dataset_drop_remainder": SESSION.format("tf.shape(ds.make_one_shot_iterator().get_next())"),
    "dataset_shard": (
        "class Context:\n    num_input_pipelines, input_pipeline_id = 1, 0\ndef main(_):\n"
        "    batch = input_fn(Context()).batch(4).make_one_shot_iterator().get_next()\n"
        "    with tf.Session() as sess:\n        print(sess.run(batch))\ntf.app.run()\n"
    ),
    "dropout": SESSION.format("y"),
    "gelu": SESSION.format("gelu(tf.constant([1.0]))"),
    "dropout_layers": SESSION.format("x"),
    "distribute_optimizer": VARIABLE + "step = train(tf.reduce_sum(w))\n" + SESSION.format("step"),
    "distribute_gradients": VARIABLE + "step = train(tf.reduce_sum(w))\n" + SESSION.format("step"),
    "distribute_broadcast": VARIABLE + "train(tf.reduce_sum(w))\n",
    "session_close": "print(train(2))\n",
    "lifecycle_cycles": (
        "def main(_):\n    first, start = init_npu()\n    first.run(start)\n    run(2)\n    first.close()\n"
        "tf.app.run()\n"
    ),
}
OPTIONS = {"session_options": {"precision": "allow_mix_precision"}}  # a dump needs its folder
NOT_RUN = {
    "preset_resnet_seed": "the preset is for one network and its number of steps",
    "estimator_run_options": "iterations_per_loop is asked for on the command line, without a training beside it",
    "distribute_strategy": "what takes a strategy is not of the example",
    "distribute_metrics": "an evaluation without its input",
    "keras_broadcast": "the model of the example is not compiled",
    "seed_tuning": "the preset is for one network",
}
QUICK = {"session_config", "session_close", "distribute_broadcast", "lifecycle_init", "tpu_estimator", "dataset_shard"}
RULES = [
    rule
    for rule in all_rules()
    if rule.name.startswith("tf1.") and "npu" in rule.targets and first_example(rule.doc)[0].strip()
]


def short(rule: Rule) -> str:
    return rule.name.partition(".")[2]


def program(rule: Rule) -> str:
    """Return the rule's example with definitions after its imports and a driver at its end."""
    text, _ = first_example(rule.doc)
    driver = DRIVERS.get(short(rule), "")
    head, body = imports_first(text)
    known = {**DEFINITIONS, **OTHERWISE.get(short(rule), {})}
    wanted = [name for name in known if name in list_undefined_names(text, driver)]
    needed = {} if short(rule) in OTHERWISE else NEEDS
    defined = dict.fromkeys(rule_name for name in wanted for rule_name in [*needed.get(name, []), name])
    return head + "".join(known[name] for name in defined) + body + driver


def imports_first(text: str) -> tuple[str, str]:
    lines, tree = text.splitlines(keepends=True), ast.parse(text)
    last = 0
    for statement in tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom | ast.Try):
            break
        last = statement.end_lineno or last
    return "".join(lines[:last]), "".join(lines[last:])


def list_undefined_names(text: str, driver: str) -> set[str]:
    """Return the names that are read before the example binds them."""
    tree, bound, free = ast.parse(text + driver), {*dir(builtins)}, set()
    for statement in tree.body:
        inner = {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
        stored = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        local = inner | (stored if isinstance(statement, ast.FunctionDef | ast.For | ast.With) else set())
        read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        free |= read - bound - local
        bound |= stored | {getattr(statement, "name", "")}
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return free


def test_every_rule_is_run_or_says_why_not() -> None:
    names = {short(rule) for rule in RULES}
    assert {*DRIVERS, *NOT_RUN, *QUICK} <= names
    assert not {*DRIVERS} & {*NOT_RUN}


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=short(rule), marks=[] if short(rule) in QUICK else [pytest.mark.slow])
        for rule in RULES
        if short(rule) not in NOT_RUN
    ],
)
def test_what_a_rule_writes_is_accepted_by_the_rehearsal(rule: Rule, tmp_path: Path) -> None:
    source = program(rule)
    options = OPTIONS.get(short(rule)) or next((options for options, *_ in examples(rule.doc)), {})
    result = migrate_source(source, **options)
    script = tmp_path / "train.py"
    script.write_bytes(result.after)
    answer = rehearse_script("npu", script, VIADUCT_LIMITS="warn")
    assert answer.code == 0, f"{result.after.decode()}\n{answer.failure}\n{answer.stderr[-3000:]}"
    assert answer.met_limits == [], f"{result.after.decode()}\n{answer.met_limits}"
