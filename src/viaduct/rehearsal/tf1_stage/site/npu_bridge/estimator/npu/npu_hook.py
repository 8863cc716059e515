"""Hooks of Ascend's TF Adapter for monitored sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import data_parallel, loops, state


class NPUBroadcastGlobalVariablesHook(data_parallel.BroadcastHook):
    """Hook that broadcasts the root rank's variables to all ranks; `index` has no effect."""

    op_name = "HcomBroadcast"

    def __init__(self, root_rank: int | None = None, index: int | None = None) -> None:
        if root_rank is not None and root_rank not in range(state.size()):
            raise ValueError(f"root_rank {root_rank} is not within 0 to {state.size() - 1}")
        super().__init__(root_rank or 0)


class NPUCheckpointSaverHook(tf.train.CheckpointSaverHook):  # type: ignore[misc]
    """TensorFlow's hook. It saves after a session run; with iterations_per_loop a run takes several steps."""

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: int | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Any = None,
    ) -> None:
        super().__init__(checkpoint_dir, save_secs, save_steps, saver, checkpoint_basename, scaffold, listeners)


class SetIterationsVarHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Sets the number of steps that one session run takes on the device."""

    def __init__(self, iterations_per_loop: int | None = None) -> None:
        self._iterations_per_loop = iterations_per_loop or int(os.environ.get("ITERATIONS_PER_LOOP", "1"))

    def after_create_session(self, session: Any, coord: Any) -> None:
        loops.set_loop_counts(session.graph, self._iterations_per_loop)


class NPUShutDownHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Ends communication between the ranks when the session ends."""

    def __init__(self, scaffold: Any = None) -> None: ...

    def end(self, session: Any) -> None:
        state.set_communication(False)


class NPUOutputTensorHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Calls a function with the tensors of the last session runs, every `output_every_n_steps` runs.

    `dependencies` has no effect.
    """

    def __init__(
        self,
        tensors: Any,
        dependencies: Any = None,
        output_fn: Callable[..., Any] | None = None,
        output_every_n_steps: int = 0,
    ) -> None:
        if output_every_n_steps <= 0:
            raise ValueError(f"output_every_n_steps must be positive, got {output_every_n_steps}")
        if not callable(output_fn):
            raise ValueError("output_fn must be a function")
        self._tensors = tensors
        self._output_fn = output_fn
        self._every, self._runs = output_every_n_steps, 0
        self._results: list[Any] = []  # of the runs since the last call of the function

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._tensors)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._runs += 1
        self._results.append(run_values.results)
        if self._runs % self._every == 0:
            self._call_output_fn()

    def end(self, session: Any) -> None:
        if self._results:
            self._call_output_fn()

    def _call_output_fn(self) -> None:
        results, self._results = self._results, []
        self._output_fn(results)


class TellMeStepOrLossHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Fetches the step or the loss in every run. Only the NPU uses the value: it chooses its precision by it."""

    def __init__(self, step: Any = None, total_step: Any = None, loss: Any = None, final_loss: Any = None) -> None:
        if (step is None) != (total_step is None) or (loss is None) != (final_loss is None):
            raise ValueError("step goes with total_step, and loss with final_loss")
        if step is None and loss is None:
            raise ValueError("pass either step and total_step, or loss and final_loss")
        self._progress = step if step is not None else loss

    def before_run(self, run_context: Any) -> Any:
        is_in_graph = isinstance(self._progress, (tf.Tensor, tf.Variable))
        return tf.train.SessionRunArgs(self._progress) if is_in_graph else None


class NPULogOutfeedSessionHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Hook without effect, with the adapter's check of its argument."""

    def __init__(self, output_stream: Any) -> None:
        if isinstance(output_stream, str) and not output_stream:
            raise ValueError("output_stream must not be empty")


class NPUInfeedOutfeedSessionHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Runs `dequeue_ops`, which receive tensors from a channel (`npu_ops.outfeed_dequeue_op`), in every session run."""

    def __init__(self, dequeue_ops: Any, channel_name: str) -> None:
        self._dequeue_ops = dequeue_ops

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._dequeue_ops)
