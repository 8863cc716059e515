"""Tokens of a part of a source are those of the whole, and only edited statements are tokenized."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable

import pytest

from viaduct.migration.source import LAYOUT_TOKENS, Source, Token, tokenize_part


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n\\\ny = 2\n",
        "x = 1; y = 2\nz = 3",
        "\n\n# c\nx = 1\n# d\n\n\ny = 2\n# e",
        "@a\n@b\ndef f():\n    pass\n@c\nclass A: pass\n",
        "\f\nx = 1\n\fy = 2\n",
        '"""a\nb"""\r\nx = 1 # c\r\ny = (1,\r\n 2)\r\n',
        "if x:\n  a\n# c\nelse:\n  b\nz = 1\n",
        'é = "中"; y = 1\nz = "中" # 中\nk = 1\n',
    ],
)
def test_a_text_that_is_tokenized_piece_by_piece_has_the_tokens_of_the_whole(text: str) -> None:
    def drop_layout(tokens: Iterable[Token]) -> list[Token]:
        return [token for token in tokens if token.kind not in LAYOUT_TOKENS or token.kind == tokenize.COMMENT]

    source = Source(text)
    expected = drop_layout(tokenize_part(text, 0))
    assert drop_layout(source.all_tokens_from(0)) == expected
    for token in expected:
        assert token.kind in LAYOUT_TOKENS or source.token_before(token.end) == token
        assert next(iter(drop_layout(source.all_tokens_from(token.start)))) == token


def test_only_the_statements_that_are_edited_are_tokenized() -> None:
    source = Source("x = 1\n" * 100 + "y = f(1)\n" + "x = 1\n" * 100)
    assert next(source.tokens_from(source.text.index("f("))).text == "f"
    assert len(source.chunks) == 1
