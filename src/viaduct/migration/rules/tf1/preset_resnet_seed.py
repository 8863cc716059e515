"""Set the options of Ascend's ResNet run.

With `--preset resnet-seed`:

     import tensorflow as tf
     from npu_bridge.estimator.npu.npu_config import NPURunConfig
    -config = NPURunConfig(model_dir="out")
    +config = NPURunConfig(model_dir="out", hcom_parallel=True, enable_data_pre_proc=True, iterations_per_loop=100)

The options suit that model only. Those that the script sets stay. Checkpoints every 115,200 steps, a loss scale of 512,
float16 input and a step count computed from the number of images are only advised.
"""

from __future__ import annotations

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.options import has_resnet_preset
from viaduct.migration.rule import Rule, Site

# After estimator_run_options: an option such as --loop takes precedence over the preset.
rule = Rule(__name__, spec_rows=("2.11",), category="advice", when=has_resnet_preset, after=("estimator_run_options",))

PRESET = {"hcom_parallel": "True", "enable_data_pre_proc": "True", "iterations_per_loop": "100"}


@rule.call(full_name("NPURunConfig"))
def add_preset(site: Site) -> None:
    present = {keyword.arg for keyword in site.node.keywords}
    missing = [f"{name}={value}" for name, value in PRESET.items() if name not in present]
    if not missing or not site.is_editable:
        return
    site.edit.add_argument(site.node, ", ".join(missing))
    site.report_change(
        f"settings of the ResNet run in the vendor's guide: {', '.join(missing)}",
        zh=f"按厂商指南中 ResNet 训练的设置:{', '.join(missing)}",
    )
    site.advise(
        "that run also saves every 115,200 steps, sets loss_scale 512, feeds float16 and counts max_steps from the "
        "number of images",
        zh="该训练还设置:每 115200 步保存、loss_scale 512、输入 float16、由图片数计算 max_steps",
    )
