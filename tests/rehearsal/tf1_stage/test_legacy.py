"""Names and arguments of older packages."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_only_missing_aliases_of_numpy_are_added_and_text_with_bars_is_a_list() -> None:
    answer = evaluate(
        "original",
        """
        from absl.flags import EnumParser
        parse = EnumParser("red|green").parse
        letters = EnumParser("ab").parse
        answer = {
            "aliases": [np.zeros(1, kind).dtype.name for kind in (np.bool, np.int, np.float, np.complex)],
            "listed": [EnumParser(["x|y"]).parse("x|y"), parse("red"), parse("green"), letters("b")],
            "refused": [refusal(lambda: parse("red|green")), refusal(lambda: letters("ab"))],
        }
        """,
    )
    assert answer["aliases"] == ["bool", "int64", "float64", "complex128"]
    assert answer["listed"] == ["x|y", "red", "green", "b"]
    assert all(refusal.startswith("ValueError") for refusal in answer["refused"])
