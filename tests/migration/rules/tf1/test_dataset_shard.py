from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source, migrate_text

HEAD = "import tensorflow as tf\n"


def test_a_strategys_shard_of_an_unknown_object_needs_review() -> None:
    shard = "x.shard(c.num_input_pipelines, c.input_pipeline_id)"
    check_says("dataset_shard", f"{HEAD}def f(x, c):\n    return {shard}\n", "manual", "get_rank_size")
    check_noop("dataset_shard", f"{HEAD}def f(x, c):\n    return x.shard(c.number, c.index)\n")


@pytest.mark.parametrize(
    "source",
    [
        "loader.shard(ctx.number, ctx.index)\n",
        "ds = tf.data.Dataset.range(9).shard(2, 0)\n",
        "from hccl.manage.api import get_rank_id, get_rank_size\n"
        "ds = tf.data.Dataset.range(9).shard(get_rank_size(), get_rank_id())\n",
        "import os\nn = int(os.getenv('RANK_SIZE', '1'))\n"
        "ds = tf.data.Dataset.range(9).shard(n, int(os.getenv('RANK_ID', '0')))\n",
    ],
)
def test_other_shards_stay(source: str) -> None:
    check_noop("dataset_shard", HEAD + source, distributed=True)


def test_a_shard_by_an_input_context_becomes_one_by_rank() -> None:
    before = HEAD + (
        "def input_fn(input_context=None):\n"
        "  dataset = tf.data.Dataset.from_tensor_slices(files)\n"
        "  if input_context:\n"
        "    dataset = dataset.shard(input_context.num_input_pipelines,  # how many\n"
        "                            input_context.input_pipeline_id)\n"
        "  return dataset\n"
    )
    result = migrate_source(before, "dataset_shard", distributed=True)
    assert (
        "dataset.shard(get_rank_size(),  # how many\n                            get_rank_id())"
        in result.after.decode()
    )
    assert "  if get_rank_size() > 1:\n" in result.after.decode(), "without a strategy nobody passes a context"
    check_says("dataset_shard", before, "advice", "--distributed")


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("if ctx is not None:\n        ds = SHARD\n    return ds\n", "if SIZE > 1:\n        ds = NEW\n    return ds\n"),
        (
            "if ctx is None:\n        return ds\n    return SHARD\n",
            "if SIZE <= 1:\n        return ds\n    return NEW\n",
        ),
        ("return SHARD if ctx else ds\n", "return NEW if SIZE > 1 else ds\n"),
        (
            "if not ctx:\n        pass\n    else:\n        ds = SHARD\n    return ds\n",
            "if SIZE <= 1:\n        pass\n    else:\n        ds = NEW\n    return ds\n",
        ),
        (
            "if ctx:\n        print(ctx.input_pipeline_id)\n        ds = SHARD\n    return ds\n",
            "if SIZE > 1:\n        print(get_rank_id())\n        ds = NEW\n    return ds\n",
        ),
    ],
)
@pytest.mark.parametrize("rank", ["hccl", "env"])
def test_conditions_on_the_input_context_test_the_number_of_ranks(before: str, later: str, rank: str) -> None:
    head = HEAD + "def input_fn(ctx=None):\n    ds = tf.data.TFRecordDataset(f)\n    "
    source = head + before.replace("SHARD", "ds.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)")
    text = migrate_text(source, "dataset_shard", distributed=True, rank=rank)
    wanted = later.replace("NEW", "ds.shard(SIZE, get_rank_id())").replace("SIZE", "get_rank_size()")
    if rank == "env":
        wanted = wanted.replace("get_rank_size()", 'int(os.getenv("RANK_SIZE", "1"))')
        wanted = wanted.replace("get_rank_id()", 'int(os.getenv("RANK_ID", "0"))')
    assert text.endswith(wanted), text


@pytest.mark.parametrize(
    "condition",
    [
        "if ctx and more:\n        ds = SHARD\n",
        "if ctx:\n        n = ctx.get_per_replica_batch_size(8)\n        ds = SHARD\n",
    ],
)
def test_a_condition_with_other_tests_needs_manual_review(condition: str) -> None:
    source = HEAD + "def input_fn(ctx=None):\n    ds = tf.data.TFRecordDataset(f)\n    " + condition + "    return ds\n"
    source = source.replace("SHARD", "ds.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)")
    result = migrate_source(source, "dataset_shard", distributed=True)
    assert any(
        finding.status == "manual" and "make sure that the shard is reached" in finding.message
        for finding in result.findings
    )


def test_ranks_from_the_environment_when_requested() -> None:
    source = HEAD + "def f(c):\n    return tf.data.Dataset.range(9).shard(c.num_input_pipelines, c.input_pipeline_id)\n"
    text = migrate_text(source, "dataset_shard", distributed=True, rank="env")
    assert '.shard(int(os.getenv("RANK_SIZE", "1")), int(os.getenv("RANK_ID", "0")))' in text


def test_a_shard_of_unknown_origin_needs_manual_review() -> None:
    source = HEAD + "def f(n, i):\n    return tf.data.Dataset.range(9).shard(n, i)\n"
    check_says("dataset_shard", source, "manual", "rank", distributed=True)
    check_noop("dataset_shard", source)


@pytest.mark.parametrize(
    "given",
    [
        "num_shards=strategy.num_replicas_in_sync, index=config.global_id_in_cluster",
        "len(cluster['worker']), cluster_task",
        "config.num_worker_replicas, config.task_id",
    ],
)
def test_shards_by_a_cluster_become_ones_by_rank(given: str) -> None:
    head = "import json, os\ncluster = json.loads(os.environ['TF_CONFIG'])\ncluster_task = cluster['task']['index']\n"
    text = migrate_text(
        HEAD + head + f"def f():\n    return tf.data.Dataset.range(9).shard({given})\n", "D5", distributed=True
    )
    assert "get_rank_size(), " in text
    assert "get_rank_id())" in text
