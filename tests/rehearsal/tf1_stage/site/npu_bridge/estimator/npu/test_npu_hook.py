"""Hooks of a monitored session."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_hooks_that_the_real_classes_refuse_are_refused() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge.estimator.npu import npu_hook
        output = npu_hook.NPUOutputTensorHook
        answer = [refusal(call) for call in (
            lambda: npu_hook.NPUBroadcastGlobalVariablesHook(1),
            lambda: output({}, output_fn=print),
            lambda: output({}, output_every_n_steps=2),
            lambda: npu_hook.TellMeStepOrLossHook(),
            lambda: npu_hook.TellMeStepOrLossHook(step=1),
            lambda: npu_hook.TellMeStepOrLossHook(loss=1, step=1, total_step=3),
            lambda: npu_hook.NPULogOutfeedSessionHook(""),
            lambda: npu_hook.TellMeStepOrLossHook(step=1, total_step=3),
        )]
        """,
    )
    assert [str(refusal).partition(":")[0] for refusal in answer] == ["ValueError"] * 7 + ["None"]


def test_values_are_passed_on_every_second_step_and_those_left_over_at_the_end() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge.estimator.npu.npu_hook import NPUOutputTensorHook
        step = tf.train.get_or_create_global_step()
        count = tf.assign_add(step, 1)
        answer = []
        hook = NPUOutputTensorHook({"n": count}, output_fn=answer.append, output_every_n_steps=2)
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(5):
                session.run(count)
        answer = [[int(result["n"]) for result in results] for results in answer]
        """,
    )
    assert answer == [[1, 2], [3, 4], [5]]


def test_a_step_that_is_a_variable_is_fetched_and_a_number_is_not() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge.estimator.npu.npu_hook import TellMeStepOrLossHook
        steps = (tf.train.get_or_create_global_step(), tf.constant(1), 1)
        hooks = [TellMeStepOrLossHook(step=step, total_step=3) for step in steps]
        answer = [hook.before_run(None) is not None for hook in hooks]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            session.run(steps[1])
        """,
    )
    assert answer == [True, True, False]


def test_communication_ends_with_the_session() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge.estimator.npu.npu_hook import NPUShutDownHook
        from viaduct.rehearsal.tf1_stage import state
        x = tf.constant(1)
        with tf.train.MonitoredSession(hooks=[NPUShutDownHook()]) as session:
            state.set_communication(True)
            session.run(x)
            during = state.has_communication()
        answer = [during, state.has_communication()]
        """,
    )
    assert answer == [True, False]
