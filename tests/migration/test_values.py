"""Kind of the value of an expression; rules of methods apply only to the right kind."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from viaduct.migration.names import Names
from viaduct.migration.project import Project, survey
from viaduct.migration.source import Source
from viaduct.migration.values import Values

HEAD = "import tensorflow as tf\n"


def kind(text: str, others: dict[str, str] | None = None) -> str | None:
    """Return the kind of the value handed to `mark`."""
    text = HEAD + dedent(text)
    files = {"main.py": text} | (others or {})
    project = survey((path, content.encode()) for path, content in files.items())
    source = Source(text)
    values = Values(Names(source, *Project.module_of("main.py")), project)
    marks = [node for node in source.nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "mark"]
    return values.kind(marks[0].args[0])


@pytest.mark.parametrize(
    "text",
    [
        "mark(Loader())",
        "mark(x)",
        "import requests\nmark(requests.Session())",
        "class Dataset:\n    def batch(self, n): pass\nmark(Dataset())",
        "ds = tf.data.Dataset.range(3)\nds = 4\nmark(ds)",
        "ds = tf.data.Dataset.range(3) if x else []\nmark(ds)",
        "def f(ds): mark(ds)",
        "def f(ds):\n    mark(ds)\n    ds.map(g)\n    ds.append(1)",
        "def f(words):\n    mark(words)\n    words.batch(3).repeat()\n    words.sort()",
        "for ds in things: mark(ds)",
        "ds = tf.data.Dataset.range(3)\nfor ds in things: pass\nmark(ds)",
        "mark(tf.data.Dataset.range(3).reduce(0, f))",
        "class A:\n  def f(self): self.d = tf.data.Dataset.range(3)\n  def g(self):\n    self.d = 3\n    mark(self.d)",
        "a = b\nb = a\nmark(a)",
        "def make():\n    if x: return tf.Session()\n    return None\nmark(make())",
    ],
)
def test_what_is_not_shown_has_no_kind(text: str) -> None:
    assert kind(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mark(tf.data.Dataset.range(3))", "dataset"),
        ("mark(tf.data.TFRecordDataset(x).map(f).shuffle(3))", "dataset"),
        ("ds = tf.data.Dataset.range(3)\nds = ds.map(f)\nds = ds.repeat()\nmark(ds)", "dataset"),
        (
            "ds = tf.data.Dataset.range(3)\nif x:\n    ds = ds.map(f)\nelse:\n    ds = ds.shuffle(3)\nmark(ds)",
            "dataset",
        ),
        ("if (ds := tf.data.Dataset.range(3)): mark(ds)", "dataset"),
        ("mark(tf.data.Dataset.range(3) if x else tf.data.Dataset.range(4))", "dataset"),
        ("def f(ds):\n    mark(ds)\n    return ds.interleave(g, 3).batch(2)", "dataset"),
        ("def f(ds):\n    mark(ds)\n    return 1\nf(tf.data.Dataset.range(3))", "dataset"),
        ("def make(): return tf.data.Dataset.range(3)\nmark(make())", "dataset"),
        ("def make(): return tf.data.Dataset.range(3)\ndef again(): return make().map(f)\nmark(again())", "dataset"),
        ("class A:\n    def f(self): self.s = tf.Session()\n    def g(self): mark(self.s)", "session"),
        (
            "class A:\n  s = None\n  def f(self):\n    self.s = None\n    self.s = tf.Session()\n    mark(self.s)",
            "session",
        ),
        ("mark(tf.compat.v1.Session())", "session"),
        ("c = tf.estimator.RunConfig()\nmark(c)", "run_config"),
        ("mark(tf.train.AdamOptimizer(1))", "optimizer"),
        ("from tensorflow.keras.models import Sequential\nm = Sequential([])\nmark(m)", "keras_model"),
    ],
)
def test_what_the_text_shows_is_known(text: str, expected: str) -> None:
    assert kind(text) == expected


CLASS = "class A:\n    def __init__(self):\n        self.ds = tf.data.Dataset.range(3)\n"


@pytest.mark.parametrize(
    "text",
    [
        CLASS + "        self.ds = self.ds.batch(8)\n        mark(self.ds)",
        CLASS + "        self.ds = None\n    def f(self):\n        self.ds = self.ds.map(g)\n        mark(self.ds)",
        CLASS
        + "    def f(self):\n        ds = self.ds\n        ds = ds.map(g)\n        self.ds = ds\n        mark(ds)",
        CLASS + "    def f(self):\n        self.ds = self.ds.map(g) if x else self.ds\n        mark(self.ds)",
        CLASS + "        self.b = self.ds.map(f)\n        self.ds = self.b.repeat()\n        mark(self.b)",
        CLASS
        + "    def f(self):\n        if x:\n            self.ds = self.ds.own_helper()\n        mark(self.ds.batch(3))",
        CLASS + "    def get(self):\n        return self.ds\n    def f(self): mark(self.get().map(g))",
        CLASS + "    @property\n    def data(self):\n        return self.ds\n    def f(self): mark(self.data)",
        CLASS + "a = A()\nmark(a.ds)",
        CLASS + "class B(A):\n    def f(self): mark(self.ds)",
        CLASS + "class B:\n    def __init__(self): self.a = A()\n    def f(self): mark(self.a.ds.map(g))",
        CLASS + "def use(n, a): mark(a.ds)\nuse(1, A())",
        "class A:\n    ds = tf.data.Dataset.range(3)\n    def f(self): mark(self.ds)",
        "class A:\n    def f(self):\n        self.ds: object = tf.data.Dataset.range(3)\n        mark(self.ds)",
        "class A:\n    def f(self):\n        self.a, self.b = tf.data.Dataset.range(3), 4\n        mark(self.a)",
        "class A:\n    def f(self):\n        self.a = self.b = tf.data.Dataset.range(3)\n        mark(self.b)",
        "ds = None\nif x:\n    ds = tf.data.Dataset.range(3)\nmark(ds)",
        "a = b = tf.data.Dataset.range(3)\nmark(b)",
        "def pair():\n    a = tf.data.Dataset.range(3)\n    return a, a.map(f)\nx, y = pair()\ny = y.repeat()\nmark(y)",
        "def pair(): return 4, tf.data.Dataset.range(3)\nmark(pair()[1])",
        "ds = tf.data.Dataset.range(3)\ndef f():\n    def g(): mark(ds)",
        "def f(ds):\n    [mark(ds) for _ in x]\n    return ds.interleave(g, 3)",
    ],
)
def test_a_dataset_is_followed_through_attributes_tuples_and_branches(text: str) -> None:
    assert kind(text) == "dataset"


@pytest.mark.parametrize(
    "text",
    [
        CLASS + "    def f(self):\n        self.ds = []\n        mark(self.ds)",
        CLASS + "class B:\n    def f(self): mark(self.ds)",
        CLASS + "mark(A().other)",
        "def pair(): return tf.data.Dataset.range(3), 4\nx, y = pair()\nmark(y)",
        "def pair(): return tf.data.Dataset.range(3), 4\nx, y, z = pair()\nmark(x)",
        "x, *y = tf.data.Dataset.range(3), 4\nmark(x)",
        "x = (x,)\nmark(x)",
        "session = None\nif x:\n    session = tf.Session()\nmark(session)",
        "class A:\n    def f(self):\n        self.a = self.b\n        self.b = self.a\n        mark(self.a)",
    ],
)
def test_what_contradicts_itself_or_may_be_none_has_no_kind(text: str) -> None:
    assert kind(text) is None


def test_attributes_and_methods_are_followed_into_other_files() -> None:
    others = {
        "base.py": HEAD
        + CLASS
        + "    def make(self): return self.ds\n    def both(self): return self.make(), self.ds\n"
    }
    for text in ("mark(A().ds)", "mark(A().make())", "x, y = A().both()\nmark(y)", "a = A()\nmark(a.ds.map(f))"):
        assert kind(f"from base import A\n{text}", others) == "dataset"
    assert kind("import base\nclass B(base.A):\n    def f(self): mark(self.make())", others) == "dataset"


@pytest.mark.parametrize(
    "line",
    [
        "        self.ds = self.ds.map(f)\n",
        "        ds = self.ds\n        self.ds = ds.map(f)\n",
        "        self.a = self.ds.map(f)\n        self.ds = self.a\n",
        "        self.ds = self.ds.map(f) if x else self.ds\n",
        "        self.ds, self.n = self.ds.map(f), 1\n",
    ],
)
def test_the_work_grows_with_the_number_of_assignments(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    look = Values.find_kind

    def count(self: Values, node: ast.AST | None) -> object:
        nonlocal looked
        looked += 1
        return look(self, node)

    monkeypatch.setattr(Values, "find_kind", count)
    work = []
    for lines in (20, 40):
        looked = 0
        assert kind(CLASS + line * lines + "        mark(self.ds)") == "dataset"
        work.append(looked)
    assert work[1] < 2.5 * work[0]


def test_a_long_chain_of_calls_is_no_deep_recursion() -> None:
    assert kind("mark(tf.data.Dataset.range(3)" + ".map(f)" * 250 + ")") == "dataset"


def test_kinds_travel_between_files() -> None:
    others = {"data.py": HEAD + "def load(): return tf.data.Dataset.range(3)\n"}
    assert kind("import data\nmark(data.load().map(f))", others) == "dataset"
    assert kind("from data import load as get\nmark(get())", others) == "dataset"


def test_a_parameter_has_the_kind_that_every_caller_passes() -> None:
    other = {
        "other.py": HEAD + "from main import use\nuse(tf.data.Dataset.range(3))\nuse(x=tf.data.Dataset.range(3))\n"
    }
    assert kind("def use(x): mark(x)", other) == "dataset"
    other["third.py"] = HEAD + "from main import use\nuse([1, 2])\n"
    assert kind("def use(x): mark(x)", other) is None


def test_positional_only_and_starred_arguments_are_matched_with_their_parameters() -> None:
    call = HEAD + "from main import use\nuse(3, tf.data.Dataset.range(3))\n"
    assert kind("def use(n, /, x): mark(x)", {"other.py": call}) == "dataset"
    assert kind("def use(n, /, x): mark(n)", {"other.py": call}) is None
    starred = HEAD + "from main import use\nuse(*items, tf.data.Dataset.range(3))\n"
    assert kind("def use(n, x): mark(x)", {"other.py": starred}) is None


def test_a_broken_file_in_the_project_takes_nothing_from_the_others() -> None:
    others = {"data.py": HEAD + "def load(): return tf.data.Dataset.range(3)\n", "old.py": HEAD + "print 'x'\n"}
    assert kind("import data\nmark(data.load())", others) == "dataset"


def test_the_origin_of_a_name_assigned_once() -> None:
    source = Source(HEAD + "a = tf.ConfigProto()\nb = a\nmark(b)\nc = 1\nc = 2\nmark(c)\n")
    values = Values(Names(source), Project())
    marks = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "mark"]
    assert ast.unparse(values.assigned_value(marks[0].args[0])) == "tf.ConfigProto()"
    assert values.assigned_value(marks[1].args[0]) is marks[1].args[0]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("torch.device('cpu')", "torch_device"),
        ("torch.zeros(3).cuda().view(3)", "tensor"),
        ("torch.zeros(3).tolist()", None),
        ("torch.nn.Linear(2, 2).eval()", "module"),
        ("torch.nn.CrossEntropyLoss().npu()", "class_loss"),
        ("Net().to(0)", "object:script.Net"),
        ("Own().to(0)", "object:script.Net"),
        ("Own().half()", "object:script.Own"),
        ("make()", "object:script.Own"),
        ("Missing()", None),
    ],
)
def test_things_of_pytorch_and_objects_of_the_project_are_known(expression: str, kind: str | None) -> None:
    text = (
        "import torch\nclass Net(torch.nn.Module):\n    pass\nclass Own(torch.nn.Module):\n    def to(self, x):\n"
        f"        return Net()\ndef make():\n    return Own()\nthing = {expression}\n"
    )
    project = survey([("script.py", text.encode())])
    names = project.parsed["script.py"]
    assigned = names.source.tree.body[-1]
    assert isinstance(assigned, ast.Assign)
    assert Values(names, project).kind(assigned.value) == kind
