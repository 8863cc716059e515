"""Uses of a session that a script opened."""

from __future__ import annotations

from textwrap import dedent

from migration.checking import check_noop, check_says, migrate_source

RULE = "session_config"


def test_a_session_in_a_type_hint_or_a_check_is_no_session() -> None:
    check_noop(RULE, "import tensorflow as tf\ndef f(sess: tf.Session):\n    return isinstance(sess, tf.Session)\n")


def test_a_session_that_only_freezes_stays_on_the_host() -> None:
    freeze = """
        import tensorflow as tf
        def freeze(path):
            saver = tf.train.import_meta_graph(path + ".meta")
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                saver.restore(sess, path)
                out = tf.graph_util.convert_variables_to_constants(sess, sess.graph_def, ["out"])
        """
    check_says(RULE, freeze, "advice", "stays on the host")


def test_a_session_that_restores_and_runs_does_not_stay_on_the_host() -> None:
    text = """
        import tensorflow as tf
        with tf.Session() as sess:
            saver.restore(sess, path)
            {}
        """
    for use in ("sess.run(logits)", "logits.eval()", "evaluate(sess)"):
        after = migrate_source(dedent(text.format(use)), RULE).after.decode()
        assert "NpuOptimizer" in after, use
