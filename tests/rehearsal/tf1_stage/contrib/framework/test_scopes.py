"""Default arguments of functions within a scope."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


PLAIN = """
from tensorflow.contrib.framework import add_arg_scope, arg_scope
@add_arg_scope
def layer(x, size=1, name="plain"):
    return [x, size, name]
def bare(x):
    return x
"""


def test_arguments_of_the_call_win_and_the_outer_scope_is_restored_even_after_an_error() -> None:
    answer = evaluate(
        "original",
        PLAIN
        + """
with arg_scope([layer], size=2, name="outer"):
    with arg_scope([layer], size=3):
        inner = [layer(0), layer(0, 7), layer(0, size=8, name="own")]
    outer = layer(0)
def fail():
    with arg_scope([layer], size=9):
        raise KeyError
answer = [inner, outer, refusal(fail), layer(0)]
""",
    )
    assert answer[0] == [[0, 3, "outer"], [0, 7, "outer"], [0, 8, "own"]]
    assert answer[1] == [0, 2, "outer"]
    assert answer[2].startswith("KeyError")
    assert answer[3] == [0, 1, "plain"]


def test_a_scope_is_entered_again_as_it_was_and_not_with_more_arguments() -> None:
    answer = evaluate(
        "original",
        PLAIN
        + """
with arg_scope([layer], size=5) as scope:
    pass
with arg_scope(scope):
    again = layer(0)
def more():
    with arg_scope(scope, size=6):
        pass
def undecorated():
    with arg_scope([bare], size=6):
        pass
answer = [again, refusal(more), refusal(undecorated)]
""",
    )
    assert answer[0] == [0, 5, "plain"]
    assert "kwargs must be empty" in answer[1]
    assert "not decorated" in answer[2]
