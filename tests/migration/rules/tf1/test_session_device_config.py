from __future__ import annotations

from migration.checking import check_noop, check_rewrite, check_says

RULE = "session_device_config"
HEAD = "import tensorflow as tf\n"


def test_functions_of_other_libraries_are_left_alone() -> None:
    check_noop(RULE, "from mylib import set_memory_growth\nset_memory_growth(g, True)\n")
    check_noop(
        RULE, HEAD + "tf.config.set_soft_device_placement(True)\ntf.config.experimental.list_physical_devices()\n"
    )


def test_gpu_statements_are_removed_and_comments_stay() -> None:
    check_rewrite(
        RULE,
        """
        import tensorflow as tf
        x = 1
        tf.config.experimental.set_virtual_device_configuration(
            gpus[0], [tf.config.experimental.VirtualDeviceConfiguration(memory_limit=1024)])  # half
        limit = tf.config.experimental.VirtualDeviceConfiguration(memory_limit=1024)
        tf.config.set_soft_device_placement(enabled=flag)
        """,
        """
        import tensorflow as tf
        x = 1
        # half
        limit = tf.config.experimental.VirtualDeviceConfiguration(memory_limit=None)
        tf.config.set_soft_device_placement(enabled=True)
        """,
    )


def test_a_call_within_an_expression_needs_manual_review() -> None:
    text = HEAD + "done = [tf.config.experimental.set_memory_growth(g, True) for g in gpus]\n"
    check_says(RULE, text, "manual", "GPUs")


def test_experimental_options_become_the_vendors() -> None:
    before = HEAD + "tf.config.optimizer.set_experimental_options({'constant_folding': False})\n"
    after = HEAD + "from npu_bridge.npu_init import experimental_options\n"
    after += "tf.config.optimizer.set_experimental_options(experimental_options)\n"
    result = check_rewrite(RULE, before, after)
    assert any("constant_folding" in finding.message for finding in result.findings)
