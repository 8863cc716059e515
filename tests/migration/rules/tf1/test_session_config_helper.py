"""Functions that return the config of sessions, which may be in other files."""

from __future__ import annotations

from textwrap import dedent

from migration.checking import check_noop, check_says, migrate_source

HELPER = """
import tensorflow as tf
def make_config():
    return tf.ConfigProto(allow_soft_placement=True)
"""
HEAD = "import tensorflow as tf\nfrom helper import make_config\n"
USER = HEAD + "config = make_config()\nsess = tf.Session(config=config)\n"


def test_a_helper_that_no_session_uses_is_left_alone() -> None:
    check_noop("session_config_helper", HELPER, path="helper.py")
    estimator = HEAD + "tf.estimator.RunConfig(session_config=make_config())\n"
    check_noop("session_config_helper", HELPER, path="helper.py", others={"main.py": estimator})


def test_the_sessions_of_a_helper_are_left_alone() -> None:
    check_noop("session_config", USER, path="main.py", others={"helper.py": HELPER})


def test_the_helper_is_edited_for_a_session_in_another_file() -> None:
    after = migrate_source(HELPER, path="helper.py", others={"main.py": USER}).after.decode()
    assert "    config = tf.ConfigProto(allow_soft_placement=True)\n    custom_op = config." in after
    assert after.endswith("RewriterConfig.OFF\n    return config\n")


def test_wrapper_style_wraps_the_result() -> None:
    after = migrate_source(HELPER, path="helper.py", others={"main.py": USER}, style="wrapper").after.decode()
    assert "return npu_config_proto(config_proto=tf.ConfigProto(allow_soft_placement=True))" in after


def test_a_helper_with_npu_optimizer_is_left_alone() -> None:
    ready = """
        import tensorflow as tf
        def make_config():
            config = tf.ConfigProto()
            op = config.graph_options.rewrite_options.custom_optimizers.add()
            op.name = "NpuOptimizer"
            return config
        sess = tf.Session(config=make_config())
        """
    for rule in ("session_config_helper", "session_config"):
        check_noop(rule, dedent(ready))


def test_a_helper_for_sessions_without_a_gpu_needs_manual_review() -> None:
    helper = HELPER.replace("allow_soft_placement=True", "device_count={'GPU': 0}")
    others = {"main.py": USER}
    check_says("session_config_helper", helper, "manual", "stays on the host", path="helper.py", others=others)
