"""Sessions that are left open: closed at the end of their block, or reported if something keeps them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from migration.checking import check_noop, check_rewrite, migrate_source

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


def test_a_plain_session_is_closed_at_the_end_of_the_module() -> None:
    body = "sess = tf.Session()\nfor i in range(3):\n    sess.run(a)  # go\n# done"
    assert migrate_source(HEAD + body, RULE).after.decode() == HEAD + body.replace("# go\n", "# go\nsess.close()\n")


def test_without_a_last_newline() -> None:
    check_rewrite(RULE, HEAD + "s = tf.Session()\ns.run(a)", HEAD + "s = tf.Session()\ns.run(a)\ns.close()")


def test_a_session_that_functions_use_is_closed_by_atexit() -> None:
    body = "sess = tf.Session()\n{}def predict(x):\n    return sess.run(y, {{x: x}})\n"
    after = "import tensorflow as tf\nimport atexit\n" + body.format("atexit.register(sess.close)\n")
    check_rewrite(RULE, HEAD + body.format(""), after)


def test_an_imported_atexit_is_used() -> None:
    head = "import atexit as at\nimport tensorflow as tf\n"
    after = migrate_source(head + "sess = tf.Session()\ndef f():\n    return sess.run(a)\n", RULE).after.decode()
    assert after.startswith(head + "sess = tf.Session()\nat.register(sess.close)\n")


def test_a_session_is_closed_in_the_main_that_app_run_starts() -> None:
    body = "def main(_):\n  sess = tf.Session()\n  sess.run(a)\n{}\nif __name__ == '__main__':\n  tf.app.run()\n"
    check_rewrite(RULE, HEAD + body.format(""), HEAD + body.format("  sess.close()\n"))


def test_a_session_is_closed_in_an_existing_finally() -> None:
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
    assert migrate_source(_dedent(before), RULE).after.decode() == _dedent(after)


def test_a_trivial_return_after_the_finally_needs_no_close() -> None:
    body = "def f(x):\n    s = tf.Session()\n    try:\n        s.run(x)\n    finally:\n        end()\n{}    return x\n"
    check_rewrite(RULE, HEAD + body.format(""), HEAD + body.format("        s.close()\n"))


def test_a_session_of_a_loop_is_closed_in_each_iteration() -> None:
    before = (
        "def f():\n\tfor i in range(3):\n\t\tsess = tf.Session()\n\t\tif i: continue\n\t\tfor j in range(3):\n"
        "\t\t\tbreak\n\t\telse:\n\t\t\tbreak\n\t\tsess.run(a)\n"
    )
    after = before.replace("if i: continue", "if i: sess.close(); continue")
    after = after.replace("else:\n\t\t\tbreak", "else:\n\t\t\tsess.close()\n\t\t\tbreak") + "\t\tsess.close()\n"
    check_rewrite(RULE, HEAD + before, HEAD + after)


def test_a_session_used_after_its_with_block_is_closed_later() -> None:
    body = "def f():\n    with tf.Graph().as_default():\n        s = tf.Session()\n{}    {}\n{}"
    inside = HEAD + body.format("", "pass", "")
    assert "        s = tf.Session()\n        s.close()\n" in migrate_source(inside, RULE).after.decode()
    behind = migrate_source(HEAD + body.format("", "s.run(a)", ""), RULE).after.decode()
    assert behind.endswith("    s.run(a)\n    s.close()\n")


def test_a_session_opened_in_both_branches_is_closed_once() -> None:
    body = "def f(x):\n    if x:\n        s = tf.Session()\n    else:\n        s = tf.Session(graph=g)\n    s.run(a)\n"
    check_rewrite(RULE, HEAD + body, HEAD + body + "    s.close()\n")


def test_a_debug_wrapper_is_the_same_session() -> None:
    head = HEAD + "from tensorflow.python import debug as tf_debug\n"
    body = "sess = tf.Session()\nsess = tf_debug.LocalCLIDebugWrapperSession(sess)\nsess.run(a)\n"
    check_rewrite(RULE, head + body, head + body + "sess.close()\n")


def test_a_session_is_configured_and_closed() -> None:
    """A device block is removed, the session is configured, then closed."""
    before = """
        import tensorflow as tf
        def train():
            with tf.device('/gpu:0'):
                sess = tf.Session(config=tf.ConfigProto(allow_soft_placement=True))
                sess.run(step)
        """
    after = migrate_source(_dedent(before)).after.decode()
    assert "    sess = tf.Session(config=config)\n    sess.run(step)\n    sess.close()\n" in after
    assert "NpuOptimizer" in after


def _dedent(text: str) -> str:
    return "".join(line.removeprefix("        ") for line in text.splitlines(keepends=True))


def test_a_module_that_others_import_closes_at_exit() -> None:
    others = {"main.py": "import tensorflow as tf\nfrom model import sess\nsess.run(a)\n"}
    after = migrate_source(
        HEAD + "sess = tf.Session()\nsess.run(a)\n", RULE, path="model.py", others=others
    ).after.decode()
    assert "atexit.register(sess.close)" in after
    assert "\nsess.close()" not in after


def test_each_of_several_sessions_of_one_name_is_closed_at_exit() -> None:
    body = "sess = tf.Session()\ndef f():\n    sess.run(a)\nf()\nsess = tf.Session()\nf()\n"
    assert (
        migrate_source(HEAD + body, RULE).after.decode().count("sess = tf.Session()\natexit.register(sess.close)\n")
        == 2
    )


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
    """Return the lines of random statements, indented by tabs."""
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
    """Return f(n), the program's output and the sessions it opened."""
    CountedSession.opened = []
    names: dict[str, Any] = {"tf": SimpleNamespace(Session=CountedSession)}
    exec(text.partition("\n")[2], names)
    out: list[int] = []
    given = names["f"](n, out, Scope())
    return given, out, CountedSession.opened


@pytest.mark.parametrize("seed", range(3))
def test_random_functions_close_their_sessions_and_compute_the_same(seed: int) -> None:
    rng = random.Random(seed)
    changed = 0
    for _ in range(25):
        text = draw_program(rng)
        result = migrate_source(text, "session_close")
        if any(finding.status == "manual" for finding in result.findings):
            assert result.after.decode() == text
            continue
        changed += 1
        for n in range(8):
            first, second = run_program(text, n), run_program(result.after.decode(), n)
            assert first[:2] == second[:2], result.after.decode()
            assert all(session.closed for session in second[2]), result.after.decode()
    assert changed > 10
