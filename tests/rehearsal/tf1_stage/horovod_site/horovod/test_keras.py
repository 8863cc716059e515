"""Callbacks and optimizers of horovod.keras."""

from __future__ import annotations

import pytest

from rehearsal.snippets import evaluate, evaluate_ranks
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_the_learning_rate_follows_the_epoch_within_its_bounds_only() -> None:
    answer = evaluate(
        "original",
        """
        from types import SimpleNamespace
        from horovod.keras import callbacks
        network = SimpleNamespace(optimizer=SimpleNamespace(lr=tf.keras.backend.variable(9.0)))
        def rates(callback, epochs, batches=()):
            callback.model, callback.params, seen = network, {"steps": 2}, []
            tf.keras.backend.set_value(network.optimizer.lr, 9.0)
            for epoch in epochs:
                callback.on_epoch_begin(epoch)
                for batch in batches or [None]:
                    if batch is not None:
                        callback.on_batch_begin(batch)
                    seen.append(float(tf.keras.backend.get_value(network.optimizer.lr)))
            return seen
        schedule = callbacks.LearningRateScheduleCallback
        answer = [
            rates(schedule(0.5, 0.1, start_epoch=1, end_epoch=2), range(3)),
            rates(schedule(0.5, lambda epoch: epoch), range(3)),
            rates(schedule(0.5, lambda epoch: epoch, staircase=False), range(2), (0, 1)),
            rates(callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=2), range(3), (0, 1)),
        ]
        with mock.patch.dict("os.environ", RANK_SIZE="4"):
            answer.append(rates(callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=2), range(3), (0, 1)))
        """,
    )
    assert answer[0] == [9, pytest.approx(0.05), pytest.approx(0.05)], "from the first epoch on, and not after it"
    assert answer[1] == [0, 0.5, 1]
    assert answer[2] == [0, 0.25, 0.5, 0.75]
    assert answer[3] == [0.5] * 6, "one rank has nothing to warm up"
    assert answer[4] == [pytest.approx(rate) for rate in (0.175, 0.25, 0.325, 0.4, 0.4, 0.4)]


def test_metrics_of_an_epoch_become_means_over_the_ranks() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import os
        from horovod.keras.callbacks import MetricAverageCallback
        rank = int(os.environ["RANK_ID"])
        logs = {"loss": 1.0 + rank, "acc": 0.5} if rank else {"acc": 1.0, "loss": 1.0}
        MetricAverageCallback().on_epoch_end(0, logs)
        MetricAverageCallback().on_epoch_end(1, {})
        answer = logs
        """,
    )
    assert answers == [{"loss": 1.5, "acc": 0.75}] * 2, "by name, in whatever order the ranks hold them"


def test_collectives_of_keras_return_values_and_not_tensors() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import horovod.keras as hvd
        hvd.init()
        values = [hvd.allreduce(3.0 + hvd.rank(), "score"), hvd.allreduce([1.0], op=hvd.Sum),
                  hvd.allgather([1.0 + hvd.rank()]), hvd.broadcast(hvd.rank(), 1)]
        answer = [isinstance(value, (np.ndarray, np.generic)) and np.asarray(value).tolist() for value in values]
        """,
    )
    assert answers == [[3.5, [2], [1, 2], 1]] * 2
