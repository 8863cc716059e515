from __future__ import annotations

from migration.checking import check_noop, check_rewrite, check_says

RULE = "keras_clear_session"


def test_other_functions_of_this_name_are_left_alone() -> None:
    check_noop(RULE, "from mylib import clear_session\nclear_session()\nself.clear_session()\n")


def test_every_way_to_name_clear_session_of_tf_keras() -> None:
    added = "from npu_bridge.npu_init import npu_clear_session\n"
    for head, call in (
        ("import tensorflow as tf\n", "tf.keras.backend.clear_session"),
        ("from tensorflow.python.keras import backend as K\n", "K.clear_session"),
        ("from tensorflow.keras.backend import clear_session\n", "clear_session"),
    ):
        check_rewrite(RULE, f"{head}{call}()  # new\n", f"{head}{added}npu_clear_session()  # new\n")


def test_the_standalone_package_needs_manual_review() -> None:
    check_says(RULE, "from keras import backend as K\nK.clear_session()\n", "manual", "tensorflow.keras only")
