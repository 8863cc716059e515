from __future__ import annotations

from migration.checking import check_noop, check_rewrite

RULE = "session_graph_options"
HEAD = "import tensorflow as tf\n"


def test_explicit_style_does_not_need_the_helpers() -> None:
    check_noop(RULE, HEAD + "g = tf.GraphOptions()\no = tf.OptimizerOptions()\n")


def test_what_is_wrapped_already_is_left_alone() -> None:
    head = HEAD + "from npu_bridge.npu_init import *\n"
    check_noop(RULE, head + "g = npu_graph_options(graph_options=tf.GraphOptions())\n", style="wrapper")


def test_both_options_are_wrapped_even_if_nested() -> None:
    check_rewrite(
        RULE,
        HEAD + "g = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level=1))\n",
        HEAD + "from npu_bridge.npu_init import npu_graph_options\n"
        "from npu_bridge.npu_init import npu_optimizer_options\n"
        "g = npu_graph_options(graph_options=tf.GraphOptions("
        "optimizer_options=npu_optimizer_options(optimizer_options=tf.OptimizerOptions(opt_level=1))))\n",
        style="wrapper",
    )
