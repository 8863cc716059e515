"""Functions of Horovod, and objects that are not Horovod."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrate_source, migrate_text

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"
RULES = (
    *("horovod_devices", "horovod_ranks", "horovod_lifecycle", "horovod_optimizer", "horovod_collectives"),
    *("horovod_broadcast", "horovod_compression", "horovod_import", "horovod_leftovers"),
)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "source",
    [
        "import horovod.torch as hvd\nhvd.init()\nopt = hvd.DistributedOptimizer(opt, op=hvd.Sum)\nx = hvd.rank()\n",
        "import mine as hvd\nhvd.init()\nhvd.allreduce(x)\nh = hvd.BroadcastGlobalVariablesHook(0)\n",
        "class hvd:\n    rank = staticmethod(int)\nx = hvd.rank()\n",
        "def f(hvd):\n    hvd.init()\n    return hvd.size()\n",
        "import horovod.mxnet as hvd\nprint(hvd.size())\n",
    ],
)
def test_other_things_called_hvd_are_left_alone(rule: str, source: str) -> None:
    check_noop(rule, source, distributed=True)


# ---- ranks


def test_uses_in_f_strings_need_manual_review_and_keep_the_import() -> None:
    source = HEAD + 'def f():\n    print(f"rank {hvd.rank()}")\n'
    result = migrate_source(source, distributed=True)
    if 'get_rank_id()}"' not in result.after.decode():
        assert result.after.decode() == source
        assert any(finding.status == "manual" and "import stays" in finding.message for finding in result.findings)


def test_other_forms_of_the_import_are_replaced() -> None:
    for head, call in (
        ("from horovod.tensorflow import rank as r\n", "r()"),
        ("from horovod import tensorflow as h\n", "h.rank()"),
        ("import horovod.tensorflow\n", "horovod.tensorflow.rank()"),
        ("import horovod.keras as hvd\n", "hvd.rank()"),
    ):
        text = migrate_text(head + f"import tensorflow as tf\ndef f():\n    return {call}\n", distributed=True)
        assert "    return get_rank_id()\n" in text
        assert "horovod" not in text, text


# ---- start, end, devices


def test_findings_name_lines_of_the_original_file() -> None:
    again = "import horovod.tensorflow as hvd\n"
    source = again + "hvd.init(  # why\n)\n" + again + "import tensorflow as tf\n"
    result = migrate_source(source, distributed=True)
    assert result.after.decode() == "# why\nimport tensorflow as tf\n"
    assert [finding.line for finding in result.findings if "import is removed" in finding.message] == [1, 4]
    assert result.original_lines == (2, 5, 6)


def test_communication_is_started_before_the_script_reads_its_rank() -> None:
    source = HEAD + "def main(_):\n  hvd.init()\n  train(hvd.rank())\nif __name__ == '__main__':\n  tf.app.run()\n"
    text = migrate_text(source, distributed=True)
    assert "init_sess, npu_init = init_npu()" in text
    assert text.index("init_sess.run(npu_init)") < text.index("train(get_rank_id())")
    assert "hvd" not in text


# ---- the optimizer


def test_a_replaced_optimizer_is_not_wrapped_again() -> None:
    source = (
        HEAD + "opt = tf.train.AdamOptimizer(0.1)\nopt = hvd.DistributedOptimizer(opt)\ntrain = opt.minimize(loss)\n"
    )
    assert migrate_text(source, distributed=True).count("NPUDistributedOptimizer(") == 1


def test_of_a_loss_scale_optimizer_the_inner_one_is_wrapped() -> None:
    source = HEAD + (
        "manager = tf.train.experimental.FixedLossScale(8)\n"
        "opt = tf.train.AdamOptimizer(0.1)\n"
        "opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, manager)\n"
        "opt = hvd.DistributedOptimizer(opt)\n"
        "train = opt.minimize(loss)\n"
    )
    text = migrate_text(source, distributed=True)
    assert "opt = tf.train.AdamOptimizer(0.1)\nopt = NPUDistributedOptimizer(opt)\n" in text
    assert text.count("NPUDistributedOptimizer(") == 1
    assert "NPULossScaleOptimizer(opt, manager, is_distributed=True)\ntrain" in text


def test_a_loss_scale_optimizer_around_it_changes_nothing() -> None:
    source = HEAD + (
        "def f():\n"
        "    opt = tf.train.AdamOptimizer(0.1)\n"
        "    if many:\n"
        "        opt = hvd.DistributedOptimizer(opt)\n"
        "    opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, manager)\n"
        "    return opt\n"
    )
    text = migrate_text(source, distributed=True)
    assert "        opt = NPUDistributedOptimizer(opt)\n    opt = NPULossScaleOptimizer(opt, manager, is_dist" in text
    assert text.count("NPUDistributedOptimizer(") == 1


def test_nested_wrappers_in_one_expression_are_replaced() -> None:
    source = HEAD + (
        "manager = tf.train.experimental.FixedLossScale(8)\n"
        "inner = tf.train.AdamOptimizer(0.1)\n"
        "opt = hvd.DistributedOptimizer(tf.contrib.mixed_precision.LossScaleOptimizer(inner, manager))\n"
        "train = opt.minimize(loss)\n"
    )
    text = migrate_text(source, distributed=True)
    assert "inner = NPUDistributedOptimizer(inner)\n" in text
    assert "opt = NPULossScaleOptimizer(inner, manager, is_distributed=True)\n" in text


# ---- broadcasts


# ---- collectives


# ---- what is left, and the import


@pytest.mark.parametrize(
    "use",
    ["hvd.nccl_built()", "hvd.broadcast_object(x, 0)", "hvd.elastic.run", "hvd.alltoall(x)", "hvd.Compression.fp16"],
)
def test_a_name_without_counterpart_is_reported_and_keeps_the_import(use: str) -> None:
    result = migrate_source(HEAD + f"y = ({use}, x)\nprint(y)\n", distributed=True)
    assert "import horovod.tensorflow as hvd\n" in result.after.decode()
    output = [finding.message for finding in result.findings if finding.status == "manual"]
    assert any(use.partition("(")[0] in message for message in output), output
    assert any("import stays" in message for message in output)


def test_hvd_init_stays_while_parts_of_horovod_are_used() -> None:
    source = HEAD + "hvd.init()\nx = hvd.allgather_object(1)\n"
    result = migrate_source(source, distributed=True)
    assert "hvd.init()" in result.after.decode()
    assert any("hvd.init() stays" in finding.message for finding in result.findings if finding.status == "manual")


def test_names_imported_from_horovods_inner_modules_are_known() -> None:
    source = (
        "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"
        "from horovod.tensorflow.compression import Compression\n"
        "from horovod.tensorflow.mpi_ops import allreduce, size\n"
        "import horovod.tensorflow.compression as comp\ndef f(o):\n"
        "    a = hvd.DistributedOptimizer(o, compression=Compression.fp16)\n"
        "    b = hvd.DistributedOptimizer(o, compression=comp.NoneCompressor)\n"
        "    return allreduce(a, average=False), size()\n"
    )
    text = migrate_source(source, distributed=True).after.decode()
    assert "horovod" not in text
    assert 'return hccl_ops.allreduce(a, "sum"), get_rank_size()' in text


def test_a_search_for_the_package_needs_manual_review() -> None:
    source = HEAD + "import importlib.util\nHAS = importlib.util.find_spec('horovod') is not None\nhvd.init()\n"
    output = [
        finding.message for finding in migrate_source(source, distributed=True).findings if finding.status == "manual"
    ]
    assert any("find_spec('horovod') finds no Horovod" in message for message in output), output


def test_a_whole_script_ends_without_horovod() -> None:
    source = HEAD + (
        "def main(_):\n"
        "    hvd.init()\n"
        "    config = tf.ConfigProto()\n"
        "    config.gpu_options.visible_device_list = str(hvd.local_rank())\n"
        "    opt = tf.train.AdamOptimizer(0.001 * hvd.size())\n"
        "    opt = hvd.DistributedOptimizer(opt)\n"
        "    train_op = opt.minimize(loss)\n"
        "    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=20000 // hvd.size())]\n"
        "    folder = './out' if hvd.rank() == 0 else None\n"
        "    with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks, config=config) as sess:\n"
        "        while not sess.should_stop():\n"
        "            sess.run(train_op)\n"
        "if __name__ == '__main__':\n"
        "    tf.app.run()\n"
    )
    text = migrate_text(source, distributed=True)
    assert "hvd" not in text
    assert "horovod" not in text
    for part in (
        "opt = tf.train.AdamOptimizer(0.001 * get_rank_size())\n    opt = NPUDistributedOptimizer(opt)\n",
        "hooks = [NPUBroadcastGlobalVariablesHook(0, get_rank_id()), tf.train.StopAtStepHook(",
        "folder = './out' if get_rank_id() == 0 else None\n",
    ):
        assert part in text, text
    assert text.count("NPUBroadcastGlobalVariablesHook(") == 1
