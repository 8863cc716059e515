"""Imports of the names that rules introduce: their place, their names, and no more than are needed."""

from __future__ import annotations

import ast

import pytest

from migration.checking import migrate_source
from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options

CONFIG = "from npu_bridge.estimator.npu.npu_config import NPURunConfig\n"
OPS = "from npu_bridge.estimator import npu_ops\n"
MAKE = "c = tf.estimator.RunConfig('out')\n"
MADE = "c = NPURunConfig(model_dir='out')\n"


def after(source: str, rule: str = "estimator_run_config", **options: object) -> str:
    return migrate_source(source, rule, **options).after.decode()


# ---- where


@pytest.mark.parametrize(
    ("block", "rest"),
    [
        ("import tensorflow as tf\n", ""),
        ("import os\nimport tensorflow as tf  # 1.15\nimport sys  # last\n", "\nx = 1\n"),
        ("import tensorflow as tf\n\n# ours\nimport mine\nfrom mine import (\n    a,\n    b,\n)\n", "\nx = 1\n"),
        ("import keras\n", "x = 1\nimport tensorflow as tf\n"),
    ],
)
def test_they_go_behind_the_block_that_imports_the_framework(block: str, rest: str) -> None:
    assert after(block + rest + MAKE) == block + CONFIG + rest + MADE


def test_several_imports_on_a_line() -> None:
    text = after("import tensorflow as tf; import os; " + MAKE)
    assert text == "import tensorflow as tf; import os; " + CONFIG.rstrip("\n") + "; " + MADE


@pytest.mark.parametrize(
    "header",
    [
        '"""A script."""\n',
        '"""A script\nof two lines."""\n\nfrom __future__ import division\n',
        "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n# Copyright\n\nfrom __future__ import print_function\n",
        "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n",
        "# Copyright\n\n'''doc'''\nfrom __future__ import absolute_import\nfrom __future__ import division\n",
        "from __future__ import (\n    division,\n    print_function)\n",
    ],
)
@pytest.mark.parametrize(
    "within",
    [
        "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\n",
        "if True:\n    import tensorflow as tf\n",
        "def f():\n    import tensorflow as tf\n    return tf.estimator.RunConfig('out')\n",
    ],
)
def test_without_one_at_top_level_they_go_behind_docstring_and_future(header: str, within: str) -> None:
    source = header + "\n# our settings\n" + within + ("" if within.startswith("def") else MAKE)
    text = after(source)
    tree = ast.parse(text)  # Python itself refuses `from __future__` behind anything else
    compile(text, "script.py", "exec")
    assert ast.get_docstring(tree) == ast.get_docstring(ast.parse(source))
    assert text.startswith(header.rstrip("\n"))
    assert "# our settings\n" + within.partition("\n")[0] in text
    assert text.index(CONFIG) < text.index(within.partition("\n")[0])


def test_code_on_the_line_of_the_docstring_or_of_future() -> None:
    for header in ("'''doc'''; x = 1", "from __future__ import division; x = 1"):
        source = header + "\ndef f():\n    import tensorflow as tf\n    return tf.estimator.RunConfig('out')\n"
        text = after(source)
        compile(text, "script.py", "exec")
        assert ast.get_docstring(ast.parse(text)) == ast.get_docstring(ast.parse(source))


def test_a_file_without_any_import() -> None:
    source = "x = 1\n"
    assert after(source) == source


def test_line_ends_byte_order_mark_and_the_missing_last_newline_stay() -> None:
    before = "import tensorflow as tf\r\nc = tf.estimator.RunConfig('out')".encode("utf-8-sig")
    later = "import tensorflow as tf\r\n" + CONFIG.replace("\n", "\r\n") + MADE.rstrip("\n")
    assert migrate_bytes("script.py", before, Options()).after == later.encode("utf-8-sig")


def test_a_file_in_which_nothing_changes_gets_no_import() -> None:
    for source in ("import tensorflow as tf\n", "import tensorflow as tf\nprint(tf.estimator.ModeKeys.TRAIN)\n"):
        assert after(source, "") == source


def test_the_import_of_horovod_may_have_been_the_only_one() -> None:
    source = '"""Doc."""\nimport horovod.tensorflow as hvd\n\n\ndef f():\n    return hvd.rank()\n'
    text = after(source, "", distributed=True)
    assert text == '"""Doc."""\nfrom hccl.manage.api import get_rank_id\n\n\n\ndef f():\n    return get_rank_id()\n'


# ---- which


@pytest.mark.parametrize(
    "known",
    [
        CONFIG,
        "from npu_bridge.npu_init import *\n",
        "from npu_bridge.estimator.npu.npu_config import NPURunConfig as NPURunConfig\n",
        "from npu_bridge.estimator.npu.npu_config import (DumpConfig,\n    NPURunConfig)\n",
    ],
)
def test_what_is_imported_already_is_not_imported_again(known: str) -> None:
    assert after("import tensorflow as tf\n" + known + MAKE) == "import tensorflow as tf\n" + known + MADE


def test_another_name_for_it_is_used() -> None:
    head = "import tensorflow as tf\nfrom npu_bridge.estimator.npu.npu_config import NPURunConfig as RC\n"
    assert after(head + MAKE) == head + "c = RC(model_dir='out')\n"


def test_a_star_import_of_something_else_does_not_count() -> None:
    head = "import tensorflow as tf\nfrom mine import *\n"
    assert after(head + MAKE) == head + CONFIG + MADE


def test_each_name_has_a_line_of_its_own_in_order() -> None:
    text = after("import tensorflow as tf\ne = tf.estimator.Estimator(f)\n", "")
    assert text.startswith(
        "import tensorflow as tf\n" + CONFIG + "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator\n"
    )


def test_the_rewriter_is_imported_unless_either_form_is_there() -> None:
    session = "import tensorflow as tf\n%swith tf.Session() as sess:\n    sess.run(x)\n"
    assert "from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig\n" in after(session % "", "S1")
    known = "from tensorflow.core.protobuf import rewriter_config_pb2\n"
    text = after(session % known, "S1")
    assert text.count("rewriter_config_pb2") == 2
    assert "rewriter_config_pb2.RewriterConfig.OFF" in text


def test_a_star_when_requested() -> None:
    text = after("import tensorflow as tf\n" + MAKE, imports="star")
    assert text == "import tensorflow as tf\nfrom npu_bridge.npu_init import *\n" + MADE


@pytest.mark.parametrize("binding", ["from mine import util\n", "session = 3\n", "def backend():\n    pass\n"])
def test_no_star_where_it_would_overwrite_what_the_file_has(binding: str) -> None:
    result = migrate_source(binding + "import tensorflow as tf\n" + MAKE, "estimator_run_config", imports="star")
    assert "import *" not in result.after.decode()
    assert CONFIG in result.after.decode()
    assert any("star import" in finding.message for finding in result.findings)


def test_a_star_before_what_the_file_binds_later_and_beside_the_same_modules() -> None:
    head = "import os\nfrom tensorflow.python.client import session\nimport tensorflow.compat.v1 as tf\n"
    text = after(head + "util = 3\n" + MAKE, imports="star")
    assert text == head + "from npu_bridge.npu_init import *\nutil = 3\n" + MADE


# ---- names that are taken


@pytest.mark.parametrize(
    "taken",
    [
        "npu_ops = 3\n",
        "def npu_ops():\n    pass\n",
        "import mine as npu_ops\n",
        "def f(npu_ops):\n    return npu_ops\n",
        "for npu_ops in range(3):\n    pass\n",
        "def g():\n    return [npu_ops for npu_ops in range(2)]\n",
    ],
)
def test_a_name_that_is_taken_anywhere_gets_a_prefix(taken: str) -> None:
    text = after("import tensorflow as tf\n" + taken + "y = tf.nn.dropout(x, 0.5)\n", "dropout")
    assert "from npu_bridge.estimator import npu_ops as npu_npu_ops\n" in text
    assert "y = npu_npu_ops.dropout(x, 0.5)\n" in text
    assert taken in text


def test_an_import_that_is_shadowed_where_it_is_needed_gets_a_second_name() -> None:
    source = "import tensorflow as tf\n" + OPS + "def f(npu_ops, x):\n    return tf.nn.dropout(x, 0.5), npu_ops\n"
    text = after(source, "dropout")
    assert "return npu_npu_ops.dropout(x, 0.5), npu_ops\n" in text
    assert OPS + "from npu_bridge.estimator import npu_ops as npu_npu_ops\n" in text


def test_a_second_name_is_free_too() -> None:
    source = "import tensorflow as tf\nnpu_ops = npu_npu_ops = 3\ny = tf.nn.dropout(x, 0.5)\n"
    assert "npu_ops as npu_npu_ops_2\n" in after(source, "dropout")
