"""Configs of sessions with NpuOptimizer, and configs that get it."""

from __future__ import annotations

from textwrap import dedent, indent

from migration.checking import check_noop, check_rewrite, migrate_source

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


def test_a_config_with_npu_optimizer_is_left_alone() -> None:
    check_noop(RULE, f"import tensorflow as tf\n{REWRITER}{NEW}sess = tf.Session(config=config)\n")
    check_noop(
        RULE,
        """
        import tensorflow as tf
        from npu_bridge.npu_init import *
        def run():
            config = tf.ConfigProto()
            options = config.graph_options.rewrite_options
            op = options.custom_optimizers.add()
            op.name = "NpuOptimizer"
            with tf.Session(config=config) as sess:
                pass
            with tf.Session(config=npu_config_proto(config_proto=config)) as sess:
                pass
        """,
    )


def test_a_variable_from_npu_config_proto_is_left_alone() -> None:
    check_noop(
        RULE,
        """
        import tensorflow as tf
        from npu_bridge.npu_init import npu_config_proto
        config = npu_config_proto(config_proto=tf.ConfigProto(allow_soft_placement=True))
        sess = tf.InteractiveSession(config=config)
        """,
    )


def test_a_config_of_one_branch_is_not_used_in_another() -> None:
    before = """
        import tensorflow as tf
        def run(train):
            if train:
                sess = tf.Session()
            else:
                sess = tf.Session()
        """
    assert migrate_source(dedent(before), RULE).after.decode().count("tf.ConfigProto()") == 2


def test_a_value_that_is_not_known_is_wrapped() -> None:
    for value in ("conf", "make()", "conf if x else None", "flags.config"):
        before = f"import tensorflow as tf\ndef f(conf, x, flags):\n    return tf.Session(config={value})\n"
        after = (
            f"import tensorflow as tf\n{WRAPPER}def f(conf, x, flags):\n"
            f"    return tf.Session(config=npu_config_proto(config_proto={value}))\n"
        )
        check_rewrite(RULE, before, after)


def test_a_config_that_may_be_none_is_wrapped() -> None:
    before = "import tensorflow as tf\nc = None\nif g:\n    c = tf.ConfigProto()\ns = tf.Session(config=c)\n"
    assert "npu_config_proto(config_proto=c)" in migrate_source(before, RULE).after.decode()


def test_a_comment_in_a_moved_config_occurs_once() -> None:
    source = (
        "import tensorflow as tf\nwith tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(\n"
        "        allow_soft_placement=True,  # needed\n        log_device_placement=False)) as sess:\n    sess.run(x)\n"
    )
    assert migrate_source(source, "session_config").after.decode().count("# needed") == 1
