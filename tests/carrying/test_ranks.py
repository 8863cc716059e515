"""Scripts that are written for one device, carried with two ranks: what the migration adds is compared too."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.carry_scripts import carry_copy, carry_script, migrate_text, replace_once

SESSION = """\
import numpy as np
import tensorflow.compat.v1 as tf


def make_input():
    random = np.random.RandomState(1)
    x = random.normal(size=(64, 6)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :3].argmax(1).astype(np.int32)))
    return data.shuffle(64).repeat().batch(8).make_one_shot_iterator().get_next()


def main(_):
    x, y = make_input()
    table = tf.get_variable("table", [8, 4])
    rows = tf.nn.embedding_lookup(table, tf.argmax(x, 1))
    logits = tf.layers.dense(tf.concat([x, rows], 1), 3, name="last")
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    variables = tf.trainable_variables()
    optimizer = tf.train.MomentumOptimizer(0.05, momentum=0.9)
    gradients, _ = tf.clip_by_global_norm([g for g, _ in optimizer.compute_gradients(loss, variables)], 0.5)
    train_op = optimizer.apply_gradients(zip(gradients, variables))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(5):
            _, value = sess.run([train_op, loss])
            print("step", step, "loss", value)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.app.run(main)
"""

PARALLEL = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
net = nn.DataParallel(nn.Linear(6, 3).to(torch.device("cuda")))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
for epoch in range(1):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_a_session_for_one_device_agrees_with_two_ranks_of_its_migration(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow_estimator")
    result = carry_script(tmp_path, SESSION, "--ranks", "2")
    assert result.code == 0, result.stdout + result.stderr[-3000:]
    assert "10 losses of 5 steps" in result.stdout
    assert "rank 0's variables, and gradients are averaged" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["broadcast", "average"])
def test_what_is_missing_between_two_ranks_differs(tmp_path: Path, lost: str) -> None:
    pytest.importorskip("tensorflow_estimator")
    text = migrate_text(SESSION, tmp_path)
    if lost == "broadcast":
        text = replace_once(text, "        sess.run(bcast_op)\n", "")
    else:
        text = replace_once(text, "    optimizer = NPUDistributedOptimizer(optimizer)\n", "")
    result = carry_copy(tmp_path, SESSION, text, "--ranks", "2")
    assert result.code == 1, result.stdout
    assert ("Rank 0 begins" if lost == "broadcast" else "not averaged over the ranks") in result.stdout


@pytest.mark.slow
def test_data_that_only_the_migrated_ranks_share_is_no_difference(tmp_path: Path) -> None:
    result = carry_script(tmp_path, PARALLEL, "--ranks", "2", "--data-parallel", "ddp")
    assert result.code == 3, result.stdout
    assert "each of its ranks trained alone" in result.stdout
