from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("tf.device('/gpu:0')", "tf.device('/mlu:0')"),
        ("tf.device('gpu:0')", "tf.device('mlu:0')"),
        ('tf.device("/device:GPU:%d" % i)', 'tf.device("/device:MLU:%d" % i)'),
        ("tf.device('/job:worker/task:0/GPU:{}'.format(i))", "tf.device('/job:worker/task:0/MLU:{}'.format(i))"),
        ("tf.device(f'/gpu:{gpu:d}')", "tf.device(f'/mlu:{gpu:d}')"),
        ("tf.device('/gpu:0' if fast else '/cpu:0')", "tf.device('/mlu:0' if fast else '/cpu:0')"),
        ("tf.distribute.OneDeviceStrategy('device:GPU:0')", "tf.distribute.OneDeviceStrategy('device:MLU:0')"),
        (
            "tf.distribute.MirroredStrategy(devices=['/gpu:%d' % i for i in n])",
            "tf.distribute.MirroredStrategy(devices=['/mlu:%d' % i for i in n])",
        ),
        (
            "tf.train.replica_device_setter(worker_device='/gpu:0')",
            "tf.train.replica_device_setter(worker_device='/mlu:0')",
        ),
    ],
)
def test_a_gpu_becomes_an_mlu(before: str, later: str) -> None:
    check_rewrite("mlu_devices", HEAD + f"x = {before}  # here\n", HEAD + f"x = {later}  # here\n", to="mlu")


def test_a_string_is_changed_where_it_is_assigned() -> None:
    before = HEAD + "if many:\n    d = '/gpu:1'\nelse:\n    d = '/gpu:0'\nwith tf.device(d):\n    x = 1\n"
    check_rewrite("mlu_devices", before, before.replace("gpu", "mlu"), to="mlu")


def test_a_default_is_changed_and_callers_get_advice() -> None:
    before = HEAD + "def f(x, *, where='/gpu:0'):\n    with tf.device(where):\n        return x\n"
    result = check_rewrite("mlu_devices", before, before.replace("gpu", "mlu"), to="mlu")
    assert any(finding.status == "advice" and "callers" in finding.message for finding in result.findings)


def test_a_string_that_is_compared_needs_manual_review() -> None:
    source = HEAD + "d = '/gpu:0'\nif d == '/gpu:0':\n    pass\nwith tf.device(d):\n    x = 1\n"
    check_says("mlu_devices", source, "manual", "compared", to="mlu")


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


def test_horovod_stays_except_for_its_device() -> None:
    source = HEAD + "import horovod.tensorflow as hvd\nhvd.init()\nh = hvd.allreduce(x, device_dense='/gpu:0')\n"
    assert migrate_source(source, to="mlu").after.decode() == source.replace("/gpu:0", "/mlu:0")


def test_for_the_mlu_nothing_of_the_npu_is_written() -> None:
    source = HEAD + (
        "def main(_):\n    ds = tf.data.TFRecordDataset(f).batch(8)\n    opt = tf.train.AdamOptimizer(1)\n"
        "    opt.minimize(l)\n    with tf.Session(config=tf.ConfigProto()) as sess:\n        sess.run(ds)\n"
        "e = tf.estimator.Estimator(f, config=tf.estimator.RunConfig('out'))\ntf.app.run()\n"
    )
    result = migrate_source(source, to="mlu", distributed=True)
    assert result.after.decode() == source
    assert not result.findings
