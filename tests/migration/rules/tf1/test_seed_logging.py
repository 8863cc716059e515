from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "source",
    [
        "import logging\nlogging.info('a')\nlogging.getLogger('x').setLevel(logging.INFO)\n",
        "from mine import logging\nlogging.info('a')\n",
        "tf.compat.v1.logging.info('a')\ntf.logging.set_verbosity(tf.logging.INFO)\n",
        "class logging:\n    info = print\nlogging.info('a')\n",
    ],
)
def test_other_loggers_are_left_alone(source: str) -> None:
    check_noop("seed_logging", HEAD + source, preset="resnet-seed")


def test_nothing_is_changed_without_the_preset() -> None:
    source = HEAD + "from absl import logging\nlogging.info('a')\n"
    assert "compat.v1.logging" not in migrate_source(source).after.decode()


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        ("from absl import logging\n", "logging.info('%d', 1)  # why", "tf.compat.v1.logging.info('%d', 1)  # why"),
        ("from absl import logging as log\n", "log.warning('a')", "tf.compat.v1.logging.warning('a')"),
        ("import absl.logging\n", "absl.logging.error('a')", "tf.compat.v1.logging.error('a')"),
        ("from absl.logging import info\n", "info('a')", "tf.compat.v1.logging.info('a')"),
        (
            "from absl import logging\n",
            "logging.set_verbosity(logging.WARNING)",
            "tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.WARN)",
        ),
        (
            "from absl import logging\n",
            "logging.set_verbosity(v=logging.INFO)",
            "tf.compat.v1.logging.set_verbosity(v=tf.compat.v1.logging.INFO)",
        ),
        (
            "from absl import logging\n",
            "logging.log_every_n(logging.INFO, 'x %d', 10, n)",
            "tf.compat.v1.logging.log_every_n(tf.compat.v1.logging.INFO, 'x %d', 10, n)",
        ),
    ],
)
def test_functions_of_absl_become_those_of_tensorflow(head: str, before: str, after: str) -> None:
    check_rewrite("seed_logging", f"{HEAD}{head}{before}\n", f"{HEAD}{head}{after}\n", preset="resnet-seed")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("logging.set_verbosity(FLAGS.verbosity)", "count levels differently"),
        ("logging.set_verbosity(0)", "count levels differently"),
        ("logging.exception('a')", "has no such function"),
        ("logging.use_absl_handler()", "has no such function"),
    ],
)
def test_a_function_without_counterpart_stays_and_gets_advice(line: str, reason: str) -> None:
    check_says("seed_logging", f"{HEAD}from absl import logging\n{line}\n", "advice", reason, preset="resnet-seed")


def test_a_file_without_tensorflow_keeps_its_logger() -> None:
    source = "from absl import logging\nlogging.info('a')\n"
    check_says("seed_logging", source, "advice", "does not import TensorFlow", preset="resnet-seed")
