from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_text

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize(
    "source",
    [
        "from mine import MirroredStrategy\ns = MirroredStrategy()\nrun(s)\n",
        "import tensorflow as tf\nprint(tf.distribute.get_strategy())\n",
        "class tf:\n    distribute = None\ns = tf.distribute.MirroredStrategy()\n",
    ],
)
def test_other_strategies_are_left_alone(source: str, distributed: bool) -> None:
    check_noop("distribute_strategy", source, distributed=distributed)


@pytest.mark.parametrize(
    "made",
    [
        "tf.distribute.MirroredStrategy(devices=['/gpu:0'])",
        "tf.distribute.experimental.MultiWorkerMirroredStrategy()",
        "tf.distribute.experimental.CentralStorageStrategy()",
        "tf.contrib.distribute.MirroredStrategy(num_gpus=2)",
        "tf.contrib.distribute.CollectiveAllReduceStrategy(\n    num_gpus_per_worker=1)",
    ],
)
def test_a_strategy_that_is_passed_on_becomes_none(made: str) -> None:
    uses = "if s is not None:\n    run(s, strategy=s)\nif s: pass\n"
    check_rewrite("distribute_strategy", HEAD + f"s = {made}  # why\n{uses}", HEAD + f"s = None  # why\n{uses}")


@pytest.mark.parametrize(
    "use",
    [
        "s = MADE\nwith s.scope():\n    run()\n",
        "s = MADE\nn = s.num_replicas_in_sync\n",
        "s = MADE\nrun(s)\nprint(s.extended)\n",
        "s = MADE\ndef f(strategy):\n    return strategy.num_replicas_in_sync\nf(s)\n",
        "with MADE.scope():\n    run()\n",
        "def f():\n    return MADE\n",
    ],
)
def test_a_strategy_with_other_uses_needs_manual_review(use: str) -> None:
    source = HEAD + use.replace("MADE", "tf.distribute.MirroredStrategy()")
    check_says("distribute_strategy", source, "manual", "strategy")


def test_a_strategy_with_a_comment_in_its_call_needs_review() -> None:
    source = HEAD + "s = tf.distribute.MirroredStrategy(  # all cards\n)\nrun(s)\n"
    check_says("distribute_strategy", source, "manual", "the call has a comment")


@pytest.mark.parametrize("distributed", [False, True])
def test_a_helper_that_chooses_the_strategy_is_only_reported(distributed: bool) -> None:
    source = HEAD + (
        "def get_distribution_strategy(kind):\n"
        "    if kind == 'one':\n"
        "        return tf.distribute.OneDeviceStrategy('device:GPU:0')\n"
        "    return tf.distribute.MirroredStrategy()\n"
        "s = get_distribution_strategy('one')\n"
    )
    result = check_says("distribute_strategy", source, "manual", "helper", distributed=distributed)
    assert len(result.findings) == 3


def test_with_distributed_it_becomes_npu_strategy() -> None:
    text = migrate_text(HEAD + "s = tf.distribute.MirroredStrategy()\nwith s.scope():\n    run()\n", distributed=True)
    assert "s = npu_strategy.NPUStrategy()\nwith s.scope():" in text
    assert "from npu_bridge.estimator.npu import npu_strategy\n" in text


def test_a_strategy_that_became_unused_is_none() -> None:
    source = HEAD + "s = tf.distribute.MirroredStrategy()\nc = tf.estimator.RunConfig(train_distribute=s)\n"
    for distributed in (False, True):
        text = migrate_text(source, distributed=distributed)
        assert "s = None\n" in text
        assert "c = NPURunConfig()" in text
