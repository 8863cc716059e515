"""Random numbers do not depend on how a graph was built."""

from __future__ import annotations

from pathlib import Path

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow

SEEDED = """
import tensorflow as tf
import sys
for number in range(int(sys.argv[1])):  # others, as a migrated script has them
    tf.constant(number)
w = tf.get_variable("w", [3], initializer=tf.random_normal_initializer())
data = tf.data.Dataset.range(8).shuffle(8).repeat().batch(2, drop_remainder=True)
x = tf.cast(data.make_one_shot_iterator().get_next(), tf.float32)
loss = tf.reduce_sum(tf.nn.dropout(w, 0.5)) * tf.reduce_sum(x)
step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(4):
        sess.run(step)
"""


def test_a_seed_gives_the_same_run_whatever_else_is_in_the_graph(tmp_path: Path) -> None:
    script = tmp_path / "seeded.py"
    script.write_text(SEEDED)
    first, more, other = (
        rehearse_script("original", script, seed=seed, arguments=[count])
        for seed, count in ((3, "0"), (3, "5"), (4, "0"))
    )
    assert len(first.losses) == 4
    assert first.losses == more.losses
    assert first.variables == more.variables
    assert first.losses != other.losses


def test_with_a_large_seed_the_script_can_start_a_process(tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import subprocess, sys\nimport tensorflow as tf\n"
        "subprocess.run([sys.executable, '-c', 'print(\"started\")'], check=True)\n"
    )
    result = rehearse_script("original", script, seed=2**32 + 1)
    assert result.code == 0, result.stderr
