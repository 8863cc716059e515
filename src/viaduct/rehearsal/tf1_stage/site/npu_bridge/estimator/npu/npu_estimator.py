"""NPUEstimator: TensorFlow's Estimator with the checks, hooks and session config of Ascend's TF Adapter."""

from __future__ import annotations

import inspect
import os
import random
import string
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator.model_fn import EstimatorSpec

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import loops, state

from .. import npu_ops
from . import npu_common, npu_hook
from .npu_config import NPURunConfig

CHANNEL = "npu_outfeed"  # the channel (npu_ops.outfeed_enqueue_op) of a host call's tensors
# For names of folders; `random.choices` would change the script's random numbers.
FOLDER_NAME_RANDOM = random.SystemRandom()


class NPUEstimatorSpec(EstimatorSpec):  # type: ignore[misc]
    """EstimatorSpec with `host_call`: a function and its tensors, for a call on the host in each step."""

    _host_call: tuple[Callable[..., Any], Any] | None

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        export_outputs: Any = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
        host_call: Any = None,
    ) -> NPUEstimatorSpec:
        fields = {name: value for name, value in locals().items() if name in EstimatorSpec._fields}
        check_host_call(host_call)
        spec: NPUEstimatorSpec = super().__new__(cls, **fields)
        spec._host_call = host_call
        return spec


def check_host_call(host_call: Any) -> None:
    """Raise an error for a host_call that the adapter refuses."""
    if host_call is None:
        return
    if not isinstance(host_call, (tuple, list)):
        raise ValueError("host_call should be tuple or list")
    if len(host_call) != 2:
        raise ValueError("host_call should have two elements.")
    function, tensors = host_call
    if not callable(function):
        raise TypeError("host_call[0] should be callable.")
    if not isinstance(tensors, (tuple, list, dict)):
        raise ValueError("host_call[1] should be tuple or list, or dict.")
    parameters = inspect.signature(function).parameters
    if isinstance(tensors, (tuple, list)) and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        required = [p for p in parameters.values() if p.default is p.empty]
        if not len(required) <= len(tensors) <= len(parameters):
            raise RuntimeError(
                "In host_call, length of tensors does not match method args of the function. "
                f"Tensors: {len(tensors)}, function args: {len(parameters)}"
            )


class NPUEstimator(tf.estimator.Estimator):  # type: ignore[misc]
    """Estimator that checks its arguments as the adapter does, and trains with the NPU's hooks."""

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | None = None,
        config: Any = None,
        params: dict[str, Any] | None = None,
        job_start_file: str = "",
        warm_start_from: Any = None,
    ) -> None:
        check_config(config)
        check_job(job_start_file)
        model_dir = choose_model_dir(model_dir, config.model_dir)
        session_config = npu_common.npu_session_config(config.session_config)
        npu_common.add_optimizers(session_config)
        npu_common.copy_options(config, session_config)
        config = config.replace(session_config=session_config, model_dir=model_dir)
        warm_start_from = warm_start_from or os.environ.get("RESTORE_FROM") or os.environ.get("LOCAL_CHECKPOINT_DIR")
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    @staticmethod
    def _assert_members_are_not_overridden(self: Any) -> None:
        """Allow overridden methods, which TensorFlow refuses in subclasses."""

    # ---- communication between the ranks ends with each of these calls

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Any:
        check_multiples(self.config, steps=steps, max_steps=max_steps, **find_hook_intervals(hooks))
        try:
            return super().train(input_fn, hooks, steps, max_steps, saving_listeners)
        finally:
            state.set_communication(False)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            state.set_communication(False)

    # ---- the model function's result, with the NPU's hooks

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = super()._call_model_fn(features, labels, mode, config)
        if mode == tf.estimator.ModeKeys.TRAIN:
            return self._add_training_hooks(spec)
        if mode == tf.estimator.ModeKeys.EVAL:
            host_op = make_host_call_op(spec, spec.loss)
            with tf.control_dependencies([host_op] if host_op is not None else []):
                return spec._replace(loss=tf.identity(spec.loss))
        return spec

    def _add_training_hooks(self, spec: Any) -> Any:
        """Return a spec with the NPU's hooks before its own, and with the host call in its training operator."""
        config = self.config
        host_op = make_host_call_op(spec, spec.train_op)
        train_op = spec.train_op if host_op is None else tf.group(spec.train_op, host_op)
        npu_hooks: list[Any] = []
        if state.size() > 1 and not config.horovod_mode:
            npu_hooks.append(npu_hook.NPUBroadcastGlobalVariablesHook(0, state.rank()))
        if config.iterations_per_loop > 1:
            train_op = tf.group(train_op, name="IterationOp")
            loops.declare_loop(tf.get_default_graph(), train_op)
            npu_hooks.append(npu_hook.SetIterationsVarHook(config.iterations_per_loop))
        return spec._replace(train_op=train_op, training_hooks=[*npu_hooks, *spec.training_hooks])


def make_host_call_op(spec: Any, after: Any) -> Any:
    """Return the operator of a spec's host call, executed after `after`; None without a host call."""
    call = getattr(spec, "_host_call", None)
    if call is None:
        return None
    function, tensors = call
    with tf.control_dependencies([after]):
        listed = tensors.values() if isinstance(tensors, dict) else tensors
        # `read_value` reads a variable here, after `after`.
        flat = [
            tensor.read_value() if isinstance(tensor, tf.Variable) else tf.convert_to_tensor(tensor)
            for tensor in listed
        ]
        enqueue = npu_ops.outfeed_enqueue_op(CHANNEL, flat)
    with tf.control_dependencies([enqueue]):
        received = npu_ops.outfeed_dequeue_op(CHANNEL, [t.dtype for t in flat], [t.shape for t in flat])
    result = function(**dict(zip(tensors, received, strict=True))) if isinstance(tensors, dict) else function(*received)
    ops = list(result.values()) if isinstance(result, dict) else tf.nest.flatten(result)
    return tf.group(enqueue, *[op for op in ops if op is not None])


def check_config(config: Any) -> None:
    """Report a config other than NPURunConfig."""
    if config is None or not isinstance(config, NPURunConfig):
        limits.report_violation("config-class", "missing" if config is None else "", config=type(config).__name__)
        raise ValueError("`config` must be provided with type `NPUConfigs`")


def check_job(job_start_file: str) -> None:
    """Report a missing JOB_ID, unless there is a job file."""
    if os.environ.get("JOB_ID") or (job_start_file and os.path.exists(job_start_file)):
        return
    limits.report_violation("job-id")


def choose_model_dir(argument: str | None, configured: str | None) -> str:
    """Return the model's folder, or a random name if none is set; raise ValueError if both are set and differ."""
    if argument and configured and argument != configured:
        raise ValueError(
            "`model_dir` are set both in constructor and `NPURunConfig`, but with "
            f"different values. In constructor: '{argument}', in `NPURunConfig`: '{configured}' "
        )
    return (
        argument
        or configured
        or "model_dir_" + "".join(FOLDER_NAME_RANDOM.choices(string.ascii_letters + string.digits, k=10))
    )


def find_hook_intervals(hooks: Any) -> dict[str, int]:
    """Return the step intervals of hooks, which TensorFlow's hooks store in their timers."""
    timers = {type(hook).__name__: getattr(hook, "_timer", None) for hook in hooks or []}
    intervals = {name: getattr(timer, "_every_steps", None) for name, timer in timers.items()}
    return {f"{name}'s interval": steps for name, steps in intervals.items() if steps is not None}


def check_multiples(config: Any, **step_counts: int | None) -> None:
    """Report step counts that are no multiples of iterations_per_loop, since the host acts only between loops."""
    iterations = config.iterations_per_loop
    for name, steps in {**step_counts, "save_checkpoints_steps": config.save_checkpoints_steps}.items():
        if iterations > 1 and steps is not None and steps % iterations:
            limits.report_violation("step-multiples", name=name, steps=steps, iterations=iterations)
