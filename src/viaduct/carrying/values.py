"""Lines in which the user changed values by hand in the migrated copy (--migrated).

Such a line differs from the original only in numbers, strings, operators or keywords, and the rules would write it
differently. If the runs agree nevertheless, nothing that was compared shows the change.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize

from viaduct.carrying.sides import Sides

DEVICE = re.compile(r"^(?:cuda|npu|mlu)(?::0)?(?=$|:)")  # "cuda", "npu" and "npu:0" count as equal
PUNCTUATION = set("()[]{},:;.=")
SKIPPED = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}


def find_changed_values(sides: Sides) -> list[str]:
    """Return the lines with values changed by hand, as `file:line: text (original: text)`."""
    return [
        f"{path}:{row.new}: {row.new_text.strip()} (original: {row.old_text.strip()})"
        for path, rows in sides.diffs.items()
        for row in rows
        if row.kind == "changed" and row.new in sides.deviating_lines.get(path, set())
        if differs_in_values(row.old_text, row.new_text)
    ]


def differs_in_values(old: str, new: str) -> bool:
    """Return True if two lines have the same names in the same order, but other values or operators."""
    before, after = split_line(old), split_line(new)
    if before is None or after is None or before == after:
        return False
    return [name for kind, name in before if kind == "name"] == [name for kind, name in after if kind == "name"]


def split_line(text: str) -> list[tuple[str, object]] | None:
    """Return the names, values and operators of a line, without punctuation; None if it cannot be tokenized.

    Of a line that ends within a bracket, which is an error for `tokenize`, the tokens before the end are returned.
    """
    tokens: list[tuple[str, object]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text.strip() + "\n").readline):
            if token.type in SKIPPED or token.string in PUNCTUATION:
                continue
            prefix = token.string.lower().partition(token.string[-1])[0]  # of a string: the letters before its quote
            if token.type == tokenize.STRING and "f" in prefix:
                tokens += split_formatted(token.string)
            elif token.type in (tokenize.NUMBER, tokenize.STRING):
                tokens.append(("value", evaluate_literal(token.string)))
            elif token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                tokens.append(("name", token.string))
            else:
                tokens.append(("operator", token.string))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        if not tokens:
            return None
    return tokens


def split_formatted(text: str) -> list[tuple[str, object]]:
    """Return the names, values and operators of an f-string; before Python 3.12 it is one token."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return [("value", text)]
    tokens: list[tuple[str, object]] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Constant):
            tokens.append(("value", part.value))
        elif isinstance(part, ast.Name):
            tokens.append(("name", part.id))
        elif isinstance(part, ast.Attribute):
            tokens.append(("name", part.attr))
        elif isinstance(part, (ast.operator, ast.cmpop, ast.unaryop, ast.boolop)):
            tokens.append(("operator", type(part).__name__))
    return tokens


def evaluate_literal(text: str) -> object:
    """Return the value of a number or string; its text if Python does not accept it."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return DEVICE.sub("device", value) if isinstance(value, str) else value
