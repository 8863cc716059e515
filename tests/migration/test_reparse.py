"""A text of which only a part is parsed again after edits has the same tree as if it were parsed completely."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable

import pytest

from viaduct.migration.edits import Edits
from viaduct.migration.names import Names
from viaduct.migration.reparse import parse_edited
from viaduct.migration.source import Source, Unparsable

TEXT = '''"""A docstring
over two lines."""
import os; import sys
from a import (
    b,
    c,
)

# a comment
x = 1; y = (
    2
); z = 3


@decorated(
    1
)
@again
def f(a, b=1):
    """Text."""
    global z
    z = b
    if a: return b
    else:
        return """
    several
lines"""

from c import *
class A(B):
    from d import e
    def g(self):
        x = [(w := i, lambda v: v + os.x) for i in self.x]  # comment
        return x

    async def h(self): pass

for i in range(3):
    print(f"{i!r:>{x}}")
else:
    pass
v = 1 \\
    + 2
try:
    pass
except* ValueError as e:
    pass
match v:
    case {"a": 1, **rest}: pass
    case [1, *_] | None: pass
if __name__ == "__main__":
    f(1)
'''
PIECES = (
    "",
    "1",
    "\n",
    "\n\n",
    "x = 2\n",
    " ",
    "# c\n",
    "import q\n",
    ")",
    "(",
    "'",
    '"""',
    "    ",
    ";",
    "é",
    "\r\n",
    "\\\n",
)


def describe(source: Source) -> str:
    return ast.dump(source.tree, include_attributes=True)


def describe_names(names: Names) -> list[object]:
    """Return each name's binding and meaning, and the names that the module binds."""
    found: list[object] = [names.resolve_top_level(), sorted(names.used_names), names.stars]
    for node in names.source.nodes_of_type(ast.Name):
        home = names.binding_scope(node.id, names.scope_of(node))
        line = getattr(home.node, "lineno", 0) if home is not None else -1
        found.append((node.id, node.lineno, line, len(home.bindings[node.id]) if home else 0, names.qualified(node)))
    return found


def attempt(parse: Callable[[], Source]) -> tuple[Source | None, str]:
    try:
        return parse(), ""
    except Unparsable as error:
        return None, str(error)


def check(text: str, changes: list[tuple[int, int, str]]) -> bool:
    """Make the changes and compare both ways of parsing; return False if the result is no Python."""
    former = Source(text)
    assert former.children
    edits = Edits(former)
    for start, end, new in changes:
        edits.replace(start, end, new)
    result = edits.apply(list(range(1, len(former.line_starts) + 1)))[0]
    parsed, error = attempt(lambda: Source(result))
    partly, same_error = attempt(lambda: parse_edited(former, edits.made, result))
    assert error == same_error
    if parsed is None or partly is None:
        return False
    assert describe(partly) == describe(parsed)
    assert [type(node) for node in partly.nodes] == [type(node) for node in parsed.nodes]
    assert partly.line_starts == parsed.line_starts
    assert describe_names(Names(partly, former=Names(former))) == describe_names(Names(parsed))
    return True


def test_random_edits_give_the_tree_of_the_whole_text() -> None:
    dice = random.Random(7)
    parsed = 0
    for _ in range(3000):
        text = TEXT.replace("\n", "\r\n") if dice.random() < 0.1 else TEXT
        positions = sorted(dice.randrange(len(text)) for _ in range(2 * dice.randint(1, 3)))
        if dice.random() < 0.5:  # whole lines and words break less than arbitrary characters
            positions = [text.find("\n", position) + 1 or position for position in positions]
        if sorted(positions) != positions or len({*positions[::2]}) < len(positions[::2]):
            continue
        ends = [min(b, a + dice.choice([0, 0, 1, 5])) for a, b in zip(positions[::2], positions[1::2], strict=True)]
        if any(text[position - 1 : position + 1] == "\r\n" for position in [*positions[::2], *ends]):
            continue  # no rule edits between the two characters of a line's end
        parsed += check(text, [(a, b, dice.choice(PIECES)) for a, b in zip(positions[::2], ends, strict=True)])
    assert parsed > 300


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n\n# a comment\n", "\nimport q\n# a comment\n"),  # between statements, lines stay where they are
        ("# a comment", "x = 5"),
        (" z = 3", " z = 4"),  # shares its line with the end of another
        ("again", "twice"),
        ("    f(1)\n", "    f(2)"),  # the last line loses its end
        ("import os; ", ""),
        ('"""A docstring\nover', '"""Over'),  # everything moves up
        ('lines"""', 'lines\n"""'),
    ],
)
def test_an_edit_gives_the_tree_of_the_whole_text(old: str, new: str) -> None:
    start = TEXT.index(old)
    assert check(TEXT, [(start, start + len(old), new)])


def test_statements_that_no_edit_touches_are_not_parsed_again() -> None:
    former = Source("import os\ndef f():\n    return 1\ndef g():\n    return 2\nx = 3\n")
    edits = Edits(former)
    start = former.text.index("return 2")
    edits.replace(start, start + 8, "return 4")
    new = parse_edited(former, edits.made, edits.apply([*range(1, 8)])[0])
    assert [statement in former.tree.body for statement in new.tree.body] == [True, True, False, True]
    assert len(new.nodes) == len(former.nodes)
    assert new.former is None, "the former tree is held although nothing of it is needed any more"
