"""The work for one file grows in proportion to its length; calls of functions are counted instead of seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options, TargetName
from viaduct.migration.project import survey

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
    "loads": lambda n: f"{TORCH}x.cuda()\n" + "s = torch.load(p)\nnet.load_state_dict(s)\n" * n,
    "loads of an attribute": lambda n: (
        f"{TORCH}x.cuda()\nclass A:\n"
        + "".join(f"    def f{i}(self):\n        self.s = torch.load(p)\n        g(self.s)\n" for i in range(n))
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


def count_calls(text: str, to: TargetName) -> int:
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
def test_four_times_as_many_lines_take_about_four_times_the_work(pattern: str, to: TargetName) -> None:
    make = PATTERNS[pattern]
    count_calls(make(2), to)  # the rules are imported
    few, many = count_calls(make(40), to), count_calls(make(160), to)
    assert many < 5 * few
