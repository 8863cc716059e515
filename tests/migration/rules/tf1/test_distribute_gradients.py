from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_text

NPU = "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "source",
    [
        "g = tf.gradients(y, x)[0]\nprint(g)\n",
        "g = tf.gradients(d, [x])[0]\nloss += tf.norm(g)\nopt.minimize(loss)\n",
        "g = tf.gradients(d, [x])[0]\nloss = l + tf.norm(g)\ngvs = opt.compute_gradients(loss)\n"
        "opt.apply_gradients(gvs)\n",
        "from npu_bridge.npu_init import *\ng = npu_allreduce(tf.gradients(l, v))\nopt.apply_gradients(zip(g, v))\n",
        "from npu_bridge.hccl import hccl_ops\ng = hccl_ops.allreduce(tf.gradients(l, v)[0], 'sum')\n"
        "opt.apply_gradients([(g, v)])\n",
        "from npu_bridge.hccl import hccl_ops\ng = tf.gradients(l, v)\ng = [hccl_ops.allreduce(x, 'sum') for x in g]\n"
        "opt.apply_gradients(zip(g, v))\n",
        "def gradients(a, b): pass\ng = gradients(l, v)\nopt.apply_gradients(zip(g, v))\n",
    ],
)
def test_gradients_for_other_purposes_and_exchanged_ones_stay(source: str) -> None:
    check_noop("distribute_gradients", HEAD + source, distributed=True)


def test_gradients_of_other_variables_than_the_updated_ones_need_review() -> None:
    source = HEAD + "g = tf.gradients(l, x)\no.apply_gradients(pairs(g))\n"
    check_says("distribute_gradients", source, "manual", "training loss", distributed=True)


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


def test_clipped_gradients_are_averaged_by_the_wrapped_optimizer() -> None:
    text = migrate_text(BERT, distributed=True)
    assert "  optimizer = NPUDistributedOptimizer(optimizer)\n" in text
    assert "  grads = [grad for grad, _ in optimizer.compute_gradients(loss, tvars)]\n  (grads, _) = tf.clip" in text


def test_known_keywords_are_kept_and_others_lead_to_npu_allreduce() -> None:
    head = HEAD + NPU + "v = tf.trainable_variables()\no = NPUDistributedOptimizer(x)\n"
    text = migrate_text(
        head + "g = tf.gradients(l, v, grad_ys=s)\no.apply_gradients(zip(g, v))\n", "V3", distributed=True
    )
    assert "g = [grad for grad, _ in o.compute_gradients(l, v, grad_loss=s)]" in text
    text = migrate_text(
        head + "g = tf.gradients(l, v, stop_gradients=s)\no.apply_gradients(zip(g, v))\n", "V3", distributed=True
    )
    assert "g = npu_allreduce(tf.gradients(l, v, stop_gradients=s))" in text


def test_an_optimizer_created_later_leads_to_npu_allreduce() -> None:
    source = HEAD + "v = tf.trainable_variables()\ng = tf.gradients(l, v)\no = make()\no.apply_gradients(zip(g, v))\n"
    assert "g = npu_allreduce(tf.gradients(l, v))" in migrate_text(source, "V3", distributed=True)
