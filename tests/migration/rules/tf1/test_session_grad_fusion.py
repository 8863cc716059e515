from __future__ import annotations

from migration.checking import check_noop, check_says, migrate_source

RULE = "session_grad_fusion"
NPU = """
import tensorflow as tf
def make():
\tconfig = tf.ConfigProto()
\top = config.graph_options.rewrite_options.custom_optimizers.add()
\top.name = "NpuOptimizer"
\top.parameter_map["use_off_line"].b = True
\treturn tf.Session(config=config)
"""


def test_without_npu_optimizer_nothing_is_added() -> None:
    check_noop(RULE, "import tensorflow as tf\nop.name = 'NpuOptimizer'\nsess = tf.Session()\n", distributed=True)


def test_without_distributed_nothing_is_added() -> None:
    assert b"GradFusion" not in migrate_source(NPU).after


def test_an_existing_list_is_left_alone() -> None:
    extended = 'config.graph_options.rewrite_options.optimizers.extend(["GradFusionOptimizer"])'
    check_noop(RULE, NPU.replace("\treturn", f"\t{extended}\n\treturn"), distributed=True)


def test_the_session_that_starts_communication_gets_no_list() -> None:
    text = NPU.replace("\tconfig =", "\tstart = npu_ops.initialize_system()\n\tconfig =")
    text = text.replace("as tf\n", "as tf\nfrom npu_bridge.estimator import npu_ops\n", 1)
    check_noop(RULE, text, distributed=True)


def test_the_list_is_written_with_the_files_indentation() -> None:
    after = migrate_source(NPU, RULE, distributed=True).after.decode()
    assert '\tconfig.graph_options.rewrite_options.optimizers.extend([\n\t\t"pruning", ' in after
    assert '"layout", "GradFusionOptimizer",\n\t])\n\treturn tf.Session' in after


def test_the_helper_needs_manual_review() -> None:
    text = "import tensorflow as tf\nfrom npu_bridge.npu_init import *\ns = tf.Session(config=npu_config_proto())\n"
    check_says(RULE, text, "manual", "GradFusionOptimizer", distributed=True)


def test_a_config_from_session_config_gets_the_list_too() -> None:
    after = migrate_source("import tensorflow as tf\ns = tf.Session()\ns.run(a)\n", distributed=True).after.decode()
    assert after.index("remapping") < after.index("GradFusionOptimizer") < after.index("tf.Session")
