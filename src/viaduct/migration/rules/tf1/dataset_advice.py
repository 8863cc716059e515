"""Mention what an input pipeline may want on the device.

A count for `repeat`, an epoch-bounded numpy_input_fn, a batch size divided by the number of GPUs, placeholders without
a fixed shape, and readers that the device does not know: none can be changed safely from here.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="D7 D8 D9 D10 D11", kind="advice", last=True)

READERS = ("WholeFileReader", "LMDBReader", "IdentityReader")


@rule.call("tensorflow.estimator.inputs.numpy_input_fn", "tensorflow.estimator.inputs.pandas_input_fn")
def from_arrays(site: Site) -> None:
    epochs = site.argument("num_epochs", 3)
    bounded = epochs is None or not (isinstance(epochs, ast.Constant) and epochs.value is None)
    shuffle = site.argument("shuffle", 4)
    training = isinstance(shuffle, ast.Constant) and shuffle.value is True
    if bounded and training:
        site.advice(
            "with num_epochs the last batch may be short: num_epochs=None and a number of steps keep shapes fixed",
            zh="设置 num_epochs 时最后一批可能不足:建议 num_epochs=None 并用步数控制训练",
        )


@rule.method("repeat")
def advise_repeat(site: Site) -> None:
    count = site.argument("count", 0)
    plain = count is None or (isinstance(count, ast.Constant) and count.value in (None, -1))
    if not plain and site.values.kind(site.node.func.value) == "dataset":
        site.advice(
            "repeat without a count and bound the run by steps: the loop on the device needs to know its length",
            zh="建议 repeat 不带次数,用步数控制训练长度",
        )


@rule.node(ast.BinOp, words=("num_gpus", "gpu_num", "n_gpus", "NUM_GPUS"))
def advise_batch_size(site: Site) -> None:
    if isinstance(site.node.op, ast.Div | ast.FloorDiv):
        left, right = ast.unparse(site.node.left).lower(), ast.unparse(site.node.right).lower()
        if "batch" in left and "gpu" in right:
            site.advice(
                f"{site.text(site.node)}: here every device is a process and the batch size is per device",
                zh=f"{site.text(site.node)}:在昇腾上每个设备一个进程,批大小按设备计",
            )


@rule.call("tensorflow.placeholder")
def placeholder(site: Site) -> None:
    shape = site.argument("shape", 1)
    parts = shape.elts if isinstance(shape, ast.List | ast.Tuple) else []
    unknown = [index for index, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is None]
    if unknown and unknown != [0]:
        site.advice(
            "a placeholder with several unknown dimensions means dynamic shapes: fix them, or use the dynamic_input "
            "options",
            zh="placeholder 含多个未知维度即为动态 shape:请固定,或使用 dynamic_input 相关选项",
            risk="medium",
        )


@rule.call(*(f"tensorflow.{name}" for name in READERS))
def reader(site: Site) -> None:
    site.manual(
        f"{site.name.rpartition('.')[2]} is not supported on the device: read with tf.data",
        zh=f"设备不支持 {site.name.rpartition('.')[2]}:请使用 tf.data",
        risk="high",
    )
