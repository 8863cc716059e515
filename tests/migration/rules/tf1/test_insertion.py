"""Code for which no statement can be inserted."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_rewrite, migrate_source

RULE = "session_config"
WRAPPER = "from npu_bridge.npu_init import npu_config_proto\n"


def test_a_config_that_reads_names_of_its_statement_is_wrapped() -> None:
    before = """
        import tensorflow as tf
        with open(p) as f, tf.Session(config=tf.ConfigProto(device_count=read(f))) as s:
            s.run(a)
        """
    assert "npu_config_proto(config_proto=tf.ConfigProto(device_count=read(f)))" in str(
        migrate_source(dedent(before), RULE)
    )


@pytest.mark.parametrize(
    "line",
    [
        "make = lambda: {}",
        "many = [{} for _ in range(2)]",
        "def f(sess={}):\n    pass",
        "@use({})\ndef f():\n    pass",
        "class A:\n    sess = {}",
        "x = 1; sess = {}",
        "if x: sess = {}",
        "if x:\n    pass\nelif {}:\n    pass",
    ],
)
def test_where_no_statement_can_be_inserted_the_helper_is_used(line: str) -> None:
    for inner in ("", "config=tf.ConfigProto(log_device_placement=False)"):
        before = f"import tensorflow as tf\n{line.format(f'tf.Session({inner})')}\n"
        old = f"config_proto={inner.removeprefix('config=')}" if inner else ""
        call = f"tf.Session(config=npu_config_proto({old}))"
        check_rewrite(RULE, before, f"import tensorflow as tf\n{WRAPPER}{line.format(call)}\n")
