"""Devices and device options of TensorFlow scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow

MLU = """
import json
import tensorflow as tf
config = tf.ConfigProto(allow_soft_placement=False)
config.mlu_options.visible_device_list = "0"
with tf.device("/mlu:0"):
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
step = tf.train.MomentumOptimizer(0.5, 0.9).minimize(w * w)
strategy = tf.distribute.OneDeviceStrategy("device:MLU:0")
import horovod.tensorflow as hvd
try:
    hvd.size()
    early = None
except ValueError as error:
    early = str(error)
hvd.init()
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(2):
        sess.run(step)
    print(json.dumps({"w": float(sess.run(w)), "early": early, "size": hvd.size(), "device": w.device}))
"""


def test_a_script_for_the_mlu_finds_its_devices_and_options(tmp_path: Path) -> None:
    script = tmp_path / "mlu.py"
    script.write_text(MLU)
    answer = rehearse_script("mlu", script)
    assert answer.code == 0, answer.stderr[-3000:]
    output = answer.parse_last_line()
    assert output["w"] == pytest.approx(-0.9)  # 1, then 0 at full speed, then carried on by momentum
    assert "not been initialized" in output["early"]
    assert output["size"] == 1
    assert "CPU" in output["device"]


DEVICE_SPEC = """
import json
import tensorflow as tf
with tf.device(tf.DeviceSpec(device_type="GPU", device_index=0)):
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(json.dumps({"w": float(sess.run(w)), "device": w.device}))
"""


def test_a_device_spec_of_a_gpu_is_the_cpu(tmp_path: Path) -> None:
    script = tmp_path / "spec.py"
    script.write_text(DEVICE_SPEC)
    answer = rehearse_script("original", script)
    assert answer.code == 0, answer.stderr[-3000:]
    assert answer.parse_last_line() == {"w": 1.0, "device": "/device:CPU:0"}
