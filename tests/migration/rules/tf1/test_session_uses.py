"""Uses of a session, and objects that keep it after its block."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

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


HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("def f():\n    return tf.Session()\n", "the caller of f"),
        ("def f():\n    sess = tf.Session()\n    return sess, 1\n", "the caller of f"),
        ("def f():\n    sess = tf.Session()\n    yield sess\n", "the caller of f"),
        ("def f():\n    sess = tf.Session()\n    return Model(sess)\n", "the caller of f"),
        ("def f():\n    sess = tf.Session()\n    m = Model(sess)\n    return m\n", "the caller of f"),
        ("def f(self):\n    sess = tf.Session()\n    self.sess = sess\n", "self.sess"),
        ("class A:\n    def f(self):\n        self.sess = tf.Session()\n", "class A"),
        ("def f():\n    global sess\n    sess = tf.Session()\n", "global"),
        ("sess = tf.Session()\nK.set_session(sess)\n", "Keras"),
        ("K.set_session(tf.Session())\n", "no variable"),
        ("def f(x):\n    if x:\n        s = tf.Session()\n    s.run(a)\n", "branch"),
        ("def f(x):\n    if x:\n        s = tf.Session()\n    else:\n        s = None\n    g(s)\n", "branch"),
        ("def f():\n    s = tf.Session()\n    def g():\n        return s.run(a)\n    return g\n", "kept by g"),
        ("def f():\n    s = tf.Session()\n    return lambda: s.run(a)\n", "a lambda"),
        ("def f():\n    s = tf.Session()\n    s.run(a)\n    del s\n", "used for the last time"),
        (
            "def f():\n    s = tf.Session()\n    try:\n        return 1\n    finally:\n        s.run(a)\n    g()\n",
            "finally",
        ),
        ("def f(x):\n    s = tf.Session()\n    s.run(a)\n    s = tf.Session()\n    s.run(a)\n", "more than once"),
        ("def f(x):\n    s = tf.Session()\n    while True:\n        s.run(a)\n", "never ends"),
    ],
)
def test_the_keeper_of_a_session_is_named(body: str, word: str) -> None:
    check_says("session_close", HEAD + body, "manual", word)


def test_a_function_with_a_parameter_of_the_same_name_uses_its_own() -> None:
    body = "def train(sess):\n    sess.run(a)\nsess = tf.Session()\ntrain(sess)\n"
    check_rewrite("session_close", HEAD + body, HEAD + body + "sess.close()\n")


def test_a_function_that_is_only_called_where_it_is_defined_is_no_keeper() -> None:
    body = "def f():\n    s = tf.Session()\n    def step(i):\n        return s.run(a)\n    step(1)\n"
    check_rewrite("session_close", HEAD + body, HEAD + body + "    s.close()\n")
