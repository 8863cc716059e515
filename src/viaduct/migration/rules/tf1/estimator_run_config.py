"""Describe the run with the accelerator's own RunConfig.

     import tensorflow as tf
    -config = tf.estimator.RunConfig("out", save_checkpoints_steps=100)
    +from npu_bridge.estimator.npu.npu_config import NPURunConfig
    +config = NPURunConfig(model_dir="out", save_checkpoints_steps=100)

Positional arguments become keywords, since NPURunConfig has another order. What it does not know is removed:
train_distribute, eval_distribute, experimental_distribute, device_fn, protocol and three of later TensorFlow.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="E1 E2 E3 E4", kind="mandatory", order=30)

ORDER = (
    *("model_dir", "tf_random_seed", "save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs"),
    *("session_config", "keep_checkpoint_max", "keep_checkpoint_every_n_hours", "log_step_count_steps"),
)


@rule.call("tensorflow.estimator.RunConfig")
def convert(site: Site) -> None:
    if any(isinstance(value, ast.Starred) for value in site.node.args):
        site.manual("positional arguments are unpacked into RunConfig; name them, then migrate")
        return
    site.rename(site.need("NPURunConfig"))
    site.name_positions(ORDER)
    site.changed("RunConfig becomes NPURunConfig", zh="RunConfig 改为 NPURunConfig")
