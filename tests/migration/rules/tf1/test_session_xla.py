"""XLA and remapping are switched off; other settings that disturb the device get advice."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

RULE = "session_xla"
HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "body",
    [
        "settings.global_jit_level = 2\n",
        "c = tf.ConfigProto()\nc.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.OFF\n",
        "config = tf.ConfigProto()\nconfig.graph_options.optimizer_options.global_jit_level = -1\n",
        "config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)\n",
        "config.graph_options.rewrite_options.remapping = RewriterConfig.OFF\n",
        "config.graph_options.rewrite_options.memory_optimization = RewriterConfig.OFF\n",
        "placement.allow_soft_placement = False\n",
        "tf.config.optimizer.set_jit(False)\n",
        "with tf.xla.experimental.jit_scope(compile_ops=False):\n    pass\n",
    ],
)
def test_right_settings_and_other_objects_are_left_alone(body: str) -> None:
    check_noop(RULE, HEAD + body)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tf.compat.v1.OptimizerOptions.ON_2", "tf.compat.v1.OptimizerOptions.OFF"),
        ("level", "tf.OptimizerOptions.OFF"),
        ("1  # on", "tf.OptimizerOptions.OFF  # on"),
    ],
)
def test_the_jit_level_is_switched_off(before: str, after: str) -> None:
    head = HEAD + "c = tf.ConfigProto()\nc.graph_options.optimizer_options.global_jit_level = "
    check_rewrite(RULE, f"{head}{before}\n", f"{head}{after}\n")


def test_an_alias_of_the_options_is_followed() -> None:
    head = HEAD + "c = tf.ConfigProto()\noptions = c.graph_options.optimizer_options\n"
    before = head + "options.global_jit_level = tf.OptimizerOptions.ON_1\n"
    check_rewrite(RULE, before, head + "options.global_jit_level = tf.OptimizerOptions.OFF\n")


def test_options_set_jit_and_jit_scopes_are_edited() -> None:
    check_rewrite(
        RULE,
        """
        import tensorflow as tf
        options = tf.OptimizerOptions(opt_level=1, global_jit_level=tf.OptimizerOptions.ON_1)
        later = tf.OptimizerOptions()
        later.global_jit_level = tf.OptimizerOptions.ON_1
        tf.config.optimizer.set_jit(True)
        with tf.xla.experimental.jit_scope():
            pass
        with tf.contrib.compiler.jit.experimental_jit_scope(True):
            pass
        """,
        """
        import tensorflow as tf
        options = tf.OptimizerOptions(opt_level=1, global_jit_level=tf.OptimizerOptions.OFF)
        later = tf.OptimizerOptions()
        later.global_jit_level = tf.OptimizerOptions.OFF
        tf.config.optimizer.set_jit(False)
        with tf.xla.experimental.jit_scope(compile_ops=False):
            pass
        with tf.contrib.compiler.jit.experimental_jit_scope(False):
            pass
        """,
    )


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("c.graph_options.rewrite_options.disable_model_pruning = True\n", "pruning"),
        ("c.graph_options.rewrite_options.constant_folding = RewriterConfig.OFF\n", "constant_folding"),
        ("c = tf.ConfigProto(allow_soft_placement=False)\n", "soft_placement"),
        ("c = tf.ConfigProto()\nc.log_device_placement = True\n", "log_device_placement"),
    ],
)
def test_other_settings_get_advice(body: str, word: str) -> None:
    head = HEAD + "from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig\n"
    check_says(RULE, head + body, "advice", word)


REMAPPED = HEAD + "from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig\n"


@pytest.mark.parametrize(
    "body",
    [
        "config = tf.ConfigProto()\nro = config.graph_options.rewrite_options\nro.remapping = {}\n",
        "config = tf.ConfigProto()\noptions = config.graph_options\noptions.rewrite_options.remapping = {}\n",
        "def tune(options):\n    options.remapping = {}\n",
        "class Job:\n    def set(self, fuse):\n        if fuse:\n            self.options.remapping = {}\n",
        "made = RewriterConfig()\nmade.remapping = {}\n",
        "options = tf.GraphOptions(rewrite_options=RewriterConfig(remapping={}, constant_folding=RewriterConfig.ON))\n",
    ],
)
def test_remapping_is_off_wherever_the_script_sets_it(body: str) -> None:
    for value in ("RewriterConfig.ON", "RewriterConfig.AGGRESSIVE", "RewriterConfig.ON if f() else RewriterConfig.OFF"):
        check_rewrite(RULE, REMAPPED + body.format(value), REMAPPED + body.format("RewriterConfig.OFF"))
    check_noop(RULE, REMAPPED + body.format("RewriterConfig.OFF"))


@pytest.mark.parametrize(
    "body",
    [
        'setattr(config.graph_options.rewrite_options, "remapping", RewriterConfig.ON)\n',
        "a.rewrite_options.remapping = a.rewrite_options.loop_optimization = RewriterConfig.ON\n",
        'text = "graph_options { rewrite_options { remapping: ON } }"\n',
    ],
)
def test_remapping_that_cannot_be_edited_needs_manual_review(body: str) -> None:
    check_says(RULE, REMAPPED + body, "manual", "set it to RewriterConfig.OFF")


def test_a_remapping_of_something_else_stays() -> None:
    check_noop(RULE, REMAPPED + "labels.remapping = ON\nsetattr(x, 'remap', 1)\nnote = 'remapping: ON'\n")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("RewriterConfig(disable_model_pruning=True)\n", "pruning"),
        ("RewriterConfig(memory_optimization=RewriterConfig.OFF)\n", "memory_optimization"),
        ("c = tf.ConfigProto()\nc.graph_options.rewrite_options.memory_optimization = RewriterConfig.OFF\n", "memory"),
    ],
)
def test_keywords_of_the_options_are_treated_like_fields(body: str, word: str) -> None:
    check_says(RULE, REMAPPED + body, "advice", word)


@pytest.mark.parametrize(
    "call", ["config.optimizer.set_jit(**kw)", "OptimizerOptions(**kw)", "xla.experimental.jit_scope(**kw)"]
)
def test_a_switch_of_xla_among_unpacked_arguments_needs_manual_review(call: str) -> None:
    check_says("session_xla", f"import tensorflow as tf\ntf.{call}\n", "manual", "leave XLA off")
