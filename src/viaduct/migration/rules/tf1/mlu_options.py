"""Replace the choice of visible GPUs by one of visible MLUs.

     import tensorflow as tf
     config = tf.ConfigProto()
    -config.gpu_options.visible_device_list = "0"
    +config.mlu_options.visible_device_list = "0"

mlu_options is a field of ConfigProto in Cambricon's TensorFlow only. The other GPU options stay.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="placement", spec_rows=("6.1",), targets=("mlu",))

FIELD = "visible_device_list"


@rule.node(ast.Attribute, only_if_file_contains=("gpu_options",))
def rename_gpu_options(site: Site) -> None:
    inner = site.node.value
    if site.node.attr != FIELD or not (isinstance(inner, ast.Attribute) and inner.attr == "gpu_options"):
        return
    if site.values.kind(inner.value) not in (None, "config_proto") or not site.is_editable:
        return
    site.edit.replace_attribute(inner, "mlu_options")
    site.report_change("the visible device is an MLU", zh="可见设备改为 MLU")


@rule.call("tensorflow.GPUOptions")
def report_gpu_options(site: Site) -> None:
    if site.keyword(FIELD) is not None:
        site.request_review(
            "GPUOptions(visible_device_list=…) has no effect on an MLU: set config.mlu_options.visible_device_list",
            zh="GPUOptions(visible_device_list=…) 对 MLU 不生效:请设置 config.mlu_options.visible_device_list",
        )


@rule.call("tensorflow.ConfigProto")
def report_device_count(site: Site) -> None:
    keyword = site.keyword("device_count")
    keys = keyword.value.keys if keyword is not None and isinstance(keyword.value, ast.Dict) else []
    if any(isinstance(key, ast.Constant) and key.value == "GPU" for key in keys):
        site.advise(
            "device_count limits the number of GPUs and has no effect on MLUs",
            zh="device_count 限制的是 GPU 数量,对 MLU 不生效",
        )
