"""Exits of a block, and lines that are inserted before them."""

from __future__ import annotations

import pytest

from migration.checking import check_rewrite, migrate_source

RULE = "session_close"


HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize("leave", ["tf.app.run()", "app.run(main)", "sys.exit(main())", "exit(0)"])
def test_nothing_is_inserted_after_an_exit(leave: str) -> None:
    head = "import sys\nfrom absl import app\nimport tensorflow as tf\n"
    body = f"sess = tf.Session()\nsess.run(a)\nif __name__ == '__main__':\n    {leave}\n"
    after = migrate_source(head + body, RULE).after.decode()
    assert after.endswith(f"sess.run(a)\nif __name__ == '__main__':\n    {leave}\n")
    assert "atexit.register(sess.close)" in after


def test_a_returned_value_is_computed_first() -> None:
    check_rewrite(
        RULE,
        """
        import tensorflow as tf
        def f(x):
            sess = tf.InteractiveSession()
            if x:
                return  # nothing
            if not x: return loss.eval()
            for i in x:
                break
            return (loss.eval(),
                    x)
        """,
        """
        import tensorflow as tf
        def f(x):
            sess = tf.InteractiveSession()
            if x:
                sess.close()
                return  # nothing
            if not x: result = loss.eval(); sess.close(); return result
            for i in x:
                break
            result = (loss.eval(),
                    x)
            sess.close()
            return result
        """,
    )


@pytest.mark.parametrize(
    ("imported", "last"),
    [
        ("", "tf.test.main()"),
        ("", "tf.compat.v1.test.main()"),
        ("import unittest\n", "unittest.main()"),
        ("from absl.testing import absltest\n", "absltest.main()"),
        ("from tensorflow.python.platform import test\n", "test.main()"),
        ("", "tf.app.run(main=main)"),
    ],
)
@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__":\n    '])
def test_no_close_is_inserted_after_the_end_of_the_process(imported: str, last: str, guard: str) -> None:
    body = f"sess = tf.Session()\nATEXITsess.run(a)\n{guard}{last}\n"
    after = migrate_source(HEAD + imported + body.replace("ATEXIT", ""), RULE).after.decode()
    assert after.endswith(body.replace("ATEXIT", "atexit.register(sess.close)\n"))


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("sys.exit(0)", "sess.close()\n    sys.exit(0)"),
        ("exit()", "sess.close()\n    exit()"),
        ("raise SystemExit(1)", "sess.close()\n    raise SystemExit(1)"),
        ("sys.exit(sess.run(a))", "result = sess.run(a)\n    sess.close()\n    sys.exit(result)"),
        (
            "if bad:\n        sys.exit(1)\n    go()",
            "if bad:\n        sess.close()\n        sys.exit(1)\n    go()\n    sess.close()",
        ),
    ],
)
def test_a_session_is_closed_before_a_function_ends_the_process(before: str, later: str) -> None:
    head = "import sys\n" + HEAD + "def main():\n    sess = tf.Session()\n    sess.run(b)\n    "
    assert migrate_source(head + before + "\n", RULE).after.decode() == head + later + "\n"


def test_a_function_that_starts_the_tests_leaves_the_close_to_the_end_of_the_process() -> None:
    source = HEAD + "def main():\n    sess = tf.Session()\n    sess.run(b)\n    tf.test.main()\n"
    after = migrate_source(source, RULE).after.decode()
    assert "    sess = tf.Session()\n    atexit.register(sess.close)\n" in after
    assert after.endswith("    tf.test.main()\n")
