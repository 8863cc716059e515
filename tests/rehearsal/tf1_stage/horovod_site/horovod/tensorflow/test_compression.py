"""The dtype in which gradients are exchanged."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_integers_keep_their_dtype_and_floats_come_back_in_their_own() -> None:
    answer = evaluate(
        "original",
        """
        from horovod.tensorflow.compression import Compression
        answer = []
        for kind in (Compression.none, Compression.fp16):
            for tensor in (tf.constant([1, 2]), tf.constant([1.0009765625, 1e-9], tf.float64)):
                small, context = kind.compress(tensor)
                back = kind.decompress(small, context)
                answer.append([small.dtype.name, back.dtype.name, compute(back)])
        """,
    )
    assert answer[0] == answer[2] == ["int32", "int32", [1, 2]]
    assert answer[1] == ["float64", "float64", [1.0009765625, 1e-9]]
    assert answer[3] == ["float16", "float64", [1.0009765625, 0]]
