"""Random functions, really run before and after: same results, every session closed, none used when it is closed.

TensorFlow is a stand-in of a few lines here: a session that counts.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from migration.checking import migrated


class Session:
    opened: ClassVar[list[Session]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self.closed = 0
        Session.opened.append(self)

    def run(self, value: int) -> int:
        assert not self.closed, "a closed session is used"
        return value * 2

    def close(self) -> None:
        assert not self.closed, "a session is closed twice"
        self.closed += 1


def body(rng: random.Random, depth: int, loop: bool) -> list[str]:
    """Some statements, each with its lines indented by what the generator chose for the whole function."""
    lines: list[str] = []
    for _ in range(rng.randint(1, 3)):
        lines += statement(rng, depth, loop)
    return lines


def statement(rng: random.Random, depth: int, loop: bool) -> list[str]:
    simple = [
        *(["out.append(sess.run(n))"], ["n += 1  # on"], ["if n % 3 == 0: out.append(n); n += 1"]),
        *(["if n % 4 == 1: return sess.run(n)"], ["if n > 6:", "\treturn n, out"]),
    ]
    if loop:
        simple += [["if n % 2: break"], ["if n % 5 == 2:", "\tcontinue"]]
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(simple)
    inner = ["\t" + line for line in body(rng, depth - 1, loop)]
    looped = ["\t" + line for line in body(rng, depth - 1, True)]
    return rng.choice(
        [
            ["for i in range(n % 4):", *looped],
            ["if n % 2 == 0:", *inner, "else:", "\tn += 2"],
            ["with scope:", *inner],
            ["try:", *inner, "finally:", "\tout.append(n)"],
        ]
    )


def program(rng: random.Random) -> str:
    before, after = body(rng, 0, False), body(rng, 2, False)
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


def results(text: str, n: int) -> tuple[Any, list[int], list[Session]]:
    """What f gives for n, what it has written, which sessions it opened."""
    Session.opened = []
    names: dict[str, Any] = {"tf": SimpleNamespace(Session=Session)}
    exec(text.partition("\n")[2], names)
    out: list[int] = []
    given = names["f"](n, out, Scope())
    return given, out, Session.opened


@pytest.mark.parametrize("seed", range(3))
def test_random_functions_close_what_they_open_and_do_the_same(seed: int) -> None:
    rng = random.Random(seed)
    changed = 0
    for _ in range(25):
        text = program(rng)
        result = migrated(text, "session_close")
        if any(finding.status == "manual" for finding in result.findings):
            assert result.after.decode() == text
            continue
        changed += 1
        for n in range(8):
            first, second = results(text, n), results(result.after.decode(), n)
            assert first[:2] == second[:2], result.after.decode()
            assert all(session.closed for session in second[2]), result.after.decode()
    assert changed > 10
