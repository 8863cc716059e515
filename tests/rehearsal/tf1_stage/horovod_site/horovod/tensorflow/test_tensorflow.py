"""Horovod's distributed optimizer: what it reduces, and what the stand-in refuses."""

from __future__ import annotations

import pytest

from rehearsal.snippets import evaluate, evaluate_ranks
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_arguments_without_a_counterpart_are_refused_and_not_ignored() -> None:
    refused = evaluate(
        "original",
        """
        import horovod.tensorflow as hvd, horovod.tensorflow.keras as khvd
        hvd.init()
        sgd, keras_sgd = tf.train.GradientDescentOptimizer(1.0), tf.keras.optimizers.SGD(1.0)
        answer = [refusal(lambda: make(**how)) for make, how in (
            (lambda **how: hvd.DistributedOptimizer(sgd, **how), dict(backward_passes_per_step=4)),
            (lambda **how: hvd.DistributedOptimizer(sgd, **how), dict(op=hvd.Sum, gradient_predivide_factor=2.0)),
            (lambda **how: hvd.DistributedOptimizer(sgd, **how), dict(procces_set=None)),
            (lambda **how: hvd.DistributedOptimizer(keras_sgd, **how), dict(op=hvd.Adasum)),
            (lambda **how: khvd.DistributedOptimizer(keras_sgd, **how), dict(op=hvd.Max)),
            (lambda **how: khvd.DistributedOptimizer(keras_sgd, **how), dict(backward_passes_per_step=2)),
        )]
        """,
    )
    assert [str(reason).split(":")[0] for reason in refused] == [
        *("NotImplementedError", "ValueError", "TypeError", "ValueError", "ValueError", "NotImplementedError")
    ]
    assert "backward_passes_per_step is 4" in refused[0]


@pytest.mark.parametrize(
    ("how", "dense", "row"),
    [("", 1.5, 2.0), ("op=hvd.Sum", 3.0, 4.0), ("sparse_as_dense=True", 1.5, 2.0), ("op=hvd.Max", 2.0, None),
     ("op=hvd.Max, sparse_as_dense=True", 2.0, 4.0), ("gradient_predivide_factor=4.0, sparse_as_dense=True", 1.5, 2.0),
     ("op=hvd.Adasum", None, None)],
)  # fmt: skip
def test_gradients_are_reduced_by_op_sparse_ones_too(how: str, dense: float | None, row: float | None) -> None:
    answers = evaluate_ranks(
        "original",
        f"""
        import horovod.tensorflow as hvd
        hvd.init()
        rank = hvd.rank()
        v = tf.get_variable("v", [])
        table = tf.get_variable("table", [3, 1])
        loss = v * (rank + 1.0) + tf.reduce_sum(tf.nn.embedding_lookup(table, [rank])) * 4.0
        optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0), {how})
        answer = []
        for variables in ([v], [table]):
            try:
                ((gradient, _),) = optimizer.compute_gradients(loss, variables)
            except NotImplementedError as error:
                answer.append(None)
            else:
                answer.append(compute(tf.convert_to_tensor(gradient)))
        """,
    )
    assert answers == [[dense, row and [[row], [row], [0]]]] * 2


def test_keras_optimizers_sum_if_they_are_asked_to_and_compress() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import horovod.tensorflow as hvd, horovod.tensorflow.keras as khvd
        hvd.init()
        v = tf.keras.backend.variable(1.0)
        sgd = lambda **how: khvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), **how)
        loss = v * (hvd.rank() + 1.0009765625 + 2.0 ** -20)  # float16 drops the last part
        answer = [float(compute(sgd(**how).get_gradients(loss, [v])[0])) for how in
                  ({}, dict(op=hvd.Sum), dict(compression=hvd.Compression.fp16))]
        """,
    )
    first = 1.0009765625
    exact = 2 * first + 1 + 2 * 2.0**-20
    assert answers == [[exact / 2, exact, pytest.approx(exact / 2, abs=1e-3)]] * 2
    assert answers[0][2] != exact / 2, "exchanged in float16"
