from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

HEAD = "import tensorflow as tf\n"


def migrate_body(source: str, rule: str, **options: object) -> str:
    return migrate_source(HEAD + source, rule, **options).after.decode().partition(HEAD)[2]


@pytest.mark.parametrize(
    "source",
    [
        "with tf.device(None):\n    x = 1\n",
        "d = tf.device\n",
        "with torch.device('gpu'):\n    x = 1\n",
        "with open('gpu') as f:\n    x = 1\n",
    ],
)
def test_other_blocks_are_left_alone(source: str) -> None:
    check_noop("device_block", HEAD + source)


def test_a_block_for_the_cpu_stays_and_gets_advice() -> None:
    check_says("device_block", HEAD + "with tf.device('/cpu:0'):\n    x = 1\n", "advice", "stays")


def test_a_device_decided_at_run_time_needs_manual_review() -> None:
    check_says("device_block", HEAD + "with tf.device(FLAGS.where):\n    x = 1\n", "manual", "run time")
    setter = HEAD + "with tf.device(tf.train.replica_device_setter()):\n    x = 1\n"
    check_says("device_block", setter, "manual", "parameter servers")


@pytest.mark.parametrize(
    "device",
    [
        *("FLAGS.device", "cfg.data_device", "self.device", "x.inputs_device()", "gpu_device", "dev", "devices[0]"),
        *("'/gpu:0' if gpu else '/cpu:0'", "lambda op: '/gpu:0'", "set_to('/gpu:0', ps_device='/cpu:0')", "either"),
    ],
)
def test_a_device_that_is_not_a_text_of_a_gpu_needs_manual_review(device: str) -> None:
    source = f"def f(dev='/gpu:0'):\n    with tf.device({device}):\n        x = 1\n"
    either = "either = '/gpu:0'\nif here:\n    either = '/cpu:0'\n"
    check_says("device_block", HEAD + either + source, "manual", "run time")


@pytest.mark.parametrize(
    ("before", "device"),
    [
        ("d = '/gpu:0'\n", "d"),
        ("d = '/gpu:0'\nif a:\n    d = '/gpu:%d' % 1\n", "d"),
        ("", "'/gpu:' + str(i)"),
        ("", "'/gpu:{}'.format(i)"),
        ("", "'/gpu:0' if a else '/gpu:1'"),
        ("", "tf.DeviceSpec(device_type='GPU', device_index=i)"),
    ],
)
def test_a_gpu_in_a_composed_text_is_recognised(before: str, device: str) -> None:
    assert migrate_body(f"{before}with tf.device({device}):\n    x = 1\n", "device_block") == f"{before}x = 1\n"


def test_a_loop_over_literal_devices_is_followed() -> None:
    before = "for d in ['/gpu:0', '/gpu:1']:\n    with tf.device(d):\n        x = 1\n"
    assert migrate_body(before, "device_block") == "for d in ['/gpu:0', '/gpu:1']:\n    x = 1\n"


@pytest.mark.parametrize("outer", ["tf.device('/cpu:0')", "tf.Graph().as_default(), tf.device('/cpu:0')"])
def test_a_gpu_block_within_a_cpu_block_needs_manual_review_too(outer: str) -> None:
    source = f"{HEAD}with {outer}:\n    o = 1\n    with tf.device('/gpu:0'):\n        x = 1\n"
    result = migrate_source(source, "device_block")
    assert "gpu" not in result.after.decode()
    found = [finding for finding in result.findings if finding.status == "manual"]
    assert [finding.risk for finding in found] == ["high"]
    assert "to the CPU" in found[0].message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with tf.device('/gpu:0'): x = 1\n", "x = 1\n"),
        ("with a, tf.device('/gpu:0'), b as c:\n    x = 1\n", "with a, b as c:\n    x = 1\n"),
        ("with a, tf.device('/gpu:0'):\n    x = 1\n", "with a:\n    x = 1\n"),
        ("with (tf.device('/gpu:0'), a):\n    x = 1\n", "with (a):\n    x = 1\n"),
        ("with tf.device('/device:GPU:%d' % i):\n    x = 1\n", "x = 1\n"),
        ("with tf.device(f'/gpu:{i}'):\n    x = 1\n", "x = 1\n"),
        ("with tf.device(var.device):\n    x = 1\n", "x = 1\n"),
        (
            "with tf.device('/gpu:0'):  # here\n    # 1st\n    x = 1\n\n    if x:\n        y = 2\n    # last\nz = 3\n",
            "# here\n# 1st\nx = 1\n\nif x:\n    y = 2\n# last\nz = 3\n",
        ),
        ("if a:\n\twith tf.device('/gpu:0'):\n\t\tx = 1\n\t\ty = 2\n", "if a:\n\tx = 1\n\ty = 2\n"),
        (
            "with tf.device('/gpu:0'):\n    x = '''a\n    b\n'''\n    y = f(1,\n          2)\n",
            "x = '''a\n    b\n'''\ny = f(1,\n      2)\n",
        ),
        (
            "with tf.device('/gpu:0'):\n    with tf.device('/gpu:1'):\n        x = 1\n    y = 2\n",
            "x = 1\ny = 2\n",
        ),
    ],
)
def test_blocks_for_a_gpu_are_unwrapped(before: str, after: str) -> None:
    assert migrate_body(before, "device_block") == after


def test_the_block_may_name_the_cpu_instead() -> None:
    assert migrate_body("with tf.device('/gpu:0'):\n    x = 1\n", "device_block", device="cpu") == (
        "with tf.device('/cpu:0'):\n    x = 1\n"
    )


def test_towers_need_manual_review() -> None:
    source = HEAD + "for i in range(num_gpus):\n    with tf.device('/gpu:%d' % i):\n        x = 1\n"
    assert any("tower" in finding.message for finding in migrate_source(source, "device_block").findings)
