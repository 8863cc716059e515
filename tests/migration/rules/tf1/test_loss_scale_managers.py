from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FixedLossScale(128)", "FixedLossScaleManager(128)"),
        ("FixedLossScale(loss_scale_value=128)", "FixedLossScaleManager(loss_scale=128)"),
        (
            "DynamicLossScale()",
            "ExponentialUpdateLossScaleManager(init_loss_scale=2**15, incr_every_n_steps=2000)",
        ),
        (
            "DynamicLossScale(2**10, 50, multiplier=4.)",
            "ExponentialUpdateLossScaleManager(init_loss_scale=2**10, incr_every_n_steps=50, incr_ratio=4.)",
        ),
    ],
)
def test_managers_are_renamed_with_their_arguments(before: str, after: str) -> None:
    text = migrate_source(HEAD + f"s = tf.train.experimental.{before}\n", "loss_scale_managers").after.decode()
    assert text.endswith(f"s = {after}\n"), text


def test_unpacked_arguments_of_a_fixed_loss_scale_need_manual_review() -> None:
    source = "import tensorflow as tf\nscale = tf.train.experimental.FixedLossScale(**kw)\n"
    check_says("loss_scale_managers", source, "manual", "FixedLossScaleManager has other names")
