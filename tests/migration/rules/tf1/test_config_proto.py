"""Statements for a ConfigProto, and where they may stand."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

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


def test_the_module_rewriter_config_pb2_is_used_where_it_is_imported() -> None:
    head = "import tensorflow as tf\nfrom tensorflow.core.protobuf import rewriter_config_pb2\n"
    new = NEW.replace("RewriterConfig.OFF", "rewriter_config_pb2.RewriterConfig.OFF")
    bridge = REWRITER.splitlines(keepends=True)[0]
    check_rewrite(RULE, f"{head}s = tf.Session()\n", f"{head}{bridge}{new}s = tf.Session(config=config)\n")


def test_names_in_use_are_not_taken() -> None:
    before = "import tensorflow as tf\nconfig, custom_op = read()\ns = tf.Session()\n"
    new = "npu_config = tf.ConfigProto()\n" + fill_config("npu_config", "npu_custom_op")
    after = f"import tensorflow as tf\n{REWRITER}config, custom_op = read()\n{new}s = tf.Session(config=npu_config)\n"
    check_rewrite(RULE, before, after)


def test_a_variable_is_filled_once_behind_its_settings() -> None:
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


def test_an_attribute_is_filled_where_it_is_assigned() -> None:
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


def test_a_config_that_needs_the_statement_it_stands_in_is_wrapped() -> None:
    before = """
        import tensorflow as tf
        with open(p) as f, tf.Session(config=tf.ConfigProto(device_count=read(f))) as s:
            s.run(a)
        """
    assert "npu_config_proto(config_proto=tf.ConfigProto(device_count=read(f)))" in str(
        migrate_source(dedent(before), RULE)
    )


@pytest.mark.parametrize(
    "line",
    [
        "make = lambda: {}",
        "many = [{} for _ in range(2)]",
        "def f(sess={}):\n    pass",
        "@use({})\ndef f():\n    pass",
        "class A:\n    sess = {}",
        "x = 1; sess = {}",
        "if x: sess = {}",
        "if x:\n    pass\nelif {}:\n    pass",
    ],
)
def test_where_statements_cannot_stand_the_helper_is_used(line: str) -> None:
    for inner in ("", "config=tf.ConfigProto(log_device_placement=False)"):
        before = f"import tensorflow as tf\n{line.format(f'tf.Session({inner})')}\n"
        old = f"config_proto={inner.removeprefix('config=')}" if inner else ""
        call = f"tf.Session(config=npu_config_proto({old}))"
        check_rewrite(RULE, before, f"import tensorflow as tf\n{WRAPPER}{line.format(call)}\n")
