from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_text

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("hvd.allreduce(x)", 'hccl_ops.allreduce(x, "sum") / get_rank_size()'),
        ("2 * hvd.allreduce(x, average=True)", '2 * (hccl_ops.allreduce(x, "sum") / get_rank_size())'),
        ("hvd.allreduce(x)[0]", '(hccl_ops.allreduce(x, "sum") / get_rank_size())[0]'),
        ("hvd.allreduce(x, False)", 'hccl_ops.allreduce(x, "sum")'),
        ("hvd.allreduce(a + b, op=hvd.Sum)", 'hccl_ops.allreduce(a + b, "sum")'),
        ("hvd.allreduce(x, op=hvd.Max, name='m')", 'hccl_ops.allreduce(x, "max")'),
        (
            "f(hvd.allreduce(hvd.allreduce(x, average=False)))",
            'f(hccl_ops.allreduce(hccl_ops.allreduce(x, "sum"), "sum") / get_rank_size())',
        ),
        ("hvd.allgather(x)", "hccl_ops.allgather(x, get_rank_size())"),
        ("hvd.broadcast(x, root_rank=0)", "hccl_ops.broadcast([x], 0)[0]"),
    ],
)
def test_collectives_on_tensors_become_those_of_hccl(before: str, later: str) -> None:
    text = migrate_text(HEAD + f"def f():\n    return {before}\n", "horovod_collectives", distributed=True)
    assert f"    return {later}\n" in text, text


@pytest.mark.parametrize(
    "call",
    [
        "hvd.allreduce(x, average=flag)",
        "hvd.allreduce(x, op=hvd.Adasum)",
        "hvd.allreduce(x, prescale_factor=2)",
        "hvd.allreduce(*x)",
        "hvd.allreduce(x, None, '', '', None, hvd.Sum)",
    ],
)
def test_an_unknown_reduction_needs_manual_review(call: str) -> None:
    check_says("horovod_collectives", HEAD + f"y = {call}\n", "manual", "allreduce")


def test_a_call_with_a_comment_needs_manual_review() -> None:
    check_says(
        "horovod_collectives", HEAD + "y = hvd.allreduce(\n    x  # the loss\n)\n", "manual", "needs a manual change"
    )
