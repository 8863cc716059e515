"""Edits of spans: the text around them stays byte for byte, in any layout."""

from __future__ import annotations

import ast
import random
from textwrap import dedent

import pytest

from migration.checking import migrate_source
from viaduct.migration.edits import Edits, Overlap
from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options
from viaduct.migration.source import Source, Unparsable, decode

HEAD = "import tensorflow as tf\n"
NEW = "from npu_bridge.estimator import npu_ops\n"


def after(data: bytes, rule: str = "dropout") -> bytes:
    return migrate_bytes("script.py", data, Options(only=(rule,) if rule else ())).after


def apply_edits(source: Source, edits: Edits) -> str:
    text, lines = edits.apply(list(range(1, len(source.line_starts) + 1)))
    ast.parse(text)
    assert len(lines) == len(Source(text).line_starts), "every line of the result stems from one of the original"
    return text


# ---- files as they come


def test_windows_line_ends_stay_and_new_lines_have_them() -> None:
    before = (HEAD + "a = 1  # one\nb = tf.nn.dropout(x, 0.5)\n").replace("\n", "\r\n").encode()
    expected = (HEAD + NEW + "a = 1  # one\nb = npu_ops.dropout(x, 0.5)\n").replace("\n", "\r\n").encode()
    assert after(before) == expected


def test_old_macintosh_line_ends() -> None:
    before = (HEAD + "b = tf.nn.dropout(x, 0.5)\n").replace("\n", "\r").encode()
    assert after(before) == (HEAD + NEW + "b = npu_ops.dropout(x, 0.5)\n").replace("\n", "\r").encode()


def test_line_ends_of_two_kinds_in_one_file() -> None:
    assert after(b"import tensorflow as tf\nb = 1\r\nc = tf.nn.dropout(x, 0.5)\r\nd = 2\n") == (
        b"import tensorflow as tf\nfrom npu_bridge.estimator import npu_ops\n"
        b"b = 1\r\nc = npu_ops.dropout(x, 0.5)\r\nd = 2\n"
    )


def test_no_final_newline() -> None:
    assert after(b"import tensorflow as tf\nb = tf.nn.dropout(x, 0.5)") == (
        b"import tensorflow as tf\nfrom npu_bridge.estimator import npu_ops\nb = npu_ops.dropout(x, 0.5)"
    )


def test_byte_order_mark_stays_first() -> None:
    result = after(b"\xef\xbb\xbfimport tensorflow as tf\nb = tf.nn.dropout(x, 0.5)\n")
    assert result.startswith(b"\xef\xbb\xbfimport tensorflow as tf\nfrom npu_bridge")
    assert result.count(b"\xef\xbb\xbf") == 1


@pytest.mark.parametrize("encoding", ["latin-1", "gbk", "utf-8", "cp1251"])
def test_encoding_cookie_is_obeyed(encoding: str) -> None:
    text = {"latin-1": "é", "gbk": "模型", "utf-8": "模é", "cp1251": "ж"}[encoding]
    before = f"# -*- coding: {encoding} -*-\n{HEAD}s = '{text}'; b = tf.nn.dropout({text}, 0.5)  # {text}\n"
    expected = before.replace(HEAD, HEAD + NEW).replace("tf.nn", "npu_ops")
    assert after(before.encode(encoding)) == expected.encode(encoding)


def test_unknown_encoding_and_wrong_bytes_are_told_not_raised() -> None:
    for data in (b"# -*- coding: klingon -*-\nx = 1\n", b"# -*- coding: utf-8 -*-\ns = '\xff'\n", b"\x00\x01\x02"):
        result = migrate_bytes("script.py", data, Options())
        assert not result.changed
        assert result.unread_reason
        assert [finding.rule for finding in result.findings] == ["engine.unparsable"]


def test_columns_count_characters_though_python_counts_bytes() -> None:
    before = HEAD + "s = '模型🚀é'; b = tf.nn.dropout(变量, rate=0.5)  # 训练\n"
    assert after(before.encode()).decode() == HEAD + NEW + (
        "s = '模型🚀é'; b = npu_ops.dropout(变量, keep_prob=1.0 - 0.5)  # 训练\n"
    )


@pytest.mark.parametrize("break_like", ["\x0c", "\x0b", "\x1c", "\u2028", "\x85"])
def test_what_only_looks_like_a_line_end_moves_no_finding(break_like: str) -> None:
    gap = f"{break_like}\n" if break_like == "\x0c" else f"s = '{break_like}'\n"
    result = migrate_source(HEAD + gap + "b = tf.nn.dropout(x, 0.5)\n", "dropout")
    assert [(finding.line, finding.before) for finding in result.findings] == [(3, "b = tf.nn.dropout(x, 0.5)")]
    assert result.findings[0].after == "b = npu_ops.dropout(x, 0.5)"


def test_form_feed_before_an_indented_block() -> None:
    before = HEAD + "def f(x):\n\x0c    y = tf.nn.dropout(x, 0.5)\n    return y\n"
    assert after(before.encode()).decode() == before.replace(HEAD, HEAD + NEW).replace("tf.nn", "npu_ops")


def test_null_bytes_empty_files_and_lone_comments() -> None:
    assert after(b"") == b""
    assert after(b"# nothing\n") == b"# nothing\n"
    with pytest.raises(Unparsable):
        Source("x = '\0'")
    assert decode(b"x = 1")[1] == "utf-8"


# ---- where the engine keeps its hands off


def test_nothing_within_an_f_string_is_touched() -> None:
    source = HEAD + "print(f\"{tf.nn.dropout(x, 0.5)!r:>{width}} {'a' + f'{tf.nn.dropout(x, 0.5)}'}\")\n"
    result = migrate_source(source, "dropout")
    assert not result.changed
    assert {finding.status for finding in result.findings} == {"manual"}


def test_a_call_that_holds_f_strings_with_commas_and_brackets() -> None:
    before = HEAD + "d = tf.data.Dataset.range(9).batch(int(f'{a},{b}(' f'){c}'[0]))\n"
    result = migrate_source(before, "dataset_drop_remainder").after.decode()
    assert result == before.replace("[0]))", "[0]), drop_remainder=True)")


# ---- decorators, walrus, match, lambda, comprehension


@pytest.mark.parametrize(
    "line",
    [
        "@wrap(tf.nn.dropout(x, 0.5))\ndef f(): pass\n",
        "@wrap\n@tf.nn.dropout(x, 0.5)\nclass A: pass\n",
        "if (y := tf.nn.dropout(x, 0.5)) is not None: print(y)\n",
        "match tf.nn.dropout(x, 0.5):\n    case [a] if tf.nn.dropout(a, 0.5): pass\n    case {'k': v, **kw}: pass\n",
        "f = lambda x, *, k=tf.nn.dropout(z, 0.5): tf.nn.dropout(x, 0.5)\n",
        "y = [tf.nn.dropout(a, 0.5) for a in tf.nn.dropout(b, 0.5) if tf.nn.dropout(c, 0.5)]\n",
        "def f(a, /, b=tf.nn.dropout(x, 0.5), *c, d: tf.nn.dropout(y, 0.5) = 3, **e) -> tf.nn.dropout(z, 0.5): ...\n",
        "async def f():\n    async with a(tf.nn.dropout(x, 0.5)) as b: await tf.nn.dropout(x, 0.5)\n",
        "x[tf.nn.dropout(x, 0.5), 1:tf.nn.dropout(x, 0.5)] = (tf.nn.dropout(x, 0.5),)\n",
        "try: tf.nn.dropout(x, 0.5)\nexcept* E: tf.nn.dropout(x, 0.5)\nfinally: tf.nn.dropout(x, 0.5)\n",
        "y = (tf\n     .nn  # a\n     .dropout(  # b\n         x,\n         0.5))\n",
        "y = tf.nn.dropout \\\n    (x, 0.5)\n",
        "y = (tf.nn.dropout)(x, 0.5)\n",
        "y = tf.nn.dropout(tf.nn.dropout(x, 0.5), 0.5)\n",
    ],
)
def test_every_place_where_an_expression_can_stand(line: str) -> None:
    try:
        ast.parse(line)
    except SyntaxError:
        pytest.skip("newer Python")
    result = migrate_source(HEAD + line, "dropout")
    tree = ast.parse(result.after)
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [ast.unparse(func) for func in called if "dropout" in ast.unparse(func)]
    assert names
    assert set(names) == {"npu_ops.dropout"}


# ---- arguments


def with_argument(call: str) -> str:
    source = Source(call)
    edits = Edits(source)
    node = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    edits.add_argument(node, "new=1")
    return apply_edits(source, edits)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("f()", "f(new=1)"),
        ("f( )", "f(new=1 )"),
        ("f(a)", "f(a, new=1)"),
        ("f(a,)", "f(a, new=1,)"),
        ("f(*a, **k)", "f(*a, **k, new=1)"),
        ("f(x for x in y)", "f((x for x in y), new=1)"),
        ("f((x for x in y))", "f((x for x in y), new=1)"),
        ("f((a))", "f((a), new=1)"),
        ("f(a  # why\n )", "f(a, new=1  # why\n )"),
        ("f(\n    a,\n)", "f(\n    a,\n    new=1,\n)"),
        ("f(\n    a,  # why\n)", "f(\n    a,  # why\n    new=1,\n)"),
        ("f(\n\ta,\n\tb)", "f(\n\ta,\n\tb,\n\tnew=1)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  new=1)"),
        ("f(g(',)'), ')')", "f(g(',)'), ')', new=1)"),
        ("(f)(a)", "(f)(a, new=1)"),
        ("f[')'](a)", "f[')'](a, new=1)"),
    ],
)
def test_an_argument_is_added_in_the_manner_of_the_others(before: str, expected: str) -> None:
    assert with_argument(before) == expected


@pytest.mark.parametrize(
    ("before", "places", "expected"),
    [
        ("f(a, b, c)", {0}, "f(b, c)"),
        ("f(a, b, c)", {1}, "f(a, c)"),
        ("f(a, b, c)", {2}, "f(a, b)"),
        ("f(a, b, c)", {1, 2}, "f(a)"),
        ("f(a, b, c)", {0, 1, 2}, "f()"),
        ("f(\n    a,\n    b,  # why\n    c,\n)", {1}, "f(\n    a,\n    # why\n    c,\n)"),
        ("f(\n    a,\n    b,\n)", {1}, "f(\n    a,\n)"),
    ],
)
def test_arguments_are_removed_with_their_commas_and_comments_stay(
    before: str, places: set[int], expected: str
) -> None:
    source = Source(before)
    edits = Edits(source)
    call = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    edits.remove_items(source.bracket_items(source.opening_parenthesis(call))[0], places)
    assert apply_edits(source, edits) == expected


def test_two_changes_of_one_text_are_refused() -> None:
    source = Source("abc = 1\n")
    edits = Edits(source)
    edits.replace(0, 3, "x")
    for start, end in ((0, 3), (1, 2), (2, 5)):
        with pytest.raises(Overlap):
            edits.replace(start, end, "y")
    edits.replace(3, 5, "=")
    assert apply_edits(source, edits) == "x= 1\n"


# ---- statements


def statement_removed(text: str, *numbers: int) -> str:
    source = Source(dedent(text))
    edits = Edits(source)
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    for number in numbers:
        edits.remove_statement(calls[number])
    return apply_edits(source, edits)


@pytest.mark.parametrize(
    ("before", "numbers", "expected"),
    [
        ("a()\nb()\n", [0], "b()\n"),
        ("a()\n", [0], ""),
        ("def f():\n    a()\n", [0], "def f():\n    pass\n"),
        ("def f():\n    a()\n    b()\n", [0, 1], "def f():\n    pass\n"),
        ("def f():\n    a()\n    b()\n    c()\n", [0, 2], "def f():\n    b()\n"),
        ("if x: a()\nelse: b()\n", [0, 1], "if x: pass\nelse: pass\n"),
        ("a(); b()\n", [0], "b()\n"),
        ("a(); b()\n", [1], "a()\n"),
        ("a()  # why\nb()\n", [0], "# why\nb()\n"),
        ("a(\n    1,\n)\nb()\n", [0], "b()\n"),
        ("def f():\n    a(  # why\n        1)\n", [0], "def f():\n    # why\n    pass\n"),
        ("try:\n    a()\nexcept E:\n    b()\n", [0, 1], "try:\n    pass\nexcept E:\n    pass\n"),
        ("match x:\n    case 1:\n        a()\n", [0], "match x:\n    case 1:\n        pass\n"),
    ],
)
def test_statements_are_removed_and_no_block_is_left_empty(before: str, numbers: list[int], expected: str) -> None:
    assert statement_removed(before, *numbers) == expected


def test_statements_are_set_before_and_behind_in_the_files_own_indentation() -> None:
    source = Source("def f():\n\tif x:\n\t\ta()  # why\n\treturn 1")
    edits = Edits(source)
    inner = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Expr))
    edits.insert_before(inner, ["b()"])
    edits.insert_after(inner, ["c()"])
    assert apply_edits(source, edits) == "def f():\n\tif x:\n\t\tb()\n\t\ta()  # why\n\t\tc()\n\treturn 1"


def test_statements_beside_others_on_one_line() -> None:
    source = Source("if x: a(); b()\n")
    edits = Edits(source)
    first, second = (node for node in ast.walk(source.tree) if isinstance(node, ast.Expr))
    edits.insert_before(first, ["one()"])
    edits.insert_after(second, ["two()"])
    assert apply_edits(source, edits) == "if x: one(); a(); b(); two()\n"
    source = Source("  \na(); b()  # why\nc()")
    edits = Edits(source)
    edits.insert_after(source.tree.body[0], ["one()"])
    edits.insert_after(source.tree.body[1], ["two()"])
    assert apply_edits(source, edits) == "  \na(); one(); b()  # why\ntwo()\nc()"


# ---- blocks


def unwrap_first(text: str) -> str:
    source = Source(text)
    edits = Edits(source)
    edits.unwrap(next(node for node in ast.walk(source.tree) if isinstance(node, ast.With | ast.AsyncWith)))
    return apply_edits(source, edits)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("with a: b()\n", "b()\n"),
        ("with a: b(); c()\n", "b(); c()\n"),
        ("with a:  # why\n    b()\n", "# why\nb()\n"),
        ("with (\n    a  # inner\n):  # outer\n    b()\n", "# inner\n# outer\nb()\n"),
        ("with a, \\\n        c:\n    b()\n", "b()\n"),
        ("with a:\n\n    b()\n\n    c()\n", "\nb()\n\nc()\n"),
        ("with a:\n\tif x:\n\t\tb()\n\t# last\n", "if x:\n\tb()\n# last\n"),
        ("with a:\n    b('''one\n    two''')\n", "b('''one\n    two''')\n"),
        ("with a:\n    b(f'''{x}\n    two''')\n", "b(f'''{x}\n    two''')\n"),
        ("with a:\n    b('one \\\n    two')\n", "b('one \\\n    two')\n"),
        ("with a:\n    b(1,\n  2)\n", "b(1,\n  2)\n"),
        ("with a:\n    b()\n# after\nc()\n", "b()\n# after\nc()\n"),
        ("with a:\n    b()", "b()"),
        ("with a:\n  @d\n  def f():\n      pass\n", "@d\ndef f():\n    pass\n"),
        ("def f():\n    with a:\n      b()\n    return 1\n", "def f():\n    b()\n    return 1\n"),
        ("async def f():\n    async with a:\n        b()\n", "async def f():\n    b()\n"),
        ("with a:\r\n    b()\r\n", "b()\r\n"),
    ],
)
def test_a_block_is_taken_away_and_its_body_moved(before: str, expected: str) -> None:
    if before.startswith("with a:\n  @d"):  # the body's own indentation is the body's affair
        expected = "@d\ndef f():\n    pass\n"
    assert unwrap_first(before) == expected


def test_lines_stem_from_the_original_ones() -> None:
    text = "a = 1\nwith x:\n    b = 2\n    c = 3\nd = 4\n"
    source = Source(text)
    edits = Edits(source)
    edits.unwrap(source.tree.body[1])  # type: ignore[arg-type]
    result, lines = edits.apply(list(range(1, len(source.line_starts) + 1)))
    old, new = text.splitlines(), result.splitlines()
    assert [old[lines[index] - 1].strip() for index in range(len(new))] == new


def test_a_returned_value_over_several_lines_is_computed_before_the_session_closes() -> None:
    before = """
        import tensorflow as tf
        def f():
            sess = tf.Session(config=npu)
            return (sess.run(1)  # why
                    .sum())
        """
    expected = """
        import tensorflow as tf
        def f():
            sess = tf.Session(config=npu)
            result = (sess.run(1)  # why
                    .sum())
            sess.close()
            return (result)
        """
    result = migrate_source(dedent(before), "session_close")
    assert result.after.decode() == dedent(expected)
    assert [finding.line for finding in result.findings] == [4, 5], "the return is mentioned too"


def test_edits_are_refused_exactly_where_they_meet_another() -> None:
    rng = random.Random(3)
    for _ in range(300):
        edits, taken = Edits(Source("pass\n" * 6)), []
        for _ in range(12):
            start = rng.randrange(28)
            end = start + rng.choice([0, 0, 1, 2, 5])
            meets = any(not (end <= other[0] or other[1] <= start) for other in taken)
            try:
                edits.replace(start, end, "#" * (end - start + 1))
            except Overlap:
                assert meets
            else:
                assert not meets
                taken.append((start, end))
            if taken and rng.random() < 0.1:  # a rule that meets another takes back what it has done at this place
                kept = rng.randrange(len(taken))
                edits.undo_after(kept)
                del taken[kept:]
