"""slim.learning: a training operator that also runs update operators, and the training loop."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = None,
    update_ops: Any = None,
    variables_to_train: Any = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: Any = tf.train.Optimizer.GATE_OP,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Any = None,
    check_numerics: bool = True,
) -> Any:
    """Return a tensor of the loss whose evaluation takes a training step; `update_ops` run first.

    summarize_gradients and colocate_gradients_with_ops have no effect.
    """
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
    with tf.control_dependencies(updates):
        total_loss = tf.identity(total_loss)
    pairs = optimizer.compute_gradients(total_loss, variables_to_train, gate_gradients, aggregation_method)
    if gradient_multipliers:
        pairs = [(g * gradient_multipliers.get(v.op.name, 1.0) if g is not None else g, v) for g, v in pairs]
    if clip_gradient_norm > 0:
        pairs = [(tf.clip_by_norm(g, clip_gradient_norm) if g is not None else g, v) for g, v in pairs]
    applied = optimizer.apply_gradients(pairs, global_step=step)
    if check_numerics:
        total_loss = tf.check_numerics(total_loss, "LossTensor is inf or nan")
    with tf.control_dependencies([applied]):
        return tf.identity(total_loss, name="train_op")


def train(
    train_op: Any,
    logdir: str | None,
    train_step_fn: Any = None,
    number_of_steps: int | None = None,
    init_fn: Any = None,
    log_every_n_steps: int = 1,
    session_config: Any = None,
    save_interval_secs: int = 600,
    saver: Any = None,
    master: str = "",
    is_chief: bool = True,
    **kwargs: Any,
) -> Any:
    """Run the training operator up to global step number_of_steps, and return the last loss.

    train_step_fn, log_every_n_steps and further keyword arguments are ignored.
    """
    hooks: list[Any] = [tf.train.StopAtStepHook(last_step=number_of_steps)] if number_of_steps else []
    initialize = (lambda scaffold, session: init_fn(session)) if init_fn is not None else None
    loss = None
    with tf.train.MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=tf.train.Scaffold(init_fn=initialize, saver=saver),
        hooks=hooks,
        save_checkpoint_secs=save_interval_secs,
        config=session_config,
    ) as session:
        while not session.should_stop():
            loss = session.run(train_op)
    return loss
