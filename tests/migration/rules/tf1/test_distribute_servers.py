from __future__ import annotations

import pytest

from migration.checking import check_says

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "made",
    [
        "tf.distribute.experimental.ParameterServerStrategy()",
        "tf.distribute.experimental.TPUStrategy(r)",
        "tf.train.SyncReplicasOptimizer(opt, 4)",
        "tf.train.Server(cluster)",
    ],
)
def test_servers_and_tpus_are_named(made: str) -> None:
    check_says("distribute_servers", HEAD + f"s = {made}\n", "manual", "")
