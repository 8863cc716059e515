"""Sessions: errors of the script and of the stand-in, and sessions that count as closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow


def test_an_error_of_the_stand_in_is_not_taken_for_one_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import tensorflow as tf\n"
        "import viaduct.rehearsal.tf1_stage.subgraph as subgraph\n"
        "subgraph.find_dependencies = lambda *given: 1 / 0\n"
        "with tf.Session() as session:\n    session.run(tf.constant(1))\n"
    )
    answer = rehearse_script("original", script)
    assert "StandInFails: ZeroDivisionError" in answer.failure + answer.stderr


def test_a_mistake_of_the_script_stays_one_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import tensorflow as tf\nx = tf.placeholder(tf.float32)\n"
        "with tf.Session() as session:\n    session.run(x + 1)\n"
    )
    answer = rehearse_script("original", script)
    assert "InvalidArgumentError" in answer.failure + answer.stderr
    assert "StandInFails" not in answer.failure + answer.stderr


AT_EXIT = """
import atexit
import functools
import tensorflow as tf
from npu_bridge.npu_init import *

own = tf.Session(config=npu_config_proto())
atexit.register(own.close)
other = tf.Session(config=npu_config_proto())
atexit.register({})
for session in (own, other):
    session.run(tf.constant(1.0))
"""


@pytest.mark.parametrize(
    ("registered", "count"),
    [
        ("other.close", 0),
        ("functools.partial(other.close)", 0),
        ("lambda: other.close()", 0),
        ("print", 1),
    ],
)
def test_a_session_that_is_closed_when_the_process_ends_is_closed(tmp_path: Path, registered: str, count: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(AT_EXIT.format(registered))
    answer = rehearse_script("npu", script, VIADUCT_LIMITS="warn")
    assert answer.code == 0, answer.stderr[-3000:]
    assert [name for name, _, _ in answer.met_limits] == ["session-not-closed"] * count
