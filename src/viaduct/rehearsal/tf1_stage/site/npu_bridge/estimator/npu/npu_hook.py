"""Hooks of a monitored session."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import collectives, loops, state


class NPUBroadcastGlobalVariablesHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """All ranks start from the root's values."""

    def __init__(self, root_rank: int | None = None, index: int | None = None) -> None:
        if root_rank is not None and root_rank not in range(state.size()):
            raise ValueError(f"root_rank {root_rank} is not within 0 to {state.size() - 1}")
        self._root_rank = root_rank or 0
        self._index = index
        self._bcast_op: Any = None

    def begin(self) -> None:
        """Build the broadcast, unless there is one rank."""
        if state.size() > 1:
            self._bcast_op = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run the broadcast."""
        if self._bcast_op is not None:
            session.run(self._bcast_op)


def broadcast_global_variables(root_rank: int, kind: str = "HcomBroadcast") -> Any:
    """One operator that sets every global variable to the root's value."""
    variables = tf.global_variables()
    values = collectives.broadcast([tf.convert_to_tensor(v) for v in variables], root_rank, kind=kind)
    return tf.group(*[tf.assign(variable, value) for variable, value in zip(variables, values, strict=True)])


class NPUCheckpointSaverHook(tf.train.CheckpointSaverHook):  # type: ignore[misc]
    """TensorFlow's saver; with a loop on the NPU it saves at the first look after each interval."""

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
    """Tells the device how many steps one run is."""

    def __init__(self, iterations_per_loop: int | None = None) -> None:
        self._iterations_per_loop = iterations_per_loop or int(os.environ.get("ITERATIONS_PER_LOOP", "1"))

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Set the loop's length in the session."""
        loops.set_all(session.graph, self._iterations_per_loop)


class NPUShutDownHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Communication ends with the session."""

    def __init__(self, scaffold: Any = None) -> None:
        self._scaffold = scaffold

    def end(self, session: Any) -> None:
        """End communication."""
        state.set_communication(False)


class NPUOutputTensorHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Hands tensors to a function every so many steps."""

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
        self._dependencies = dependencies
        self._output_fn = output_fn
        self._every, self._kept, self._steps = output_every_n_steps, [], 0  # type: ignore[var-annotated]

    def before_run(self, run_context: Any) -> Any:
        """Fetch the tensors in each run."""
        return tf.train.SessionRunArgs(self._tensors)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep the values, and hand them over every so many steps."""
        self._steps += 1
        self._kept.append(run_values.results)
        if self._steps % self._every == 0:
            self._hand_over()

    def end(self, session: Any) -> None:
        """Hand over what is left."""
        if self._kept:
            self._hand_over()

    def _hand_over(self) -> None:
        kept, self._kept = self._kept, []
        self._output_fn(kept)


class TellMeStepOrLossHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Says how far training has come, by steps or by the loss: the NPU spends its precision by that."""

    def __init__(self, step: Any = None, total_step: Any = None, loss: Any = None, final_loss: Any = None) -> None:
        if (step is None) != (total_step is None) or (loss is None) != (final_loss is None):
            raise ValueError("step goes with total_step, and loss with final_loss")
        if step is None and loss is None:
            raise ValueError("either step and total_step or loss and final_loss must be given")
        self._step, self._total_step, self._loss, self._final_loss = step, total_step, loss, final_loss

    def before_run(self, run_context: Any) -> Any:
        """Fetch the step or the loss."""
        wanted = self._step if self._step is not None else self._loss
        return tf.train.SessionRunArgs(wanted) if isinstance(wanted, tf.Tensor) else None


class NPULogOutfeedSessionHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Prints what the graph sends to a stream."""

    def __init__(self, output_stream: Any) -> None:
        if isinstance(output_stream, str) and not output_stream:
            raise ValueError("output_stream must not be empty")
        self._output_stream = output_stream


class NPUInfeedOutfeedSessionHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Runs the operators that receive what the graph sends out."""

    def __init__(self, dequeue_ops: Any, channel_name: str) -> None:
        self._dequeue_ops = dequeue_ops
        self._channel_name = channel_name

    def before_run(self, run_context: Any) -> Any:
        """Fetch what the outfeed has."""
        return tf.train.SessionRunArgs(self._dequeue_ops)
