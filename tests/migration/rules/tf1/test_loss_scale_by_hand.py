from __future__ import annotations

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


def test_scaling_by_hand_stays_and_gets_advice() -> None:
    check_says("loss_scale_by_hand", HEAD + "opt.compute_gradients(loss * loss_scale)\n", "advice", "by hand")
    check_noop("loss_scale_by_hand", HEAD + "opt.compute_gradients(loss * 2)\n")
