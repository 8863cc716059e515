"""Local ranks exchange tensors through the stand-ins of hccl and Horovod, in whatever order their graphs run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rehearsal.snippets import evaluate_ranks
from rehearsal.tf1_scripts import needs_tensorflow, rehearse_ranks

pytestmark = needs_tensorflow

NPU = """
import json, os
import numpy as np
import tensorflow as tf
from hccl.manage.api import *
from npu_bridge.estimator import npu_ops
from npu_bridge.estimator.npu.npu_hook import NPUBroadcastGlobalVariablesHook
from npu_bridge.estimator.npu.npu_loss_scale_manager import FixedLossScaleManager
from npu_bridge.estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback
from npu_bridge.estimator.npu.npu_optimizer import KerasDistributeOptimizer, NPUOptimizer, npu_allreduce
from npu_bridge.estimator.npu.npu_strategy import NPUStrategy
from npu_bridge.hccl import hccl_ops
from npu_bridge.npu_init import npu_config_proto

rank = int(os.environ["RANK_ID"])
mine = tf.constant([1.0, 2.0]) * (rank + 1)
values = {}
with tf.Session(config=npu_config_proto(tf.ConfigProto(inter_op_parallelism_threads=1))) as sess:
    sess.run(npu_ops.initialize_system())
    values["who"] = [get_rank_id(), get_rank_size(), get_local_rank_id(), get_local_rank_size()]
    create_group("alone", 1, [rank])
    create_group("both", 2, [0, 1])
    values["group"] = [get_rank_size("alone"), get_group_rank_from_world_rank(1, "both")]
    out = {kind: hccl_ops.allreduce(mine, kind) for kind in ("sum", "max", "min", "prod")}
    out["alone"] = hccl_ops.allreduce(mine, "sum", group="alone")
    out["both"] = hccl_ops.allreduce(mine, "sum", group="both")
    out["gathered"] = hccl_ops.allgather(tf.reshape(mine, [1, 2]), 2)
    out["cast"] = hccl_ops.broadcast([mine, tf.cast(mine, tf.int64)], 1)
    out["root"] = hccl_ops.reduce(mine, "sum", 0)
    out["part"] = hccl_ops.reduce_scatter(tf.reshape(tf.range(4.0), [4, 1]) * (rank + 1.0), "sum", 2)
    out["means"] = npu_allreduce([mine, None, mine * 3])[2]
    out["half"] = hccl_ops.allreduce(tf.cast(mine, tf.float16), "sum")
    w = tf.constant([2.0, 3.0])
    out["gradient"] = tf.gradients(tf.reduce_sum(hccl_ops.allreduce(w * (rank + 1), "sum") * mine), w)[0]
    counts, places = ([1, 1], [0, 1]) if rank == 0 else ([3, 3], [0, 3])
    out["all"] = hccl_ops.all_to_all_v(tf.range(4.0) + 10.0 * rank, [1, 3], [0, 1], counts, places)
    # Twelve more, which one rank is made to run forwards and the other backwards.
    many = [hccl_ops.allreduce(mine + number, "sum") for number in range(12)]
    inputs = [tensor.op.inputs[0].op for tensor in many]
    order = inputs if rank == 0 else inputs[::-1]
    for first, second in zip(order, order[1:]):
        second._add_control_input(first)
    if rank == 0:
        sent = hccl_ops.send(mine, 5, 1)
        sess.run(sent)
    else:
        out["received"] = hccl_ops.receive([2], tf.float32, 5, 0)
    values.update({name: np.asarray(value).tolist() for name, value in sess.run(out).items() if name != "cast"})
    values["cast"] = [part.tolist() for part in sess.run(out["cast"])]
    values["many"] = [part.tolist() for part in sess.run(many)]

# ---- training: ranks begin apart, are brought together, and one overflow skips the step of both
with tf.Graph().as_default():
    data = tf.placeholder(tf.float32, [2])
    table = tf.get_variable("table", [3, 1], initializer=tf.constant_initializer(rank + 1.0))
    v = tf.get_variable("v", [2], initializer=tf.constant_initializer(rank * 10.0))
    loss = tf.reduce_sum(v * data) + tf.reduce_sum(tf.nn.embedding_lookup(table, [rank]))
    manager = FixedLossScaleManager(8.0)
    optimizer = NPUOptimizer(tf.train.GradientDescentOptimizer(1.0), manager, is_distributed=True, is_loss_scale=True)
    step = optimizer.minimize(loss, tf.train.get_or_create_global_step())
    hooks = [NPUBroadcastGlobalVariablesHook(0, rank)]
    with tf.train.MonitoredTrainingSession(hooks=hooks, config=npu_config_proto()) as sess:
        values["start"] = sess.run(v).tolist()
        sess.run(step, {data: [1.0 + rank, 2.0]})
        values["after"] = sess.run([v, table])[0].tolist()
        values["rows"] = sess.run(table).ravel().tolist()
        sess.run(step, {data: [np.inf if rank else 1.0, 0.0]})
        values["skipped"] = sess.run([v, tf.train.get_global_step()])[1].item()

# ---- Keras: begun apart, brought together by the callback; a strategy shares data out
keras = tf.keras
keras.backend.set_session(tf.Session(config=npu_config_proto()))
apart = keras.initializers.Constant(rank + 1.0)
model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer=apart, input_shape=(1,))])
model.compile(KerasDistributeOptimizer(keras.optimizers.SGD(0.1)), "mse")
model.fit(np.ones([4, 1]) * (rank + 1), np.zeros([4, 1]), batch_size=4, epochs=1, verbose=0,
          callbacks=[NPUBroadcastGlobalVariablesCallback(0)])
values["kernel"] = float(model.get_weights()[0][0, 0])
strategy = NPUStrategy()
shared = strategy.make_dataset_iterator(tf.data.Dataset.range(4).batch(1, drop_remainder=True))
mine = shared.get_next()
with tf.Session(config=npu_config_proto()) as sess:
    sess.run(shared.initialize())
    values["shared"] = [strategy.num_replicas_in_sync, *(int(sess.run(mine)[0]) for _ in range(2))]
print(json.dumps(values))
"""


def test_two_ranks_of_an_npu_script_exchange_and_train_together(tmp_path: Path) -> None:
    script = tmp_path / "npu.py"
    script.write_text(NPU)
    answers = rehearse_ranks("npu", script, 2)
    for answer in answers:
        assert answer.code == 0, answer.stderr[-3000:]
    for rank, values in enumerate(answer.parse_last_line() for answer in answers):
        check_exchanges(rank, values)
        assert values["start"] == [0.0, 0.0], "the root's value"
        assert values["after"] == [-1.5, -2.0], "the mean of both gradients"
        assert values["rows"] == [0.5, 0.5, 1.0], "each rank's row, halved"
        assert values["skipped"] == 1, "rank 1 has overflowed, and both have skipped"
        assert values["kernel"] == pytest.approx(0.5), "both from the root's 1, by the mean of the gradients 2 and 8"
        assert values["shared"] == [2, rank, rank + 2]
    assert answers[0].variables == answers[1].variables
    assert answers[0].gradients["v"] == answers[1].gradients["v"] == [1.5, 2.0]
    assert answers[0].losses != answers[1].losses


def check_exchanges(rank: int, values: dict[str, list[float]]) -> None:
    assert values["who"] == [rank, 2, rank, 2]
    assert values["group"] == [1, 1]
    assert (values["sum"], values["max"], values["min"], values["prod"]) == ([3, 6], [2, 4], [1, 2], [2, 8])
    assert values["alone"] == [rank + 1, 2 * (rank + 1)]
    assert values["both"] == [3, 6]
    assert values["gathered"] == [[1, 2], [2, 4]]
    assert values["cast"] == [[2, 4], [2, 4]]
    assert values["root"] == ([3, 6] if rank == 0 else [0, 0])
    assert values["part"] == [[[0], [3]], [[6], [9]]][rank]
    assert values["means"] == [4.5, 9]
    assert values["half"] == [3, 6]
    # d/dw of sum(allreduce(w·k)·m): k times the sum of both ranks' m.
    assert values["gradient"] == [3 * (rank + 1), 6 * (rank + 1)]
    assert values["all"] == ([0, 10] if rank == 0 else [1, 2, 3, 11, 12, 13])
    assert values["many"] == [[3 + 2 * n, 6 + 2 * n] for n in range(12)]
    if rank == 1:
        assert values["received"] == [1, 2]


HOROVOD = """
import json, os
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as khvd
hvd.init()
rank = hvd.rank()
values = {"who": [hvd.rank(), hvd.size(), hvd.local_rank()]}
rows = hvd.allgather(tf.ones([rank + 1, 2]) * rank)
mean = hvd.allreduce(tf.constant([1.0 + rank]))
total = hvd.allreduce(tf.constant([1.0 + rank]), average=False, compression=hvd.Compression.fp16)
v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0 + rank))
optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(0.5), compression=hvd.Compression.fp16)
step = optimizer.minimize(v * (rank + 1), tf.train.get_or_create_global_step())
start = hvd.broadcast_global_variables(1)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(start)
    values["values"] = [part.tolist() for part in sess.run([rows, mean, total, v])]
    sess.run(step)
    values["v"] = float(sess.run(v))
keras = tf.keras
keras.backend.clear_session()
first = keras.initializers.Constant(rank + 1.0)
model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer=first, input_shape=(1,))])
model.compile(khvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
model.fit(np.ones([4, 1]) * (rank + 1), np.zeros([4, 1]), batch_size=4, epochs=1, verbose=0,
          callbacks=[khvd.callbacks.BroadcastGlobalVariablesCallback(0), khvd.callbacks.MetricAverageCallback()])
values["kernel"] = float(model.get_weights()[0][0, 0])
with tf.Graph().as_default(), tf.Session() as sess:
    try:
        sess.run(hvd.allreduce(tf.ones([rank + 1])))
    except tf.errors.OpError as error:
        values["mismatch"] = str(error)
    except ValueError as error:
        values["mismatch"] = str(error)
print(json.dumps(values))
"""


def test_two_ranks_of_a_horovod_script_do_the_same(tmp_path: Path) -> None:
    script = tmp_path / "hvd.py"
    script.write_text(HOROVOD)
    answers = rehearse_ranks("original", script, 2, VIADUCT_COLLECTIVE_TIMEOUT="60")
    for rank, answer in enumerate(answers):
        assert answer.code == 0, answer.stderr[-3000:]
        values = answer.parse_last_line()
        assert values["who"] == [rank, 2, rank]
        assert values["values"] == [[[0, 0], [1, 1], [1, 1]], [1.5], [3], 2.0]
        assert values["v"] == pytest.approx(1.5)
        # Both begin at 1; gradients 2·x²·w are 2 and 8, their mean 5.
        assert values["kernel"] == pytest.approx(0.5)
        assert "rank 0 has" in values["mismatch"] or "rank 1 has" in values["mismatch"]
    assert np.allclose(answers[0].gradients["v"], 1.5)


def test_every_dtype_and_shape_is_broadcast_and_gathered_bit_for_bit() -> None:
    answers = evaluate_ranks(
        "npu",
        """
        import os
        from viaduct.rehearsal.tf1_stage import collectives
        rank, answer = int(os.environ["RANK_ID"]), []
        names = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64"
        for name in names.split():
            for shape in ([], [3], [0, 2], [2, 1]):
                of_ranks = [tf.cast(tf.fill(shape, number), name) for number in (0, 1)]
                value = of_ranks[rank]
                (sent,), gathered = collectives.broadcast([value], 1), collectives.allgather(tf.reshape(value, [-1]))
                expected = [of_ranks[1], tf.concat([tf.reshape(part, [-1]) for part in of_ranks], 0)]
                for array, right in zip(*compute([[sent, gathered], expected])):
                    same = array.dtype == right.dtype and array.shape == right.shape
                    answer.append([name, shape, bool(same and (array == right).all())])
        """,
    )
    for answer in answers:
        assert len(answer) == 14 * 4 * 2
        assert not [row for row in answer if not row[2]]


def test_small_integers_and_halves_are_reduced_and_strings_and_bools_are_refused() -> None:
    answers = evaluate_ranks(
        "npu",
        """
        import os
        from viaduct.rehearsal.tf1_stage import collectives
        rank, answer = int(os.environ["RANK_ID"]), []
        for name in ("int8", "uint8", "int16", "bfloat16", "float16"):
            (total,) = collectives.allreduce([tf.cast(tf.fill([2], 3 + rank), name)])
            answer.append([total.dtype.name, compute(total).astype(int).tolist()])
        text, flag = tf.constant("a" * (rank + 1)), tf.constant([True])
        for call in (lambda: collectives.broadcast([text], 0)[0], lambda: collectives.broadcast([text[None]], 0)[0],
                     lambda: collectives.allreduce([flag])[0]):
            answer.append(refusal(lambda: compute(call())))
        """,
    )
    for answer in answers:
        assert answer[:5] == [[name, [7, 7]] for name in ("int8", "uint8", "int16", "bfloat16", "float16")]
        assert all("a tensor of strings cannot be exchanged between ranks" in reason for reason in answer[5:7])
        assert "tensors of bool cannot be reduced over ranks" in answer[7]
