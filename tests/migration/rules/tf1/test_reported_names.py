"""Names of TensorFlow 1 whose uses are reported with a fixed message."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "made",
    [
        "tf.distribute.experimental.ParameterServerStrategy()",
        "tf.distribute.experimental.TPUStrategy(r)",
        "tf.train.SyncReplicasOptimizer(opt, 4)",
        "tf.train.Server(cluster)",
    ],
)
def test_servers_and_tpus_are_reported(made: str) -> None:
    check_says("distribute_servers", HEAD + f"s = {made}\n", "manual", "")


DEBUGGER = "import tensorflow as tf\nfrom tensorflow.python import debug as tf_debug\n"


@pytest.mark.parametrize(
    "source",
    [
        "from mine import LocalCLIDebugHook\nhooks = [LocalCLIDebugHook()]\n",
        "import tensorflow as tf\nclass LocalCLIDebugHook: pass\nLocalCLIDebugHook()\n",
        DEBUGGER + "data = tf_debug.DebugDumpDir('/tmp/dump')\n",
    ],
)
def test_what_is_no_hook_of_the_debugger_is_left_alone(source: str) -> None:
    check_noop("debug_hooks", source)


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize(
    "line",
    [
        "spec = tf.estimator.EstimatorSpec(mode, training_hooks=[tf_debug.LocalCLIDebugHook()])",
        "est.train(fn, hooks=[tf_debug.LocalCLIDebugHook(ui_type='readline')])",
        "sess = tf_debug.LocalCLIDebugWrapperSession(sess, ui_type='readline')",
    ],
)
def test_a_debugger_that_waits_for_commands_is_reported(line: str, to: str) -> None:
    check_says("debug_hooks", DEBUGGER + line + "\n", "manual", "waits for a command", to=to)


def test_other_names_of_the_debugger_are_found() -> None:
    source = "from tensorflow.python.debug.wrappers import hooks as h\nx = h.LocalCLIDebugHook()\n"
    check_says("debug_hooks", source, "manual", "LocalCLIDebugHook")


def test_a_debugger_that_writes_is_reported_too() -> None:
    check_says("debug_hooks", DEBUGGER + "h = tf_debug.DumpingDebugHook('/tmp')\n", "manual", "--dump DIR")


STARTED = "import tensorflow as tf\nfrom npu_bridge.estimator import npu_ops\nop = npu_ops.initialize_system()\n"


def test_a_shutdown_anywhere_in_the_project_is_enough() -> None:
    check_noop("lifecycle_shutdown", STARTED + "end = npu_ops.shutdown_system()\n")
    other = "import tensorflow\nfrom npu_bridge.estimator import npu_ops\nnpu_ops.shutdown_system()\n"
    check_noop("lifecycle_shutdown", STARTED, others={"end.py": other})


def test_a_missing_shutdown_is_advice() -> None:
    check_says("lifecycle_shutdown", STARTED, "advice", "shut down")
