"""The Keras callback that starts all ranks from the same weights."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import state

from .npu_hook import broadcast_global_variables


class NPUBroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Acts once, at the first batch."""

    def __init__(self, root_rank: int) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.broadcast_done:
            return
        self.broadcast_done = True
        if state.size() > 1:
            session = tf.keras.backend.get_session()
            with session.graph.as_default():
                session.run(broadcast_global_variables(self.root_rank))
