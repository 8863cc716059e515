"""Twelve mistakes of migrated scripts, one for each limit, are caught with their line and their reason.

Each script goes on after a refusal, as a script that catches RuntimeError would: all are found in one process, and
nothing else is. The same scripts without the mistakes meet no limit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.rehearsing import Rehearsed, list_planted, rehearse_script
from viaduct.rehearsal.limits import LIMITS

TORCH = """\
import os
import torch
import torch_npu
import torch.distributed as dist

torch.set_num_threads(1)
PLANTED = os.environ["PLANTED"] == "yes"


def attempt(work):
    try:
        work()
    except RuntimeError as error:
        print("refused:", type(error).__name__)


def doubles():
    torch.zeros(3, dtype=torch.float64, device="npu")  # planted: float64


def parallel():
    torch.nn.DataParallel(torch.nn.Linear(2, 2).npu())  # planted: data-parallel


def cuda():
    torch.zeros(3).cuda()  # planted: cuda-left


def nccl():
    address = "tcp://127.0.0.1:0"
    dist.init_process_group("nccl", init_method=address, rank=0, world_size=1)  # planted: nccl-left


def old_checkpoint():
    torch.load("cuda.pt", weights_only=True)  # planted: map-location


if PLANTED:
    for mistake in (doubles, parallel, cuda, nccl, old_checkpoint):
        attempt(mistake)

network = torch.nn.Linear(4, 2).to("npu:0")
optimizer = torch.optim.SGD(network.parameters(), 0.1)
network(torch.ones(2, 4, device="npu")).sum().backward()
optimizer.step()
"""
VISIBLE = """\
import torch
import torch_npu

print(torch.npu.device_count())  # planted: visible-devices
"""


def check(answer: Rehearsed, source: str) -> None:
    """Check that exactly the planted lines are reported, with the card's behaviour, the change and the reason."""
    assert answer.list_met_limits() == list_planted(source)
    for hit in answer.summary["limits"]:
        assert hit["what"]
        assert hit["card"]
        assert hit["change"]
        assert LIMITS[hit["name"]].reason[0] in answer.stderr
        assert f"train.py:{hit['place']['line']}: limit {hit['name']}" in answer.stderr


def test_a_pytorch_script_without_mistakes_meets_no_limit(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, TORCH, "--on", "npu", PLANTED="no")
    assert answer.code == 0, answer.stderr
    assert answer.list_met_limits() == set()
    assert answer.summary["steps"] == 1


def test_mistakes_in_a_pytorch_script_are_caught_in_their_lines(tmp_path: Path) -> None:
    save_on_cuda(tmp_path / "elsewhere")
    answer = rehearse_script(tmp_path, TORCH, "--on", "npu", PLANTED="yes")
    check(answer, TORCH)
    assert answer.stdout.count("refused: CardRefuses") == 5
    assert answer.code == 1


def test_a_list_of_visible_devices_that_does_not_ascend_is_caught(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, VISIBLE, "--on", "npu", "--steps", "0", ASCEND_RT_VISIBLE_DEVICES="1,0")
    check(answer, VISIBLE)
    assert answer.code == 1


def save_on_cuda(folder: Path) -> None:
    """Save a checkpoint as CUDA writes it, with cuda:0 as the device of each storage."""
    import torch

    folder.mkdir(exist_ok=True)
    (folder / "cuda.pt").unlink(missing_ok=True)
    plain = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: "cuda:0"
    try:
        torch.save({"weight": torch.ones(2)}, folder / "cuda.pt")
    finally:
        torch.serialization.location_tag = plain


TF1 = """\
import os
import numpy as np
import tensorflow as tf
from hccl.manage.api import get_rank_size
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

PLANTED = os.environ["PLANTED"] == "yes"


def attempt(work):
    with tf.Graph().as_default():
        try:
            work()
        except RuntimeError as error:
            print("refused:", type(error).__name__)


def config_for_npu():
    config = tf.ConfigProto()
    custom = config.graph_options.rewrite_options.custom_optimizers.add()
    custom.name = "NpuOptimizer"
    custom.parameter_map["use_off_line"].b = True
    config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    return config


def train_op(batch):
    weight = tf.get_variable("weight", [3, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(batch, weight) - 1.0))
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())


def images():
    return tf.data.Dataset.from_tensor_slices([[1.0, 2.0, 3.0]] * 10)


def too_early():
    get_rank_size()  # planted: rank-before-init


def remapped():
    config = config_for_npu()
    config.graph_options.rewrite_options.remapping = RewriterConfig.ON
    with tf.Session(config=config) as session:  # planted: remapping
        session.run(tf.constant(1))


def rewritten():
    config = config_for_npu()
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    with tf.Session(config=config) as session:  # planted: rewrite-options
        session.run(tf.constant(1))


def remainder():
    images().batch(4)  # planted: drop-remainder


def unknown_shape():
    batch = tf.placeholder(tf.float32, [None, 3])
    train = train_op(batch)
    with tf.Session(config=config_for_npu()) as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {batch: np.ones([4, 3])})
        session.run(train, {batch: np.ones([2, 3])})  # planted: static-shapes


def run_config():
    NPURunConfig(model_dir="model", protocol="grpc")  # planted: run-config


def odd_steps():
    def model_fn(features, labels, mode, params):
        return tf.estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train_op(features))

    config = NPURunConfig(model_dir="odd", iterations_per_loop=2, session_config=config_for_npu())
    estimator = NPUEstimator(model_fn=model_fn, config=config)
    estimator.train(lambda: images().repeat().batch(2, drop_remainder=True), max_steps=3)  # planted: step-multiples


def left_open():
    train = train_op(tf.ones([2, 3]))
    session = tf.Session(config=config_for_npu())  # planted: session-not-closed
    session.run(tf.global_variables_initializer())
    session.run(train)
    OPEN.append(session)


def sound():
    train = train_op(images().repeat().batch(2, drop_remainder=True).make_one_shot_iterator().get_next())
    with tf.Session(config=config_for_npu()) as session:
        session.run(tf.global_variables_initializer())
        session.run(train)


OPEN = []
if PLANTED:
    for mistake in (too_early, remapped, rewritten, remainder, unknown_shape, run_config, odd_steps, left_open):
        attempt(mistake)
attempt(sound)
"""


def test_a_tensorflow_script_without_mistakes_meets_no_limit(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    answer = rehearse_script(tmp_path, TF1, "--on", "npu", PLANTED="no")
    assert answer.code == 0, answer.stderr
    assert answer.list_met_limits() == set()
    assert answer.summary["steps"] == 1


def test_mistakes_in_a_tensorflow_script_are_caught_in_their_lines(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    answer = rehearse_script(tmp_path, TF1, "--on", "npu", PLANTED="yes")
    check(answer, TF1)
    assert answer.code == 1
