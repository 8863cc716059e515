"""Statements for a ConfigProto, and where they may be inserted."""

from __future__ import annotations

from textwrap import dedent, indent

from migration.checking import check_rewrite, migrate_source

RULE = "session_config"


REWRITER = (
    "from npu_bridge.estimator import npu_ops\n"
    "from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig\n"
)


WRAPPER = "from npu_bridge.npu_init import npu_config_proto\n"


def fill_config(config: str = "config", custom: str = "custom_op", by: str = "") -> str:
    lines = (
        f"{custom} = {config}.graph_options.rewrite_options.custom_optimizers.add()\n"
        f'{custom}.name = "NpuOptimizer"\n'
        f'{custom}.parameter_map["use_off_line"].b = True\n'
        f"{config}.graph_options.rewrite_options.remapping = RewriterConfig.OFF\n"
    )
    return indent(lines, by)


NEW = "config = tf.ConfigProto()\n" + fill_config()


def test_npu_optimizer_is_added_once_after_the_settings_of_a_variable() -> None:
    before = """
        import tensorflow as tf
        conf = tf.ConfigProto(allow_soft_placement=True)
        conf.gpu_options.allow_growth = True  # grow
        def a():
            return tf.Session(config=conf)
        for i in range(3):
            with tf.Session(config=conf) as sess:
                sess.run(x)
        """
    after = f"""
        import tensorflow as tf
        {REWRITER.strip().replace(chr(10), chr(10) + " " * 8)}
        conf = tf.ConfigProto(allow_soft_placement=True)
        conf.gpu_options.allow_growth = True  # grow
{indent(fill_config("conf"), "        ").rstrip()}
        def a():
            return tf.Session(config=conf)
        for i in range(3):
            with tf.Session(config=conf) as sess:
                sess.run(x)
        """
    check_rewrite(RULE, before, after)


def test_npu_optimizer_is_added_where_an_attribute_is_assigned() -> None:
    before = """
        import tensorflow as tf
        class Trainer:
            def __init__(self):
                self.config = tf.ConfigProto()
            def open(self):
                self.sess = tf.Session(config=self.config)
        """
    result = migrate_source(dedent(before), RULE).after.decode()
    assert "self.config = tf.ConfigProto()\n        custom_op = self.config.graph_options" in result
    assert result.count("NpuOptimizer") == 1
