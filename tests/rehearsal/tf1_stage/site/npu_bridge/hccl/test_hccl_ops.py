"""Collectives as operators: what is refused when a graph is built."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(("call", "reason"), [("broadcast", "Expected list")])
def test_a_broadcast_of_one_tensor_that_is_no_list_is_refused(
    check_answers: dict[str, Any], call: str, reason: str
) -> None:
    assert reason in check_answers[call]


def test_dtypes_that_hccl_does_not_have_are_refused_when_the_graph_is_built() -> None:
    fine, met_limits, scalar = evaluate(
        "npu",
        """
        from npu_bridge.hccl import hccl_ops
        calls = {
            "allreduce": lambda x: hccl_ops.allreduce(x, "sum"),
            "reduce": lambda x: hccl_ops.reduce(x, "sum", 0),
            "reduce_scatter": lambda x: hccl_ops.reduce_scatter(x, "max", 1),
            "allgather": lambda x: hccl_ops.allgather(x, 1),
            "broadcast": lambda x: hccl_ops.broadcast([x], 0),
        }
        fine = [[name, dtype] for name, call in calls.items() for dtype in ("int8", "int16", "float16", "bfloat16")
                if refusal(lambda: call(tf.zeros([2], dtype)))]
        met_limits = {name: [dtype for dtype in ("bool", "string", "complex64", "uint8", "float64")
                             if met(lambda: call(tf.zeros([2], dtype)))] for name, call in calls.items()}
        answer = [fine, met_limits, refusal(lambda: hccl_ops.allgather(tf.zeros([]), 1))]
        """,
    )
    assert fine == []
    computed, sent = ["bool", "string", "complex64", "uint8"], ["bool", "string", "complex64"]
    assert met_limits == {
        **dict.fromkeys(("allreduce", "reduce", "reduce_scatter"), computed),
        **dict.fromkeys(("allgather", "broadcast"), sent),
    }
    assert "at least rank 1" in scalar
