"""Operators of the AI CPU."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_an_image_is_warped_between_its_pixels_and_stays_itself_without_flow() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge.npu_cpu import npu_cpu_ops
        image = tf.reshape(tf.range(9.0), [1, 3, 3, 1])
        def warp(down, right):
            flow = tf.tile(tf.reshape(tf.constant([down, right]), [1, 1, 1, 2]), [1, 3, 3, 1])
            return npu_cpu_ops.dense_image_warp(image, flow)[0, :, :, 0]
        answer = [*compute([warp(0.0, 0.0), warp(0.0, 0.5), warp(-1.0, 0.0)]),
                  refusal(npu_cpu_ops.embedding_hash_table)]
        """,
    )
    assert answer[0] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert answer[1] == [[0, 0.5, 1.5], [3, 3.5, 4.5], [6, 6.5, 7.5]], "the edge is repeated"
    assert answer[2] == [[3, 4, 5], [6, 7, 8], [6, 7, 8]]
    assert answer[3].startswith("NotImplementedError")
