"""Collectives of Horovod: what it refuses, its dtypes, and its gradients."""

from __future__ import annotations

from rehearsal.snippets import evaluate, evaluate_ranks
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_sparse_tensors_are_refused_but_for_sums_and_means() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import horovod.tensorflow as hvd
        hvd.init()
        rank = hvd.rank()
        rows = tf.IndexedSlices(tf.constant([[2.0 + 4 * rank]]), tf.constant([rank + 1]), tf.constant([3, 1]))
        total, mean = hvd.allreduce(rows, op=hvd.Sum), hvd.allreduce(rows)
        refused = [refusal(lambda: hvd.allreduce(rows, **how)) for how in
                   (dict(op=hvd.Adasum), dict(op=hvd.Min), dict(op=hvd.Max), dict(op=hvd.Product),
                    dict(prescale_factor=0.5), dict(op=hvd.Sum, postscale_factor=2.0))]
        answer = [refused, compute([total.values, total.indices, mean.values])]
        """,
    )
    for refused, values in answers:
        assert all(str(reason).startswith("NotImplementedError: ") for reason in refused)
        assert "sparse_as_dense=True" in refused[0]
        assert values == [[[2], [6]], [1, 2], [[1], [3]]]


def test_one_rank_refuses_the_same_sparse_reductions() -> None:
    refused = evaluate(
        "original",
        """
        import horovod.tensorflow as hvd
        hvd.init()
        rows = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([1]), tf.constant([3, 1]))
        answer = [refusal(lambda: hvd.allreduce(rows, op=op)) is not None for op in range(6)]
        """,
    )
    assert refused == [False, False, True, True, True, True]


def test_adasum_between_ranks_and_unknown_reductions_are_refused_and_not_averaged() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import horovod.tensorflow as hvd
        hvd.init()
        x = tf.constant([1.0 + hvd.rank()])
        answer = [refusal(lambda: hvd.allreduce(x, **how)) for how in (dict(op=hvd.Adasum), dict(op=9),
                                                                      dict(op=hvd.Sum, average=False))]
        """,
    )
    for adasum, unknown, both in answers:
        assert adasum.startswith("NotImplementedError: viaduct's stand-in for Horovod has no Adasum")
        assert unknown.startswith("ValueError: op is 9")
        assert both.startswith("ValueError: allreduce takes op or average")


def test_reductions_keep_the_dtype_and_cut_integers_off() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import horovod.tensorflow as hvd
        hvd.init()
        rank = hvd.rank()
        whole, half = tf.constant([3, -3]) + rank, tf.constant([1.0 + rank], tf.float16)
        x = tf.constant([2.0 + 3 * rank])
        out = [hvd.allreduce(whole), hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.5), hvd.allreduce(half)]
        out += [hvd.allreduce(x, op=op, postscale_factor=2.0) for op in (hvd.Min, hvd.Max, hvd.Product)]
        answer = [[value.dtype.name, value.tolist()] for value in compute(out)]
        answer.append([refusal(lambda: hvd.allreduce(tf.zeros([2], dtype))) for dtype in ("bool", "int16", "string")])
        answer.append([refusal(lambda: call(tf.zeros([2], "bool"))) for call in
                       (hvd.allgather, lambda value: hvd.broadcast(value, 0))])
        answer.append(refusal(lambda: hvd.broadcast(tf.zeros([2], "bfloat16"), 0)))
        """,
    )
    for answer in answers:
        # 3 + 4 = 7 and -3 - 2 = -5, halved and cut off; (3 / 2) + (4 / 2) cut off before the sum.
        assert answer[:3] == [["int32", [3, -2]], ["int32", [3, -2]], ["float16", [1.5]]]
        assert answer[3:6] == [["float32", [4]], ["float32", [10]], ["float32", [20]]]
        assert all(reason.startswith("TypeError: ") for reason in [*answer[6], answer[8]])
        assert answer[7] == [None, None]


def test_gradients_are_reduced_as_the_tensors_are() -> None:
    answers = evaluate_ranks(
        "original",
        """
        import horovod.tensorflow as hvd
        hvd.init()
        rank = hvd.rank()
        x, weight = tf.constant([1.0, 2.0]), tf.constant([1.0 + rank, 5.0 - rank])  # weights [1, 5] and [2, 4]
        def gradient(value, source=x):
            return tf.gradients(value, source)[0]
        out = [gradient(tf.reduce_sum(hvd.allreduce(x, op=op) * weight)) for op in (hvd.Average, hvd.Sum, hvd.Min,
                                                                                   hvd.Max, hvd.Product)]
        rows = tf.ones([rank + 1, 1])  # one row on rank 0, two on rank 1
        heights = tf.constant([[1.0], [2.0], [4.0]]) * (rank + 1)
        out.append(gradient(tf.reduce_sum(hvd.allgather(rows) * heights), rows))
        out.append(gradient(tf.reduce_sum(hvd.broadcast(x, 1) * weight)))
        answer = compute(out)
        """,
    )
    for rank, answer in enumerate(answers):
        assert answer[:5] == [[1.5, 4.5], [3, 9], [1, 4], [2, 5], [2, 20]]
        # The means of heights 1, 2, 4 and 2, 4, 8 are 1.5, 3, 6: the first is rank 0's, the others rank 1's.
        assert answer[5] == [[[1.5]], [[3], [6]]][rank]
        assert answer[6] == [[0, 0], [1.5, 4.5]][rank]
