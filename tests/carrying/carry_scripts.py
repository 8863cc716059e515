"""Training scripts, functions that run `viaduct carry` on a script, and its result."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from carrying.forked_carry import carry_with_forks
from forked_viaduct import viaduct
from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project

TORCH = '''\
"""A small classifier with everything that a migration can get wrong."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.norm = nn.BatchNorm1d(16, eps=1e-5)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


def make_data(count):
    x = torch.randn(count, 12, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x[:, :3].argmax(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    local = int(os.environ.get("LOCAL_RANK", 0))
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    if ranks > 1:
        dist.init_process_group("nccl")
    data = make_data(100)
    sampler = DistributedSampler(data) if ranks > 1 else None
    loader = DataLoader(data, batch_size=16, shuffle=sampler is None, sampler=sampler, drop_last=True)
    net = Net().to(device)
    if ranks > 1:
        net = DDP(net, device_ids=[local])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=len(data) // 16 // 2, gamma=0.5)
    scaler = torch.cuda.amp.GradScaler(init_scale=1024.0, enabled=args.amp)
    for epoch in range(args.epochs):
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            with torch.autocast("cuda", enabled=args.amp):
                loss = criterion(net(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        print("epoch", epoch, "loss", loss.item())
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''
# The migrated script; made without the rules, so that these tests do not depend on them.
ON_THE_NPU = (
    TORCH.replace("import torch\nimport", "import torch\nimport torch_npu\nimport")
    .replace("torch.cuda.", "torch.npu.")
    .replace('"cuda"', '"npu"')
    .replace(".cuda(", ".npu(")
    .replace('"nccl"', '"hccl"')
)

TF1 = '''\
"""One process a card, through Horovod."""
import numpy as np
import tensorflow.compat.v1 as tf
import horovod.tensorflow as hvd


def make_input(batch_size):
    random = np.random.RandomState(1)
    x = random.normal(size=(240, 12)).astype(np.float32)
    y = x[:, :3].argmax(1).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shard(hvd.size(), hvd.rank())
    dataset = dataset.shuffle(120).repeat().batch(batch_size)
    return dataset.make_one_shot_iterator().get_next()


def network(x, training):
    x = tf.layers.dense(x, 16, name="first")
    x = tf.layers.batch_normalization(x, epsilon=1e-3, training=training, name="norm")
    x = tf.nn.dropout(tf.nn.relu(x), rate=0.1)
    return tf.layers.dense(x, 3, name="last")


def main(_):
    hvd.init()
    x, y = make_input(16)
    loss = tf.losses.sparse_softmax_cross_entropy(y, network(x, True))
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.05, step, 240 // 16 // 4, 0.5, staircase=True)
    optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(rate, momentum=0.9))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=step)
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=30)]
    with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as sess:
        while not sess.should_stop():
            sess.run(train_op)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.app.run(main)
'''


class CarryResult:
    """Exit code, output and carry.json of a carry."""

    def __init__(self, answer: subprocess.CompletedProcess[str], out: Path) -> None:
        self.code, self.stdout, self.stderr, self.out = answer.returncode, answer.stdout, answer.stderr, out
        path = out / "carry.json"
        self.record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    @property
    def lines(self) -> list[str]:
        """Return the text of the suspected lines, the likeliest first."""
        return [suspect["new"] or suspect["old"] for suspect in self.record["suspects"]]


def carry_script(
    folder: Path, source: str, *words: str | Path, name: str = "train.py", **environment: str
) -> CarryResult:
    """Write a script into a folder and carry it, with the folder as the current one."""
    (folder / name).write_text(source)
    answer = viaduct("carry", name, "--out", "carried", *words, cwd=folder, **environment)
    return CarryResult(answer, folder / "carried")


def carry_copy(folder: Path, source: str, copy: str, *words: str | Path, name: str = "train.py") -> CarryResult:
    """Carry a script with --migrated, against a copy that was migrated by hand."""
    write_copy(folder, copy, name)
    return carry_script(folder, source, "--migrated", "by_hand", *words, name=name)


def carry_copy_in_forks(folder: Path, source: str, copy: str, *words: str | Path) -> CarryResult:
    """Do the same as `carry_copy`, with forks in place of new Python processes."""
    write_copy(folder, copy, "train.py")
    (folder / "train.py").write_text(source)
    answer = carry_with_forks(folder, "train.py", "--out", "carried", "--migrated", "by_hand", *words)
    return CarryResult(answer, folder / "carried")


def write_copy(folder: Path, copy: str, name: str) -> None:
    (folder / "by_hand").mkdir()
    (folder / "by_hand" / name).write_text(copy)


def replace_once(text: str, old: str, new: str) -> str:
    """Replace a text that must occur exactly once."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


def list_met_limits(result: CarryResult) -> list[dict[str, Any]]:
    return list(result.record["limits"])


def migrate_text(source: str, folder: Path, distributed: bool = True) -> str:
    """Return the text of a script after its migration, by default for several devices."""
    script = folder / "before" / "train.py"
    script.parent.mkdir()
    script.write_text(source)
    (made,) = migrate_project(script, Options(distributed=distributed)).files
    return made.new_text
