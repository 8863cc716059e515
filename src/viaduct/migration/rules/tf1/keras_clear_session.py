"""Replace Keras' clear_session, after which the NPU would not be used any more.

     import tensorflow as tf
     from tensorflow.keras import backend as K
    -K.clear_session()
    +from npu_bridge.npu_init import npu_clear_session
    +npu_clear_session()

`clear_session` discards the session, and Keras would create the next one without NpuOptimizer; Ascend's function sets
one with NpuOptimizer. It supports tf.keras only, so the standalone package needs manual review.
"""

from __future__ import annotations

from viaduct.migration.notices import Notice, add_notices
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="keras_sessions", spec_rows=("K7",))


@rule.call("tensorflow.keras.backend.clear_session")
def replace_clear_session(site: Site) -> None:
    if site.is_editable:
        site.rename(site.import_npu_name("npu_clear_session"))
        site.report_change(
            "a new session for the device follows the cleared one", zh="清除会话后重新建立带 NpuOptimizer 的会话"
        )


add_notices(
    rule,
    Notice(
        ("keras.backend.clear_session",),
        "the next session would not run on the accelerator: set one again after clearing "
        "(npu_clear_session does so for tensorflow.keras only)",
        "清除后新建的会话不在昇腾上执行:请重新 set_session(npu_clear_session 仅适用于 tensorflow.keras)",
    ),
)
