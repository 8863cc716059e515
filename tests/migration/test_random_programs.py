"""Random programs: whatever their nesting, layout and comments, the result parses, keeps its comments and the lines
that nobody claims to have changed, and a second run is still.

A program is put together from fragments that rules care about and fragments that only look like them, in functions,
classes, loops and `with` blocks, with tabs or blanks, with either line end, with comments in odd places. The seed of a
failing program is in the message.
"""

from __future__ import annotations

import difflib
import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from migration.checking import comments
from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options
from viaduct.migration.project import survey
from viaduct.migration.results import FileResult

IMPORTS = (
    ("import tensorflow as tf", "tf"),
    ("import tensorflow.compat.v1 as tf", "tf"),
    ("import tensorflow.compat.v1 as tf1", "tf1"),
    ("import tensorflow", "tensorflow"),
    ("try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf", "tf"),
    ("import os, tensorflow as tf; import numpy as np", "tf"),
    ("from tensorflow.compat import v1 as tf\nfrom requests import Session", "tf"),
    ("import tensorflow as tf\nimport horovod.tensorflow as hvd", "tf"),
)
# Expressions: TF stands for the alias, X for another expression, N for a small number.
EXPRESSIONS = (
    *("TF.nn.dropout(X, keep_prob)", "TF.nn.dropout(X, rate=N)", "TF.nn.dropout(X, rate=a - N, name='d')"),
    *("TF.data.Dataset.range(N).batch(N)", "TF.data.Dataset.range(N).map(f).padded_batch(N, shapes)"),
    *("TF.data.Dataset.from_tensors(X).repeat(N).batch(N, False)", "TF.data.Dataset.range(N).batch(N, True)"),
    *("Loader().batch(N)", "requests.Session()", "re.compile('x')", "model.fit(X)", "lambda q: TF.nn.dropout(q, N)"),
    *("[TF.nn.dropout(q, 0.5) for q in X]", "{'gpu': X, **extra}", "f'{TF.nn.dropout(x, 0.5)!r} {a:>{N}}'"),
    *("TF.estimator.RunConfig('out', N)", "TF.train.AdamOptimizer(N)", "TF.ConfigProto(allow_soft_placement=True)"),
    *("(yield_ := X)", "X if a else X", "not X", "'模型 # no comment'", "r'\\d(,'", "a[X, 1:N]", "(X)", "X"),
    *("TF.Session()", "TF.Session(config=config)", "hvd.rank()", "hvd.size()", "TF.train.get_global_step()"),
)
STATEMENTS = (
    *("name = X", "name = other = X", "X", "name: int = X", "name += X", "name, other = X, X", "assert X, 'x'"),
    *("config = TF.ConfigProto()", "config.gpu_options.allow_growth = True", "sess = TF.Session(config=config)"),
    *("sess = TF.Session()", "sess.run(X)", "ds = TF.data.Dataset.range(N)", "ds = ds.batch(N)", "ds = ds.shuffle(N)"),
    *("opt = TF.train.MomentumOptimizer(N, 0.9)", "train_op = opt.minimize(loss)", "pass", "name = X; other = X"),
    *("config = TF.estimator.RunConfig(model_dir='o', train_distribute=s)", "print('TF.Session()')"),
    *("est = TF.estimator.Estimator(model_fn, 'o', config)", "TF.enable_eager_execution()", "hvd.init()"),
    *("opt = hvd.DistributedOptimizer(opt, compression=c)", "opt = TF.train.experimental.FixedLossScale(N)"),
    *("TF.keras.backend.clear_session()", "del name", "import os", "global_name = X", "return X", "raise X", "yield X"),
    *("model = TF.keras.models.Sequential([X])", "model.compile(TF.keras.optimizers.SGD(N), 'mse')", "sess.close()"),
    *("model.fit(x, y, batch_size=N, callbacks=[X])", "est.train(input_fn, steps=N)", "est.evaluate(input_fn)"),
    *(
        "grads = TF.gradients(loss, v)",
        "opt.apply_gradients(zip(grads, v))",
        "sess.run(TF.global_variables_initializer())",
    ),
    *("strategy = TF.distribute.MirroredStrategy()", "ds = ds.shard(hvd.size(), hvd.rank())", "TF.app.run()"),
    *("with TF.device('/gpu:0'): name = X; other = X", "self.sess = TF.Session(config=self.config)", "main(X)"),
    *("opt = TF.train.experimental.enable_mixed_precision_graph_rewrite(opt)", "hvd.shutdown(); hvd.init()"),
    *("est = TF.estimator.DNNClassifier([N], columns, config=config)", "hooks = [hvd.BroadcastGlobalVariablesHook(0)]"),
)
BLOCKS = (
    *("def function(x, y=X, *args, **kwargs):", "class Thing(Base):", "if X:", "for item in X:", "while X:"),
    *(
        "with TF.device('/gpu:0'):",
        "with TF.device('/gpu:%d' % N):",
        "with TF.device('/cpu:0'):",
        "with open('f') as f:",
    ),
    *("with TF.Session() as sess:", "with TF.Graph().as_default(), TF.device('/gpu:0'):", "async def coroutine():"),
    *("with TF.Session(config=config) as sess:", "with TF.variable_scope('s'):", "@decorate(X)\ndef function():"),
    *("with TF.train.MonitoredTrainingSession(hooks=[X]) as sess:", "with (TF.device('/gpu:0')):", "else_", "try_"),
    *("if __name__ == '__main__':", "def main(_):", "with a as b, TF.device('/gpu:0') , c:", "def model_fn(features):"),
    *("for i in range(num_gpus):", "with strategy.scope():", "def input_fn(params, input_context=None):", "try_"),
)


class Writer:
    """Writer of one program; its choices come from its own random generator."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        head, self.alias = self.random.choice(IMPORTS)
        self.unit = self.random.choice(["    ", "  ", "\t"])
        self.newline = self.random.choice(["\n", "\n", "\r\n"])
        self.count = 0
        self.within = False  # a function: only there is something returned
        self.lines: list[str] = []
        if self.random.random() < 0.5:
            self.lines += ['"""A program. # not a comment', '"""', "from __future__ import print_function"]
        self.lines += head.split("\n")

    def happens(self, share: float) -> bool:
        return self.random.random() < share

    def comment(self) -> str:
        self.count += 1
        return f"# comment {self.count} 注"

    def expression(self, depth: int = 0) -> str:
        text = self.random.choice(EXPRESSIONS) if depth < 2 else self.random.choice(["x", "labels", "N"])
        return self.filled(text, depth)

    def filled(self, text: str, depth: int = 0) -> str:
        def fill(match: re.Match[str]) -> str:
            if match.group() == "X":
                return self.expression(depth + 1)
            return self.alias if match.group() == "TF" else str(self.random.choice([1, 2, 0.5, 32]))

        return re.sub(r"\bTF\b|\bX\b|\bN\b", fill, text)

    def spread(self, text: str, indent: str) -> list[str]:
        """Break a bracket over several lines at random, with a comment in it."""
        position = text.rfind("(")
        if "f'" in text or "'" in text[position:] or ";" in text or position < 0 or not self.happens(0.25):
            return [indent + text]
        note = f"  {self.comment()}" if self.happens(0.5) else ""
        return [f"{indent}{text[: position + 1]}{note}", f"{indent}{self.unit}{text[position + 1 :]}"]

    def statement(self, indent: str) -> None:
        chosen = self.random.choice(STATEMENTS)
        if chosen.startswith(("return", "yield")) and not self.within:
            chosen = "name = X"
        found = self.spread(self.filled(chosen), indent)
        if self.happens(0.2):
            found[-1] += f"  {self.comment()}"
        if self.happens(0.1):
            found.insert(0, indent + self.comment())
        if self.happens(0.08):
            found.insert(0, self.random.choice(["", "\x0c", indent.rstrip()]))
        self.lines += found

    def block(self, indent: str, depth: int) -> None:
        head = self.filled(self.random.choice(BLOCKS))
        if head in ("else_", "try_"):
            self.lines.append(f"{indent}if a:" if head == "else_" else f"{indent}try:")
            self.body(indent + self.unit, depth + 1)
            head = "else:" if head == "else_" else self.random.choice(["except ValueError as error:", "finally:"])
        *before, last = head.split("\n")
        self.lines += [indent + line for line in before]
        self.lines.append(indent + last + (f"  {self.comment()}" if self.happens(0.3) else ""))
        outside = self.within
        self.within = "def " in last or (outside and "class " not in last)
        self.body(indent + self.unit, depth + 1)
        self.within = outside

    def body(self, indent: str, depth: int) -> None:
        for _ in range(self.random.randint(1, 4)):
            if depth < 4 and self.happens(0.35):
                self.block(indent, depth)
            else:
                self.statement(indent)
        if self.happens(0.15):
            self.lines.append(indent + self.comment())

    def program(self) -> str:
        for _ in range(self.random.randint(2, 6)):
            self.body("", 0)
        return self.newline.join(self.lines) + (self.newline if self.happens(0.9) else "")


def is_python(text: str) -> bool:
    """Return True if the text compiles; a `return` outside a function does not."""
    try:
        compile(text, "program.py", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def some_program(seed: int) -> str:
    """Return the first valid program: a few combinations are not Python, such as a walrus as a statement."""
    for attempt in range(1000):
        text = Writer(seed * 1009 + attempt).program()
        if is_python(text):
            return text
    raise AssertionError(f"no valid program for seed {seed}")


OPTIONS: tuple[Callable[[], Options], ...] = (
    Options,
    lambda: Options(distributed=True),
    lambda: Options(style="wrapper", imports="star", loop=10, keep_defaults=True),
    lambda: Options(distributed=True, rank="env", precision="allow_mix_precision", device="cpu", preset="resnet-seed"),
    lambda: Options(profile="out", dump="dump", pad_predict=True, metrics_allreduce=True, dropout_layers=True),
    lambda: Options(to="mlu"),
)


def run(text: str, options: Options) -> FileResult:
    data = text.encode()
    return migrate_bytes("program.py", data, options, survey([("program.py", data)]))


def lines_of(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text)


def find_unclaimed(text: str, result: FileResult) -> list[str]:
    """Return the original lines that are missing or different although no finding says that they were changed."""
    claimed: set[int] = set()
    for finding in result.findings:
        if finding.status == "changed":
            claimed |= set(range(finding.line, finding.end_line + 1))
    before, after = lines_of(text), lines_of(result.after.decode())
    gone = []
    for tag, start, end, _, _ in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag in ("replace", "delete"):
            gone += [number + 1 for number in range(start, end) if number + 1 not in claimed]
    left = Counter(line.strip() for line in after)
    kept = Counter(line.strip() for line in before)
    # a line that was only moved to the left, or shifted among equal ones, is still there
    return [
        f"{number}: {before[number - 1]}"
        for number in gone
        if left[before[number - 1].strip()] < kept[before[number - 1].strip()]
    ]


def check(seed: int) -> bool:
    text = some_program(seed)
    options = OPTIONS[seed % len(OPTIONS)]()
    result = run(text, options)
    after = result.after.decode()
    details = f"seed {seed}\n{text}\n=====\n{after}"
    assert is_python(after), f"no longer Python: {details}"
    missing = comments(text.replace("\r\n", "\n")) - comments(after.replace("\r\n", "\n"))
    assert not missing, f"comments lost: {missing} {details}"
    assert not find_unclaimed(text, result), f"changed without a word: {find_unclaimed(text, result)} {details}"
    if "\r\n" in text:
        assert "\n" not in after.replace("\r\n", ""), f"line ends mixed: {details}"
    again = run(after, options)
    assert again.after == result.after, f"a second run changes it again: {details}\n=====\n{again.after.decode()}"
    assert result.changed == any(finding.status == "changed" for finding in result.findings), details
    return result.changed


def test_random_programs_survive_migration() -> None:
    changed = [check(seed) for seed in range(24)]
    assert sum(changed) > 12, "most of them give the rules something to do"


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 5000, 500))
def test_thousands_of_random_programs_survive_migration(start: int) -> None:
    for seed in range(start, start + 500):
        check(seed)
