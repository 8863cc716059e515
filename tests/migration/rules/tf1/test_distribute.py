"""Distribution: strategies, optimizers, gradients, first values, metrics, variables of the environment."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import migrated

HEAD = "import tensorflow as tf\n"
NPU = "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"


def after(source: str, rule: str = "", **options: object) -> str:
    return migrated(dedent(source), rule, **options).after.decode()


# ---- V1: strategies


def test_in_a_distributed_run_it_becomes_the_accelerators() -> None:
    text = after(HEAD + "s = tf.distribute.MirroredStrategy()\nwith s.scope():\n    run()\n", distributed=True)
    assert "s = npu_strategy.NPUStrategy()\nwith s.scope():" in text
    assert "from npu_bridge.estimator.npu import npu_strategy\n" in text


def test_what_the_run_configuration_left_unused_is_not_made() -> None:
    source = HEAD + "s = tf.distribute.MirroredStrategy()\nc = tf.estimator.RunConfig(train_distribute=s)\n"
    for distributed in (False, True):
        text = after(source, distributed=distributed)
        assert "s = None\n" in text
        assert "c = NPURunConfig()" in text


# ---- V2: optimizers


def test_nothing_is_wrapped_on_one_device() -> None:
    text = after(HEAD + "opt = tf.train.AdamOptimizer(1)\ntrain = opt.minimize(loss)\n")
    assert "NPUDistributedOptimizer" not in text


# ---- V3: gradients


BERT = """\
import tensorflow as tf
def create_optimizer(loss, init_lr):
  optimizer = AdamWeightDecayOptimizer(learning_rate=init_lr)
  tvars = tf.trainable_variables()
  grads = tf.gradients(loss, tvars)
  (grads, _) = tf.clip_by_global_norm(grads, clip_norm=1.0)
  return optimizer.apply_gradients(zip(grads, tvars), global_step=step)
class AdamWeightDecayOptimizer(tf.train.Optimizer):
  pass
"""


def test_clipped_gradients_of_ones_own_optimizer() -> None:
    text = after(BERT, distributed=True)
    assert "  optimizer = NPUDistributedOptimizer(optimizer)\n" in text
    assert "  grads = [grad for grad, _ in optimizer.compute_gradients(loss, tvars)]\n  (grads, _) = tf.clip" in text


def test_further_arguments_go_along_and_others_make_it_a_reduction() -> None:
    head = HEAD + NPU + "v = tf.trainable_variables()\no = NPUDistributedOptimizer(x)\n"
    text = after(head + "g = tf.gradients(l, v, grad_ys=s)\no.apply_gradients(zip(g, v))\n", "V3", distributed=True)
    assert "g = [grad for grad, _ in o.compute_gradients(l, v, grad_loss=s)]" in text
    text = after(
        head + "g = tf.gradients(l, v, stop_gradients=s)\no.apply_gradients(zip(g, v))\n", "V3", distributed=True
    )
    assert "g = npu_allreduce(tf.gradients(l, v, stop_gradients=s))" in text


def test_an_optimizer_that_is_made_later_makes_it_a_reduction() -> None:
    source = HEAD + "v = tf.trainable_variables()\ng = tf.gradients(l, v)\no = make()\no.apply_gradients(zip(g, v))\n"
    assert "g = npu_allreduce(tf.gradients(l, v))" in after(source, "V3", distributed=True)


# ---- V4: first values


@pytest.mark.parametrize(
    ("init", "run"),
    [
        ("sess.run(tf.initialize_all_variables())", "sess.run(bcast_op)"),
        ("sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])", "sess.run(bcast_op)"),
        ("_ = sess.run(fetches=init)", "sess.run(bcast_op)"),
        ("init.run()", "bcast_op.run()"),
        ("tf.global_variables_initializer().run(session=sess)", "bcast_op.run(session=sess)"),
    ],
)
def test_a_broadcast_follows_the_initialiser(init: str, run: str) -> None:
    head = HEAD + "init = tf.group(tf.global_variables_initializer(), tf.tables_initializer())\nopt.minimize(l)\n"
    text = after(head + f"with tf.Session() as sess:\n    {init}  # start\n    go()\n", "V4", distributed=True)
    op = "tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()])"
    assert f"    {init}  # start\n    bcast_op = {op}\n    {run}\n    go()\n" in text


# ---- V4 over several files


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("MonitoredTrainingSession()", "MonitoredTrainingSession(hooks=[HOOK])"),
        ("MonitoredTrainingSession(hooks=[a, b], config=c)", "MonitoredTrainingSession(hooks=[HOOK, a, b], config=c)"),
        ("MonitoredTrainingSession(hooks=h)", "MonitoredTrainingSession(hooks=[HOOK] + list(h or []))"),
        ("SingularMonitoredSession([])", "SingularMonitoredSession([HOOK])"),
        ("MonitoredSession(creator)", "MonitoredSession(creator, hooks=[HOOK])"),
    ],
)
def test_a_monitored_session_gets_the_hook(before: str, later: str) -> None:
    text = after(HEAD + f"def train():\n    opt.minimize(l)\n    return tf.train.{before}\n", "V4", distributed=True)
    assert later.replace("HOOK", "NPUBroadcastGlobalVariablesHook(0, get_rank_id())") in text


# ---- V6: metrics


def test_metrics_are_averaged_only_when_asked_for() -> None:
    source = (
        HEAD
        + "def f():\n    a = tf.metrics.mean(x)\n    return tf.estimator.EstimatorSpec(m, eval_metric_ops={'a': a})\n"
    )
    assert "allreduce" not in after(source, distributed=True)
    text = after(source, distributed=True, metrics_allreduce=True)
    assert '{\'a\': (hccl_ops.allreduce(a[0], "sum") / int(os.getenv("RANK_SIZE", "1")), a[1])}' in text


# ---- V7: the environment


# ---- D5 and D6: shards


@pytest.mark.parametrize(
    "given",
    [
        "num_shards=strategy.num_replicas_in_sync, index=config.global_id_in_cluster",
        "len(cluster['worker']), cluster_task",
        "config.num_worker_replicas, config.task_id",
    ],
)
def test_shards_by_a_cluster_go_by_rank(given: str) -> None:
    head = "import json, os\ncluster = json.loads(os.environ['TF_CONFIG'])\ncluster_task = cluster['task']['index']\n"
    text = after(
        HEAD + head + f"def f():\n    return tf.data.Dataset.range(9).shard({given})\n", "D5", distributed=True
    )
    assert "get_rank_size(), " in text
    assert "get_rank_id())" in text
