"""TensorFlow 1 on an MLU: device strings, visible devices, the environment; Horovod and all else stay."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrated

HEAD = "import tensorflow as tf\n"
RULES = ("mlu_devices", "mlu_options", "mlu_environment", "mlu_report")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "source",
    [
        "with tf.device('/cpu:0'):\n    x = 1\n",
        "print('/gpu:0')\npath = 'a/gpu:0'\nnames = {'gpu:0': 1}\n",
        "device = '/gpu:0'\nprint(device)\n",
        "import mine\nwith mine.device('/gpu:0'):\n    pass\n",
        "config.other.visible_device_list = '0'\n",
        "names = ['CUDA_VISIBLE_DEVICES']\nhelp = 'TF_GPU_THREAD_MODE'\n",
        "with tf.device(f'/job:{gpu:d}'):\n    pass\n",
        "with tf.device(pick(gpu)):\n    pass\n",
    ],
)
def test_what_is_no_device_stays(rule: str, source: str) -> None:
    check_noop(rule, HEAD + source, to="mlu")


def test_horovod_stays_but_for_its_device() -> None:
    source = HEAD + "import horovod.tensorflow as hvd\nhvd.init()\nh = hvd.allreduce(x, device_dense='/gpu:0')\n"
    assert migrated(source, to="mlu").after.decode() == source.replace("/gpu:0", "/mlu:0")


def test_nothing_of_the_other_accelerator_is_written() -> None:
    source = HEAD + (
        "def main(_):\n    ds = tf.data.TFRecordDataset(f).batch(8)\n    opt = tf.train.AdamOptimizer(1)\n"
        "    opt.minimize(l)\n    with tf.Session(config=tf.ConfigProto()) as sess:\n        sess.run(ds)\n"
        "e = tf.estimator.Estimator(f, config=tf.estimator.RunConfig('out'))\ntf.app.run()\n"
    )
    result = migrated(source, to="mlu", distributed=True)
    assert result.after.decode() == source
    assert not result.findings
