"""Resolution of names: aliases as Python resolves them, and no claim about uncertain ones."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from viaduct.migration.names import Names, canonical_name
from viaduct.migration.source import Source


def names_of(text: str, module: str = "", package: bool = False) -> tuple[Names, ast.Module]:
    source = Source(dedent(text))
    return Names(source, module, package), source.tree


def list_called_names(text: str, module: str = "", package: bool = False) -> list[str | None]:
    """Return the qualified name of every call but `mark`, in the order of the text."""
    names, tree = names_of(text, module, package)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    return [names.qualified(node.func) for node in calls]


SESSION = "tensorflow.Session"

# ---- what must stay unknown


@pytest.mark.parametrize(
    "text",
    [
        "import requests\nrequests.Session()",
        "Session()",
        "def f(tf): tf.Session()",
        "import tensorflow as tf\ndef f(tf=None): tf.Session()",
        "import tensorflow as tf\ndef f(*tf): tf.Session()",
        "import tensorflow as tf\ndef f(**tf): tf.Session()",
        "import tensorflow as tf\nf = lambda tf: tf.Session()",
        "import tensorflow as tf\nf = lambda g=(lambda tf: tf.Session()): g",
        "import tensorflow as tf\nf = lambda g=[tf.Session() for tf in x]: g",
        "import tensorflow as tf\n[tf.Session() for tf in x]",
        "import tensorflow as tf\n[(tf := y) for y in x]\ntf.Session()",
        "import tensorflow as tf\nfor tf in x: tf.Session()",
        "import tensorflow as tf\nwith x as tf: tf.Session()",
        "import tensorflow as tf\nwith x as (a, tf): tf.Session()",
        "import tensorflow as tf\ntry: pass\nexcept E as tf: tf.Session()",
        "import tensorflow as tf\nmatch x:\n    case tf: tf.Session()",
        "import tensorflow as tf\nmatch x:\n    case [*tf]: tf.Session()",
        "import tensorflow as tf\nmatch x:\n    case {**tf}: tf.Session()",
        "import tensorflow as tf\nclass tf: pass\ntf.Session()",
        "import tensorflow as tf\ntf += 1\ntf.Session()",
        "import tensorflow as tf\ndel tf\ntf.Session()",
        "import tensorflow as tf\ndef f():\n    global tf\n    tf = other\ndef g(): tf.Session()",
        "import tensorflow as tf\ndef f():\n    tf.Session()\n    tf = other",
        "import tensorflow as tf\nif x: tf = other\ntf.Session()",
        "import tensorflow as tf\nclass A:\n    tf = 1\n    y = tf.Session()",
        "import tensorflow as tf\nclass A:\n    tf = 1\n    y = [z for z in tf.Session()]",
        "import tensorflow as tf, other\ntf = other.tf if x else tf\ntf.Session()",
        "a = b\nb = a\na.Session()",
        "import tensorflow as tf\ntf, x = pair\ntf.Session()",
    ],
)
def test_a_name_that_may_be_something_else_is_not_tensorflow(text: str) -> None:
    assert SESSION not in list_called_names(text)


# ---- what must be found


@pytest.mark.parametrize(
    "text",
    [
        "import tensorflow\ntensorflow.Session()",
        "import tensorflow as tf\ntf.Session()",
        "import tensorflow.compat.v1 as tf\ntf.Session()",
        "import tensorflow as tf\ntf.compat.v1.Session()",
        "import tensorflow as tf\ntf = tf.compat.v1\ntf.Session()",
        "import tensorflow as tf2\ntf = tf2.compat.v1\ntf.Session()",
        "from tensorflow.compat import v1 as tf\ntf.Session()",
        "from tensorflow import Session\nSession()",
        "from tensorflow import Session as Open\nOpen()",
        "from tensorflow import *\nSession()",
        "import tensorflow.contrib.slim\ntensorflow.Session()",
        "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\ntf.Session()",
        "try:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\ntf.Session()",
        "if x:\n    import tensorflow as tf\nelse:\n    import tensorflow.compat.v1 as tf\ntf.Session()",
        "def f():\n    import tensorflow as tf\n    def g(): return tf.Session()",
        "import tensorflow as tf\nclass A:\n    tf = 1\n    def f(self): tf.Session()",
        "import tensorflow as tf\ndef f(x=tf.Session()): pass",
        "import tensorflow as tf\ndef f(tf=tf.Session()): pass",
        "import tensorflow as tf\n@tf.Session()\ndef f(tf): pass",
        "import tensorflow as tf\nclass A(tf.Session()): tf = 3",
        "import tensorflow as tf\n[x for tf in tf.Session()]",
        "import tensorflow as tf\nOpen = tf.Session\nOpen()",
        "import tensorflow as tf\nif (Open := tf.Session): Open()",
        "def f():\n    global tf\n    import tensorflow as tf\ndef g(): tf.Session()",
        "import tensorflow as tf\ndef f():\n    def g():\n        nonlocal y\n        y = 1\n    y = tf.Session()",
        "tf.Session()\nimport tensorflow as tf",
    ],
)
def test_every_spelling_of_tensorflow_is_found(text: str) -> None:
    assert SESSION in list_called_names(text)


@pytest.mark.parametrize("assignment", ["tf, n = None, 1", "n, tf = 1, None", "tf = keras = None", "keras = tf = None"])
def test_none_among_several_targets_is_ignored_as_none_alone_is(assignment: str) -> None:
    text = f"try:\n    import tensorflow as tf\nexcept ImportError:\n    {assignment}\ntf.Session()"
    assert list_called_names(text) == [SESSION]
    for other in ("other", "[None]", "None, *x", "False"):
        assert list_called_names(text.replace("None", other)) == [None]


def test_tensorflow_2_beside_tensorflow_1_is_distinguished() -> None:
    text = """
        import tensorflow.compat.v1 as tf
        import tensorflow.compat.v2 as tf2
        tf.nn.dropout(x)
        tf2.nn.dropout(x)
        """
    assert list_called_names(text) == ["tensorflow.nn.dropout", "tensorflow.compat.v2.nn.dropout"]


@pytest.mark.parametrize(
    ("spelling", "one"),
    [
        ("tensorflow.contrib.tpu.RunConfig", "tensorflow.estimator.tpu.RunConfig"),
        ("tensorflow.compat.v1.estimator.tpu.TPUEstimator", "tensorflow.estimator.tpu.TPUEstimator"),
        ("tensorflow.compat.v1.compat.v1.Session", "tensorflow.Session"),
        ("tensorflow.python.keras.models.Model", "tensorflow.keras.models.Model"),
        ("tensorflow.compat.v1", "tensorflow"),
        ("tensorflow.compat.v1x.Session", "tensorflow.compat.v1x.Session"),
        ("mytensorflow.compat.v1.Session", "mytensorflow.compat.v1.Session"),
    ],
)
def test_one_name_for_one_thing(spelling: str, one: str) -> None:
    assert canonical_name(spelling) == one


def test_relative_imports_count_from_the_package() -> None:
    assert list_called_names("from . import loop\nloop.main()", "pack.train") == ["pack.loop.main"]
    assert list_called_names("from .. import loop\nloop.main()", "pack.sub.train") == ["pack.loop.main"]
    assert list_called_names("from .loop import main\nmain()", "pack", package=True) == ["pack.loop.main"]


def test_a_function_of_the_file_is_named_with_its_module() -> None:
    assert list_called_names("def build(): pass\nbuild()", "pack.train") == ["pack.train.build"]
    assert list_called_names("def f():\n    def build(): pass\n    build()", "pack.train") == [None]


def test_several_star_imports_and_builtins() -> None:
    assert list_called_names("from tensorflow import *\nprint(1)") == [None]
    assert list_called_names("from tensorflow import *\nfrom mine import *\nSession()") == ["mine.Session"]
    star = "from npu_bridge.npu_init import *\n"
    assert list_called_names(star + "NPURunConfig()\nunknown()") == [
        "npu_bridge.estimator.npu.npu_config.NPURunConfig",
        None,
    ]


def test_names_that_are_taken_include_inner_scopes_and_uses() -> None:
    names, _ = names_of("def f(config):\n    custom_op = 1\n    return [item for item in unknown]\n")
    assert {"f", "config", "custom_op", "item", "unknown"} <= names.used_names


def test_aliases_in_a_circle_and_long_chains_end() -> None:
    chain = (
        "import tensorflow as a0\n" + "".join(f"a{n + 1} = a{n}\n" for n in range(40)) + "a40.Session()\na3.Session()\n"
    )
    assert list_called_names(chain)[1] == SESSION
    assert list_called_names("x = y\ny = z\nz = x\nx()") == [None]


def test_a_global_statement_at_module_level_sends_nobody_round_in_circles() -> None:
    assert (
        list_called_names("import tensorflow as tf\nglobal config\nconfig = 1\nprint(config)\ntf.Session()")[1]
        == SESSION
    )
