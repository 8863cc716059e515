"""The work for one file grows with its length: calls of functions are counted, so that no clock is asked."""

from __future__ import annotations

import sys
import tokenize
from collections.abc import Callable, Iterable
from types import FrameType

import pytest

from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options, Target
from viaduct.migration.project import survey
from viaduct.migration.source import Source, Token, tokenize_part

TORCH, TF = "import torch\n", "import tensorflow as tf\n"
HOROVOD = f"{TF}import horovod.tensorflow as hvd\nhvd.init()\n"
PATTERNS: dict[str, Callable[[int], str]] = {
    "moves": lambda n: f"{TORCH}x = torch.zeros(3)\n" + "x = x.cuda()\n" * n,
    "moves in a function": lambda n: f"{TORCH}def f(x):\n" + "    x = x.cuda()\n" * n,
    "moves on one line": lambda n: f"{TORCH}X = [" + "x.cuda(), " * n + "]\n",
    "moves between semicolons": lambda n: TORCH + "x.cuda(); " * n + "\n",
    "attributes": lambda n: TORCH + "x = x.a\n" * n,
    "attributes of two names": lambda n: TORCH + "x = y.a\ny = x.b\n" * n,
    "attributes of an object": lambda n: f"{TORCH}class A:\n    def f(self):\n" + "        self.x = self.x.a\n" * n,
    "aliases": lambda n: f"{TORCH}a0 = torch\n" + "".join(f"a{i + 1} = a{i}\n" for i in range(n)),
    "functions": lambda n: TORCH + "".join(f"def f{i}(x):\n    return x.cuda()\n" for i in range(n)),
    "methods": lambda n: (
        f"{TORCH}class A:\n" + "".join(f"    def f{i}(self, x):\n        return x.cuda()\n" for i in range(n))
    ),
    "numbers": lambda n: f"{TORCH}X = [\n" + "    1, 2, 3, 4,\n" * n + "]\nx = x.cuda()\n",
    "ranks": lambda n: HOROVOD + "x = hvd.size()\n" * n,
    "device blocks": lambda n: TF + 'with tf.device("/gpu:0"):\n    x = tf.zeros(3)\n' * n,
    "batches": lambda n: f"{TF}ds = tf.data.Dataset.range(3)\n" + "ds = ds.batch(8)\n" * n,
    "dropouts": lambda n: TF + "x = tf.nn.dropout(x, 0.5)\n" * n,
    "optimizers": lambda n: (
        TF + "".join(f"o{i} = tf.train.AdamOptimizer(1)\nt{i} = o{i}.minimize(loss)\n" for i in range(n))
    ),
}


def count_calls(text: str, to: Target) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        project = survey([("script.py", text.encode())])
        migrate_bytes("script.py", text.encode(), Options(to=to, distributed=to == "npu"), project)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_four_times_as_many_lines_take_about_four_times_the_work(pattern: str, to: Target) -> None:
    make = PATTERNS[pattern]
    count_calls(make(2), to)  # the rules are imported
    few, many = count_calls(make(40), to), count_calls(make(160), to)
    assert many < 5 * few


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
    def shown(tokens: Iterable[Token]) -> list[Token]:
        return [token for token in tokens if not token.quiet or token.kind == tokenize.COMMENT]

    source = Source(text)
    whole = shown(tokenize_part(text, 0))
    assert shown(source.all_from(0)) == whole
    for token in whole:
        assert token.quiet or source.token_before(token.end) == token
        assert next(iter(shown(source.all_from(token.start)))) == token


def test_only_the_statements_that_are_edited_are_tokenized() -> None:
    source = Source("x = 1\n" * 100 + "y = f(1)\n" + "x = 1\n" * 100)
    assert next(source.tokens_from(source.text.index("f("))).text == "f"
    assert len(source.chunks) == 1
