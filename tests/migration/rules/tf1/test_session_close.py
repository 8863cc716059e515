"""Sessions that nobody closes are closed where their block ends; those with an owner are named."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

RULE = "session_close"
HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "body",
    [
        "with tf.Session() as sess:\n    sess.run(a)\n",
        "sess = tf.Session()\nsess.run(a)\nsess.close()\n",
        "sess = tf.Session()\ntry:\n    sess.run(a)\nfinally:\n    sess.close()\n",
        "sess = tf.Session()\nwith sess:\n    sess.run(a)\n",
        "from contextlib import closing\nwith closing(tf.Session()) as sess:\n    sess.run(a)\n",
        "sess = tf.Session()\nwith contextlib.closing(sess):\n    sess.run(a)\n",
        "with ExitStack() as stack:\n    sess = stack.enter_context(tf.Session())\n    sess.run(a)\n",
        "sess = tf.Session()\nsess.run(a)\natexit.register(sess.close)\n",
        "import requests\ns = requests.Session()\ns.get(u)\n",
        "class A:\n    def f(self):\n        self.s = tf.Session()\n    def end(self):\n        self.s.close()\n",
        "with tf.train.MonitoredTrainingSession() as s:\n    s.run(a)\n",
        "sess = tf.Session()\nsaver.restore(sess, path)\n",
    ],
)
def test_what_is_closed_already_is_left_alone(body: str) -> None:
    check_noop(RULE, HEAD + body)


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
def test_who_keeps_a_session_is_named(body: str, word: str) -> None:
    check_says(RULE, HEAD + body, "manual", word)


def test_a_plain_session_is_closed_at_the_end_of_the_module() -> None:
    body = "sess = tf.Session()\nfor i in range(3):\n    sess.run(a)  # go\n# done"
    assert migrated(HEAD + body, RULE).after.decode() == HEAD + body.replace("# go\n", "# go\nsess.close()\n")


def test_without_a_last_newline() -> None:
    check_rewrite(RULE, HEAD + "s = tf.Session()\ns.run(a)", HEAD + "s = tf.Session()\ns.run(a)\ns.close()")


def test_functions_that_use_it_keep_it_open_till_the_program_ends() -> None:
    body = "sess = tf.Session()\n{}def predict(x):\n    return sess.run(y, {{x: x}})\n"
    after = "import tensorflow as tf\nimport atexit\n" + body.format("atexit.register(sess.close)\n")
    check_rewrite(RULE, HEAD + body.format(""), after)


def test_an_imported_atexit_is_used() -> None:
    head = "import atexit as at\nimport tensorflow as tf\n"
    after = migrated(head + "sess = tf.Session()\ndef f():\n    return sess.run(a)\n", RULE).after.decode()
    assert after.startswith(head + "sess = tf.Session()\nat.register(sess.close)\n")


@pytest.mark.parametrize("leave", ["tf.app.run()", "app.run(main)", "sys.exit(main())", "exit(0)"])
def test_nothing_is_put_behind_what_leaves_the_program(leave: str) -> None:
    head = "import sys\nfrom absl import app\nimport tensorflow as tf\n"
    body = f"sess = tf.Session()\nsess.run(a)\nif __name__ == '__main__':\n    {leave}\n"
    after = migrated(head + body, RULE).after.decode()
    assert after.endswith(f"sess.run(a)\nif __name__ == '__main__':\n    {leave}\n")
    assert "atexit.register(sess.close)" in after


def test_inside_the_main_that_app_run_starts() -> None:
    body = "def main(_):\n  sess = tf.Session()\n  sess.run(a)\n{}\nif __name__ == '__main__':\n  tf.app.run()\n"
    check_rewrite(RULE, HEAD + body.format(""), HEAD + body.format("  sess.close()\n"))


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


def test_in_the_finally_that_is_there() -> None:
    body = """
        import tensorflow as tf
        def f(x):
            sess = tf.Session()
            if x:
        {}        return 0
            try:
                return sess.run(x)
            finally:
                coord.join(threads)
        {}"""
    before = body.format("", "")
    after = body.format("        sess.close()\n        ", "        sess.close()\n")
    assert migrated(_dedent(before), RULE).after.decode() == _dedent(after)


def test_a_trivial_return_behind_the_finally_gets_nothing() -> None:
    body = "def f(x):\n    s = tf.Session()\n    try:\n        s.run(x)\n    finally:\n        end()\n{}    return x\n"
    check_rewrite(RULE, HEAD + body.format(""), HEAD + body.format("        s.close()\n"))


def test_a_session_of_a_loop_is_closed_in_each_round() -> None:
    before = (
        "def f():\n\tfor i in range(3):\n\t\tsess = tf.Session()\n\t\tif i: continue\n\t\tfor j in range(3):\n"
        "\t\t\tbreak\n\t\telse:\n\t\t\tbreak\n\t\tsess.run(a)\n"
    )
    after = before.replace("if i: continue", "if i: sess.close(); continue")
    after = after.replace("else:\n\t\t\tbreak", "else:\n\t\t\tsess.close()\n\t\t\tbreak") + "\t\tsess.close()\n"
    check_rewrite(RULE, HEAD + before, HEAD + after)


def test_a_with_block_around_is_no_end_if_the_session_lives_on() -> None:
    body = "def f():\n    with tf.Graph().as_default():\n        s = tf.Session()\n{}    {}\n{}"
    inside = HEAD + body.format("", "pass", "")
    assert "        s = tf.Session()\n        s.close()\n" in migrated(inside, RULE).after.decode()
    behind = migrated(HEAD + body.format("", "s.run(a)", ""), RULE).after.decode()
    assert behind.endswith("    s.run(a)\n    s.close()\n")


def test_both_branches_open_it_and_one_close_ends_it() -> None:
    body = "def f(x):\n    if x:\n        s = tf.Session()\n    else:\n        s = tf.Session(graph=g)\n    s.run(a)\n"
    check_rewrite(RULE, HEAD + body, HEAD + body + "    s.close()\n")


def test_a_debug_wrapper_is_the_same_session() -> None:
    head = HEAD + "from tensorflow.python import debug as tf_debug\n"
    body = "sess = tf.Session()\nsess = tf_debug.LocalCLIDebugWrapperSession(sess)\nsess.run(a)\n"
    check_rewrite(RULE, head + body, head + body + "sess.close()\n")


def test_together_with_the_config() -> None:
    """N4 around S1, S9 behind: whole rules on one script."""
    before = """
        import tensorflow as tf
        def train():
            with tf.device('/gpu:0'):
                sess = tf.Session(config=tf.ConfigProto(allow_soft_placement=True))
                sess.run(step)
        """
    after = migrated(_dedent(before)).after.decode()
    assert "    sess = tf.Session(config=config)\n    sess.run(step)\n    sess.close()\n" in after
    assert "NpuOptimizer" in after


def _dedent(text: str) -> str:
    return "".join(line.removeprefix("        ") for line in text.splitlines(keepends=True))


def test_a_function_with_a_parameter_of_the_same_name_uses_its_own() -> None:
    body = "def train(sess):\n    sess.run(a)\nsess = tf.Session()\ntrain(sess)\n"
    check_rewrite(RULE, HEAD + body, HEAD + body + "sess.close()\n")


def test_a_function_called_where_it_is_defined_keeps_nothing() -> None:
    body = "def f():\n    s = tf.Session()\n    def step(i):\n        return s.run(a)\n    step(1)\n"
    check_rewrite(RULE, HEAD + body, HEAD + body + "    s.close()\n")


def test_a_module_that_others_import_closes_at_exit() -> None:
    others = {"main.py": "import tensorflow as tf\nfrom model import sess\nsess.run(a)\n"}
    after = migrated(HEAD + "sess = tf.Session()\nsess.run(a)\n", RULE, path="model.py", others=others).after.decode()
    assert "atexit.register(sess.close)" in after
    assert "\nsess.close()" not in after


def test_each_of_several_sessions_of_one_name_is_closed_at_exit() -> None:
    body = "sess = tf.Session()\ndef f():\n    sess.run(a)\nf()\nsess = tf.Session()\nf()\n"
    assert migrated(HEAD + body, RULE).after.decode().count("sess = tf.Session()\natexit.register(sess.close)\n") == 2


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
def test_nothing_is_closed_behind_what_ends_the_process(imported: str, last: str, guard: str) -> None:
    body = f"sess = tf.Session()\nATEXITsess.run(a)\n{guard}{last}\n"
    after = migrated(HEAD + imported + body.replace("ATEXIT", ""), RULE).after.decode()
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
    assert migrated(head + before + "\n", RULE).after.decode() == head + later + "\n"


def test_a_function_that_starts_the_tests_leaves_the_close_to_the_end_of_the_process() -> None:
    source = HEAD + "def main():\n    sess = tf.Session()\n    sess.run(b)\n    tf.test.main()\n"
    after = migrated(source, RULE).after.decode()
    assert "    sess = tf.Session()\n    atexit.register(sess.close)\n" in after
    assert after.endswith("    tf.test.main()\n")


class CountedSession:
    """A session of TensorFlow that counts how often it is closed."""

    opened: ClassVar[list[CountedSession]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self.closed = 0
        CountedSession.opened.append(self)

    def run(self, value: int) -> int:
        assert not self.closed, "a closed session is used"
        return value * 2

    def close(self) -> None:
        assert not self.closed, "a session is closed twice"
        self.closed += 1


def draw_body(rng: random.Random, depth: int, loop: bool) -> list[str]:
    """Some statements, each with its lines indented by what the generator chose for the whole function."""
    lines: list[str] = []
    for _ in range(rng.randint(1, 3)):
        lines += draw_statement(rng, depth, loop)
    return lines


def draw_statement(rng: random.Random, depth: int, loop: bool) -> list[str]:
    simple = [
        *(["out.append(sess.run(n))"], ["n += 1  # on"], ["if n % 3 == 0: out.append(n); n += 1"]),
        *(["if n % 4 == 1: return sess.run(n)"], ["if n > 6:", "\treturn n, out"]),
    ]
    if loop:
        simple += [["if n % 2: break"], ["if n % 5 == 2:", "\tcontinue"]]
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(simple)
    inner = ["\t" + line for line in draw_body(rng, depth - 1, loop)]
    looped = ["\t" + line for line in draw_body(rng, depth - 1, True)]
    return rng.choice(
        [
            ["for i in range(n % 4):", *looped],
            ["if n % 2 == 0:", *inner, "else:", "\tn += 2"],
            ["with scope:", *inner],
            ["try:", *inner, "finally:", "\tout.append(n)"],
        ]
    )


def draw_program(rng: random.Random) -> str:
    before, after = draw_body(rng, 0, False), draw_body(rng, 2, False)
    before = [line for line in before if "sess" not in line] or ["n += 0"]
    opening = rng.choice(
        [["sess = tf.Session()"], ["if n % 2:", "\tsess = tf.Session()", "else:", "\tsess = tf.Session('')"]]
    )
    lines = [*before, *opening, *after]
    ending = rng.choice([["return out"], ["return sess.run(n)"], ["return (n,", "\t\tsess.run(3))"], []])
    wrapped = ["with scope:", *("\t" + line for line in lines)] if rng.random() < 0.3 else lines
    unit = rng.choice(["\t", "  ", "    "])
    indented = [("\t" + line).replace("\t", unit) for line in [*wrapped, *ending]]
    return "import tensorflow as tf\ndef f(n, out, scope):\n" + "\n".join(indented) + "\n"


class Scope:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def run_program(text: str, n: int) -> tuple[Any, list[int], list[CountedSession]]:
    """What f gives for n, what it has written, which sessions it opened."""
    CountedSession.opened = []
    names: dict[str, Any] = {"tf": SimpleNamespace(Session=CountedSession)}
    exec(text.partition("\n")[2], names)
    out: list[int] = []
    given = names["f"](n, out, Scope())
    return given, out, CountedSession.opened


@pytest.mark.parametrize("seed", range(3))
def test_random_functions_close_what_they_open_and_do_the_same(seed: int) -> None:
    rng = random.Random(seed)
    changed = 0
    for _ in range(25):
        text = draw_program(rng)
        result = migrated(text, "session_close")
        if any(finding.status == "manual" for finding in result.findings):
            assert result.after.decode() == text
            continue
        changed += 1
        for n in range(8):
            first, second = run_program(text, n), run_program(result.after.decode(), n)
            assert first[:2] == second[:2], result.after.decode()
            assert all(session.closed for session in second[2]), result.after.decode()
    assert changed > 10
