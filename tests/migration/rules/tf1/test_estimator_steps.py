from __future__ import annotations

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


def test_an_integer_number_of_steps_is_not_reported() -> None:
    check_noop("estimator_steps", HEAD + "tf.estimator.TrainSpec(fn, max_steps=n // 2)\nmodel.train(steps=n / 2)\n")
    check_says("estimator_steps", HEAD + "n = a / b\ntf.estimator.TrainSpec(fn, max_steps=n)\n", "manual", "float")
