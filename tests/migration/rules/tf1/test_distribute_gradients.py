from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "source",
    [
        "g = tf.gradients(y, x)[0]\nprint(g)\n",
        "g = tf.gradients(d, [x])[0]\nloss += tf.norm(g)\nopt.minimize(loss)\n",
        "g = tf.gradients(d, [x])[0]\nloss = l + tf.norm(g)\ngvs = opt.compute_gradients(loss)\n"
        "opt.apply_gradients(gvs)\n",
        "from npu_bridge.npu_init import *\ng = npu_allreduce(tf.gradients(l, v))\nopt.apply_gradients(zip(g, v))\n",
        "from npu_bridge.hccl import hccl_ops\ng = tf.gradients(l, v)\ng = [hccl_ops.allreduce(x, 'sum') for x in g]\n"
        "opt.apply_gradients(zip(g, v))\n",
        "def gradients(a, b): pass\ng = gradients(l, v)\nopt.apply_gradients(zip(g, v))\n",
    ],
)
def test_gradients_of_other_things_and_exchanged_ones_stay(source: str) -> None:
    check_noop("distribute_gradients", HEAD + source, distributed=True)


def test_gradients_by_something_else_than_what_is_updated_are_left_to_a_person() -> None:
    source = HEAD + "g = tf.gradients(l, x)\no.apply_gradients(pairs(g))\n"
    check_says("distribute_gradients", source, "manual", "training loss", distributed=True)
