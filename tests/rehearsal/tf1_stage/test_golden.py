"""`viaduct dump` of a TensorFlow 1 script: every tensor of its steps, named as the TensorFlow debugger names them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from forked_viaduct import viaduct
from rehearsal.tf1_scripts import needs_tensorflow
from viaduct.comparison.readers import read
from viaduct.rehearsal.tf1_stage.golden import GoldenDump, make_file_name

SCRIPT = """
import numpy as np
import tensorflow as tf
x = tf.placeholder(tf.float32, [2, 3], name="data/x")
w = tf.get_variable("layer/w", [3, 1], initializer=tf.ones_initializer())
y = tf.matmul(x, w, name="layer/product")
y = tf.cond(tf.reduce_sum(y) > 0, lambda: y * 2, lambda: y)
rate = tf.placeholder(tf.float32, [], name="rate")
step = tf.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(y), tf.train.get_or_create_global_step())
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for number in range(10):
        sess.run(step, {x: np.full([2, 3], number + 1), rate: 0.5})
    print("never reached")
"""


@needs_tensorflow
def test_chosen_steps_are_written_whole_and_the_script_ends_after_them(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "golden"
    script.write_text(SCRIPT)
    answer = viaduct("dump", script, "--steps", "0,2", "--out", out, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "never reached" not in answer.stdout
    assert "tf.cond" in answer.stderr, "what cannot be looked at is said"
    assert sorted(path.name for path in out.iterdir()) == ["step_000000", "step_000002"]
    files = {path.name: path for path in (out / "step_000002").iterdir()}
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+\.\d+\.\d{16}\.npy", name) for name in files)
    assert len({name.split(".")[-2] for name in files}) == 1, "one time for all"
    tensors = {name.rsplit(".", 2)[0]: np.load(path) for name, path in files.items()}
    assert np.array_equal(tensors["data_x.0"], np.full([2, 3], 3.0)), "what was fed is there too"
    assert tensors["data_x.0"].dtype == np.float32, "in the placeholder's type, not in NumPy's int64"
    assert tensors["rate.0"].dtype == np.float32
    assert tensors["rate.0"] == np.float32(0.5)
    assert f"viaduct compare NPU_DUMP {out}/step_000002 --explain" in answer.stderr, "the truth comes second"
    # The first gradient is doubled (its sum is above 0), the second is of twice the data: 4 and 4, each by half.
    assert np.array_equal(tensors["layer_product.0"], np.full([2, 1], 3 * 3 * (1 - 2.0 - 2.0)))
    side = read(out / "step_000002")
    assert side.kind == "tfdbg"
    assert not any(tensor.fault for tensor in side.tensors)


@needs_tensorflow
def test_what_cannot_be_dumped_is_reported_and_nothing_is_left(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    answer = viaduct("dump", script, "--only", "layer/*", "--steps", "20", "--out", tmp_path / "golden", cwd=tmp_path)
    assert answer.returncode == 2
    assert "it took 10 training steps" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "golden").exists()
    refused = viaduct("dump", script, "--only", "layer/produkt*", "--out", tmp_path / "golden", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no operator is called like 'layer/produkt*'; close are: layer/product" in refused.stderr
    assert "--steps" not in refused.stderr
    assert not (tmp_path / "golden").exists()
    wrong = viaduct("dump", script, "--level", "op", "--out", tmp_path / "golden", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--level does not go with a TensorFlow script" in wrong.stderr


def test_names_that_meet_or_are_too_long_stay_apart(tmp_path: Path) -> None:
    taken: dict[str, str] = {}
    first, second = make_file_name("a/b_c", 0, 100, taken), make_file_name("a_b/c", 0, 100, taken)
    assert (first, second) == ("a_b_c.0.100.npy", "a_b_c.0.99.npy"), "readers take the later time"
    golden = GoldenDump(tmp_path, lambda step: True, 0)
    golden.write(0, [("x" * 300, 0, np.ones(2)), ("y", 1, np.zeros(1))], 1607502000000000)
    folder = tmp_path / "step_000000"
    assert sorted(path.name for path in folder.iterdir()) == ["0.npy", "mapping.csv", "y.1.1607502000000000.npy"]
    assert (folder / "mapping.csv").read_text().startswith("0,xxx")
    assert golden.written == {0: 2}


@pytest.mark.parametrize("pattern", ["layer/*", "layer/product"])
def test_only_looks_at_the_operators_own_names(pattern: str, tmp_path: Path) -> None:
    golden = GoldenDump(tmp_path, lambda step: True, 0, name_patterns=(pattern,))
    assert golden.is_selected("layer/product")
    assert not golden.is_selected("gradients/layer/product_grad")
