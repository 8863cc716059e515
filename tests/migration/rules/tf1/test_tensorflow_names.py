"""Names that are written into a TensorFlow script."""

from __future__ import annotations

from migration.checking import migrate_source

RULE = "session_config"


def test_the_module_rewriter_config_pb2_is_used_where_it_is_imported() -> None:
    head = "import tensorflow as tf\nfrom tensorflow.core.protobuf import rewriter_config_pb2\n"
    after = migrate_source(f"{head}s = tf.Session()\n", RULE).after.decode()
    assert "remapping = rewriter_config_pb2.RewriterConfig.OFF\n" in after
    assert "import RewriterConfig" not in after


def test_names_in_use_are_not_taken() -> None:
    before = "import tensorflow as tf\nconfig, custom_op = read()\ns = tf.Session()\n"
    after = migrate_source(before, RULE).after.decode()
    assert "npu_config = tf.ConfigProto()\nnpu_custom_op = npu_config." in after
    assert "s = tf.Session(config=npu_config)\n" in after
