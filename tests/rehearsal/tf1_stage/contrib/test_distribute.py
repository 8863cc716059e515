"""Strategies under their former names."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_any_number_of_gpus_is_one_replica_and_a_reduction_library_is_taken() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import distribute
        library = distribute.AllReduceCrossDeviceOps("nccl", num_packs=2)
        made = [distribute.MirroredStrategy(num_gpus=4, cross_device_ops=library), distribute.MirroredStrategy(),
                distribute.MirroredStrategy(["/gpu:0", "/gpu:1"])]
        answer = [strategy.num_replicas_in_sync for strategy in made]
        """,
    )
    assert answer == [1, 1, 1]
