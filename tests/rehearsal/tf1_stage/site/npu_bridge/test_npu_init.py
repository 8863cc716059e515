"""Configs, hooks and sessions for the NPU."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_a_config_of_the_script_is_changed_and_returned_and_every_session_has_the_option() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge import npu_init
        own = tf.ConfigProto(log_device_placement=True)
        returned = npu_init.npu_config_proto(own)
        names = [entry.name for entry in own.graph_options.rewrite_options.custom_optimizers]
        with tf.Session() as session:
            is_npu = session._viaduct.npu_options.is_on_npu
        run = npu_init.npu_run_config_init(tf.estimator.RunConfig("folder", session_config=own))
        answer = [returned is own, own.log_device_placement, names, is_npu, run.model_dir,
                  len(run.session_config.graph_options.rewrite_options.custom_optimizers)]
        """,
    )
    assert answer == [True, True, ["NpuOptimizer"], True, "folder", 1]


def test_the_broadcast_comes_after_the_hooks_of_a_list_and_others_are_dropped() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge import npu_init
        hook = npu_init.NpuEmptyHook()
        lists = [npu_init.npu_hooks_append(hooks) for hooks in ([hook], (hook,), ())]
        answer = [[type(entry).__name__ for entry in entries] for entries in lists]
        answer.append([type(entry).__name__ for entry in npu_init.npu_callbacks_append([hook])])
        """,
    )
    broadcast = "NPUBroadcastGlobalVariablesHook"
    callbacks = ["NpuEmptyHook", "NPUBroadcastGlobalVariablesCallback"]
    assert answer == [["NpuEmptyHook", broadcast], [broadcast], [broadcast], callbacks]


def test_communication_lasts_from_init_resource_to_shutdown_resource() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge import npu_init
        from viaduct.rehearsal.tf1_stage import state
        state.set_communication(False)
        session, stop = npu_init.init_resource()
        during = [state.has_communication(), npu_init.get_npu_rank_id(), npu_init.get_npu_rank_size()]
        npu_init.shutdown_resource(session, stop)
        npu_init.close_session(session)
        answer = [during, state.has_communication(), session._viaduct.is_closed]
        """,
    )
    assert answer == [[True, 0, 1], False, True]
