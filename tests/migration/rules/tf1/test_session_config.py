"""Sessions of TensorFlow, which get a config with NpuOptimizer, and sessions of other libraries."""

from __future__ import annotations

import ast
from textwrap import dedent, indent

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

RULE = "session_config"
REWRITER = (
    "from npu_bridge.estimator import npu_ops\n"
    "from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig\n"
)
WRAPPER = "from npu_bridge.npu_init import npu_config_proto\n"


def fill_config(config: str = "config", custom: str = "custom_op", by: str = "") -> str:
    lines = (
        f"{custom} = {config}.graph_options.rewrite_options.custom_optimizers.add()\n"
        f'{custom}.name = "NpuOptimizer"\n'
        f'{custom}.parameter_map["use_off_line"].b = True\n'
        f"{config}.graph_options.rewrite_options.remapping = RewriterConfig.OFF\n"
    )
    return indent(lines, by)


NEW = "config = tf.ConfigProto()\n" + fill_config()


# ---- what must not change


def test_sessions_of_other_libraries_are_left_alone() -> None:
    check_noop(RULE, "import requests\nfrom sqlalchemy.orm import Session\nrequests.Session()\nSession(config=None)\n")
    check_noop(RULE, "import tensorflow as tf\nclass tf2:\n    Session = dict\ntf2.Session()\nself.Session()\n")
    check_noop(RULE, "from boto3 import Session\nimport tensorflow as tf\ns = Session(config=1)\n")


def test_a_shadowed_name_is_not_tensorflow() -> None:
    check_noop(RULE, "import tensorflow as tf\ndef f(tf):\n    return tf.Session()\n")


@pytest.mark.parametrize("call", ["tf.Session(**options)", "tf.Session(*options)"])
def test_arguments_that_are_not_seen_need_manual_review(call: str) -> None:
    check_says(RULE, f"import tensorflow as tf\nsess = {call}\n", "manual", "config")


def test_sessions_created_elsewhere_need_manual_review() -> None:
    check_says(RULE, "import tensorflow as tf\nclass Mine(tf.Session):\n    pass\n", "manual", "other code creates")
    text = "import functools\nimport tensorflow as tf\nmake = functools.partial(tf.Session, '')\n"
    check_says(RULE, text, "manual", "other code creates")


def test_an_unknown_receiver_needs_manual_review() -> None:
    text = "import tensorflow as tf\ndef f(sv):\n    with sv.managed_session('') as sess:\n        pass\n"
    check_says(RULE, text, "manual", "Supervisor")


# ---- no config yet


@pytest.mark.parametrize(
    ("head", "name", "make"),
    [
        ("import tensorflow as tf\n", "tf.Session", "tf.ConfigProto"),
        ("import tensorflow.compat.v1 as tf1\n", "tf1.InteractiveSession", "tf1.ConfigProto"),
        ("import tensorflow as tf\n", "tf.compat.v1.Session", "tf.compat.v1.ConfigProto"),
        ("import tensorflow as tf\n", "tf.train.MonitoredTrainingSession", "tf.ConfigProto"),
        ("import tensorflow as tf\n", "tf.train.SingularMonitoredSession", "tf.ConfigProto"),
        ("import tensorflow as tf\n", "tf.train.ChiefSessionCreator", "tf.ConfigProto"),
        ("import tensorflow as tf\n", "tf.train.WorkerSessionCreator", "tf.ConfigProto"),
        ("import tensorflow as tf\n", "tf.contrib.training.train", "tf.ConfigProto"),
        ("import tensorflow as tf\n", "tf.train.Supervisor().managed_session", "tf.ConfigProto"),
        ("import tensorflow as tf\n", "tf.train.Supervisor().prepare_or_wait_for_session", "tf.ConfigProto"),
    ],
)
def test_every_way_to_open_a_session_is_configured(head: str, name: str, make: str) -> None:
    new = NEW.replace("tf.ConfigProto", make)
    check_rewrite(RULE, f"{head}s = {name}()\n", f"{head}{REWRITER}{new}s = {name}(config=config)\n")


@pytest.mark.parametrize(
    "call", ["learning.train(op, d", "evaluation.evaluate_once('', c, d", "evaluation.evaluation_loop('', c, d"]
)
def test_slims_argument_session_config_is_set(call: str) -> None:
    head = "import tensorflow as tf\nfrom tensorflow.contrib import slim\n"
    after = f"{head}{REWRITER}{NEW}slim.{call}, session_config=config)\n"
    check_rewrite(RULE, f"{head}slim.{call})\n", after)


def test_a_session_imported_by_name_is_configured() -> None:
    before = "from tensorflow import Session as S\nsess = S()\n"
    new = NEW.replace("tf.ConfigProto", "ConfigProto")
    bridge, rewriter = REWRITER.splitlines(keepends=True)
    head = f"from tensorflow import Session as S\n{bridge}from tensorflow import ConfigProto\n{rewriter}"
    check_rewrite(RULE, before, f"{head}{new}sess = S(config=config)\n")


def test_one_import_of_npu_bridge_is_enough() -> None:
    head = "import npu_bridge\nimport tensorflow as tf\n"
    after = migrate_source(f"{head}s = tf.Session()\n", RULE).after.decode()
    assert "npu_ops" not in after


def test_each_function_has_names_of_its_own_and_one_config() -> None:
    before = """
        import tensorflow as tf
        def train(config):
            with tf.Session() as sess:
                sess.run(a)
            with tf.Session() as sess:
                sess.run(b)
        def test():
            return run(tf.Session())
        """
    result = migrate_source(dedent(before), RULE).after.decode()
    assert result.count("with tf.Session(config=npu_config) as sess:") == 2
    assert result.count("tf.ConfigProto()") == 2
    assert "    return run(tf.Session(config=config))" in result


def test_with_items_comments_and_layout_stay() -> None:
    before = """
        import tensorflow as tf
        def main(_):
          # open it
          with tf.Graph().as_default() as g, tf.Session(
              graph=g,  # ours
          ) as sess:
            sess.run(a)
        """
    after = f"""
        import tensorflow as tf
        {REWRITER.strip().replace(chr(10), chr(10) + " " * 8)}
        def main(_):
          # open it
          config = tf.ConfigProto()
{indent(fill_config(by="  "), "        ").rstrip()}
          with tf.Graph().as_default() as g, tf.Session(
              graph=g,  # ours
              config=config,
          ) as sess:
            sess.run(a)
        """
    check_rewrite(RULE, before, after)


def test_tabs_and_line_ends_are_kept() -> None:
    before = "import tensorflow as tf\r\ndef f():\r\n\tif x:\r\n\t\ts = tf.Session()\r\n\t\ts.run(a)"
    result = migrate_source(before, RULE).after
    assert b"\r\n\t\tconfig = tf.ConfigProto()\r\n\t\tcustom_op = " in result
    assert result.count(b"\n") == result.count(b"\r\n")
    assert result.endswith(b"\t\ts.run(a)")


def test_a_monitored_session_gets_a_creator() -> None:
    before = "import tensorflow as tf\nwith tf.train.MonitoredSession(hooks=h) as s:\n    s.run(a)\n"
    after = (
        f"import tensorflow as tf\n{REWRITER}{NEW}with tf.train.MonitoredSession("
        "hooks=h, session_creator=tf.train.ChiefSessionCreator(config=config)) as s:\n    s.run(a)\n"
    )
    check_rewrite(RULE, before, after)


# ---- a config is there


def test_a_positional_config_is_edited_in_place() -> None:
    before = "import tensorflow as tf\ns = tf.Session('', None, tf.ConfigProto(log_device_placement=True))\n"
    made = "config = tf.ConfigProto(log_device_placement=True)\n" + fill_config()
    check_rewrite(RULE, before, f"import tensorflow as tf\n{REWRITER}{made}s = tf.Session('', None, config)\n")
    check_rewrite(
        RULE,
        "import tensorflow as tf\ns = tf.Session('', None, None)\n",
        f"import tensorflow as tf\n{REWRITER}{NEW}s = tf.Session('', None, config)\n",
    )


def test_configs_of_both_branches_are_extended() -> None:
    before = """
        import tensorflow as tf
        if gpu:
            config = tf.ConfigProto(device_count={"GPU": 1})
        else:
            config = tf.ConfigProto()
        sess = tf.Session(config=config)
        """
    result = migrate_source(dedent(before), RULE).after.decode()
    assert result.count("    custom_op.name") + result.count("    npu_custom_op.name") == 2


def test_wrapper_style_is_one_expression() -> None:
    before = "import tensorflow as tf\nc = tf.ConfigProto()\nwith tf.Session(config=c) as s:\n    s.run(a)\n"
    result = check_rewrite(
        RULE,
        before,
        f"import tensorflow as tf\n{WRAPPER}c = tf.ConfigProto()\n"
        "with tf.Session(config=npu_config_proto(config_proto=c)) as s:\n    s.run(a)\n",
        style="wrapper",
    )
    assert sum("memory_optimization" in finding.message for finding in result.findings) == 1


def test_a_session_handed_to_keras_is_not_made_twice() -> None:
    before = """
        import tensorflow as tf
        from tensorflow.keras import backend as K
        K.set_session(tf.Session(config=tf.ConfigProto(allow_soft_placement=True)))
        """
    after = f"""
        import tensorflow as tf
        from tensorflow.keras import backend as K
        {REWRITER.strip().replace(chr(10), chr(10) + " " * 8)}
        config = tf.ConfigProto(allow_soft_placement=True)
{indent(fill_config(), "        ").rstrip()}
        K.set_session(tf.Session(config=config))
        """
    check_rewrite(RULE, before, after)


def test_walrus_match_and_parenthesised_with_are_handled() -> None:
    before = """
        import tensorflow as tf
        def f(x, /, *, y):
            match x:
                case 1:
                    with (tf.Graph().as_default(), tf.Session() as sess):
                        print(f"{sess.run(a)!r:>{y}}")
                case _:
                    if (sess := tf.Session()):
                        return sess
        """
    result = migrate_source(dedent(before), RULE).after.decode()
    assert result.count("tf.Session(config=") == 2
    ast.parse(result)


def test_a_helper_and_statements_in_one_file() -> None:
    before = "import tensorflow as tf\nmake = lambda: tf.Session()\nwith tf.Session() as sess:\n    sess.run(a)\n"
    after = migrate_source(before, RULE).after.decode()
    assert "lambda: tf.Session(config=npu_config_proto())" in after
    assert "with tf.Session(config=config) as sess:" in after


@pytest.mark.parametrize(
    "source",
    [
        "sess = tf.Session(config=tf.ConfigProto(device_count={'GPU': 0}))\n",
        "config = tf.ConfigProto(device_count={'CPU': 1, 'GPU': 0})\nsess = tf.Session(config=config)\n",
        "config = tf.ConfigProto()\nconfig.device_count['GPU'] = 0\nsess = tf.Session(config=config)\n",
    ],
)
def test_a_session_without_a_gpu_stays_on_the_host(source: str) -> None:
    check_says("session_config", "import tensorflow as tf\n" + source, "manual", "stays on the host")


def test_one_gpu_is_no_reason_to_stay_on_the_host() -> None:
    source = "import tensorflow as tf\nsess = tf.Session(config=tf.ConfigProto(device_count={'GPU': 1}))\n"
    assert "NpuOptimizer" in migrate_source(source, "session_config").after.decode()


@pytest.mark.parametrize("star", ["", "from numpy import *\n", "from tensorflow.contrib.slim import *\n"])
def test_a_session_by_a_star_import_is_configured(star: str) -> None:
    source = f"from tensorflow import *\n{star}with Session() as sess:\n    sess.run(x)\n"
    assert "with Session(config=config) as sess:" in migrate_source(source, "session_config").after.decode()


def test_a_session_of_an_ambiguous_star_import_needs_review() -> None:
    source = "from tensorflow import *\nfrom requests import *\ns = Session()\n"
    check_says("session_config", source, "manual", "another star import's")
    check_noop("session_config", "from requests import *\ns = Session()\n")


def test_a_session_class_as_a_default_needs_manual_review() -> None:
    source = "import tensorflow as tf\ndef f(factory=tf.Session):\n    factory().run(x)\n"
    check_says("session_config", source, "manual", "other code creates sessions of this class")


def test_a_class_that_derives_from_a_session_needs_manual_review() -> None:
    source = "import tensorflow as tf\nclass S(tf.Session):\n    pass\ns = S()\n"
    check_says("session_config", source, "manual", "other code creates sessions of this class")


HELPERS = {
    "a function that is given the config": (
        "def add(config):\n    op = config.graph_options.rewrite_options.custom_optimizers.add()\n"
        "    op.name = 'NpuOptimizer'\n    return config\n",
        "c = tf.ConfigProto()\nadd(c)\nwith tf.Session(config=c) as s:\n    s.run(a)\n",
    ),
    "its result": (
        "def add(config):\n    op = config.graph_options.rewrite_options.custom_optimizers.add()\n"
        "    op.name = 'NpuOptimizer'\n    return config\n",
        "with tf.Session(config=add(tf.ConfigProto())) as s:\n    s.run(a)\n",
    ),
    "its result by name": (
        "def make():\n    c = tf.ConfigProto()\n    r = c.graph_options.rewrite_options\n"
        "    op = r.custom_optimizers.add()\n    op.name = 'NpuOptimizer'\n    return c, 1\n"
        "def only(x=None):\n    op = x.graph_options.rewrite_options.custom_optimizers.add()\n"
        "    op.name = 'NpuOptimizer'\n    return x\n",
        "c = only(x=tf.ConfigProto())\nwith tf.Session(config=c) as s:\n    s.run(a)\n",
    ),
    "a method": (
        "",
        "class Run:\n    def config(self, c):\n"
        "        op = c.graph_options.rewrite_options.custom_optimizers.add()\n        op.name = 'NpuOptimizer'\n"
        "        return c\n    def go(self):\n"
        "        with tf.Session(config=self.config(tf.ConfigProto())) as s:\n            s.run(a)\n",
    ),
}


@pytest.mark.parametrize("way", HELPERS)
@pytest.mark.parametrize("apart", [False, True])
def test_a_session_with_a_helper_that_adds_npu_optimizer_stays(way: str, apart: bool) -> None:
    helper, session = HELPERS[way]
    head = "import tensorflow as tf\n"
    source = head + ("from helper import *\n" if apart else helper) + session
    others = {"helper.py": head + helper} if apart else {}
    check_noop("session_config", source, others=others)


def test_remapping_is_switched_off_in_each_config_with_npu_optimizer() -> None:
    text = "import tensorflow as tf\nfrom npu_bridge.estimator import npu_ops\n"
    for name, last in (("a", "a.graph_options.rewrite_options.remapping = 2\n"), ("b", "")):
        text += f"{name} = tf.ConfigProto()\no{name} = {name}.graph_options.rewrite_options.custom_optimizers.add()\n"
        text += f'o{name}.name = "NpuOptimizer"\n{last}'
        text += f"with tf.Session(config={name}) as s:\n    s.run(x)\n"
    after = migrate_source(text, "session_config").after.decode()
    assert after.count("remapping") == 2
    assert "b.graph_options.rewrite_options.remapping = RewriterConfig.OFF\n" in after


def test_remapping_is_switched_off_in_a_config_with_npu_optimizer() -> None:
    lines = (
        "import tensorflow as tf\nfrom npu_bridge.estimator import npu_ops\n{}def run():\n    c = tf.ConfigProto()\n"
        "    op = c.graph_options.rewrite_options.custom_optimizers.add()\n    op.name = 'NpuOptimizer'\n"
        "    op.parameter_map['use_off_line'].b = True\n{}    with tf.Session(config=c) as s:\n        s.run(a)\n"
    )
    imported = "from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig\n"
    off = "    c.graph_options.rewrite_options.remapping = RewriterConfig.OFF\n"
    check_rewrite("session_config", lines.format("", ""), lines.format(imported, off))
