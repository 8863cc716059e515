from __future__ import annotations

import pytest

from migration.checking import check_rewrite, check_says

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


def test_a_default_is_changed_and_callers_are_mentioned() -> None:
    before = HEAD + "def f(x, *, where='/gpu:0'):\n    with tf.device(where):\n        return x\n"
    result = check_rewrite("mlu_devices", before, before.replace("gpu", "mlu"), to="mlu")
    assert any(one.status == "advice" and "callers" in one.message for one in result.findings)


def test_a_string_that_is_compared_is_left_to_a_person() -> None:
    source = HEAD + "d = '/gpu:0'\nif d == '/gpu:0':\n    pass\nwith tf.device(d):\n    x = 1\n"
    check_says("mlu_devices", source, "manual", "compared", to="mlu")
