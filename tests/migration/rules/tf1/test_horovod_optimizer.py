from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source, migrate_text

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"
KERAS = "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\n"


def test_other_arguments_are_dropped_and_listed() -> None:
    before = HEAD + "opt = hvd.DistributedOptimizer(\n    opt,  # inner\n    name='d',\n    sparse_as_dense=True)\n"
    result = migrate_source(before, "horovod_optimizer")
    assert "opt = NPUDistributedOptimizer(\n    opt,  # inner\n    )\n" in result.after.decode()
    assert "sparse" not in result.after.decode()
    assert any("dropped: name='d', sparse_as_dense=True" in finding.message for finding in result.findings)


@pytest.mark.parametrize(
    "argument", ["op=hvd.Adasum", "op=hvd.Sum", "backward_passes_per_step=4", "average_aggregated_gradients=True"]
)
def test_arguments_that_change_the_result_need_review(argument: str) -> None:
    result = migrate_source(HEAD + f"opt = hvd.DistributedOptimizer(opt, {argument})\n", "horovod_optimizer")
    assert any(finding.status == "manual" and "has no counterpart" in finding.message for finding in result.findings)


def test_horovods_defaults_are_not_reported() -> None:
    result = migrate_source(HEAD + "opt = hvd.DistributedOptimizer(opt, op=hvd.Average)\n", "horovod_optimizer")
    assert {finding.status for finding in result.findings} == {"changed"}


def test_keras_optimizers_have_a_wrapper_of_their_own() -> None:
    assert "o = KerasDistributeOptimizer(opt)" in migrate_text(
        KERAS + "o = hvd.DistributedOptimizer(opt)\n", "horovod_optimizer"
    )
    source = HEAD + "k = tf.keras.optimizers.SGD(0.1)\no = hvd.DistributedOptimizer(k)\n"
    assert "o = KerasDistributeOptimizer(k)" in migrate_text(source, "horovod_optimizer")


def test_unpacked_arguments_need_manual_review() -> None:
    check_says("horovod_optimizer", HEAD + "opt = hvd.DistributedOptimizer(opt, **more)\n", "manual", "NPUDistributed")
