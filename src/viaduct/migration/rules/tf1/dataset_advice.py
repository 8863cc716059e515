"""Advise on parts of an input pipeline that may not suit the NPU.

There is advice on `repeat` with a count, on a shuffled numpy_input_fn or pandas_input_fn whose num_epochs is not None,
on a batch size divided by the number of GPUs, and on placeholders with an unknown dimension other than the first.
Readers that the device does not support need manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.notices import Notice, add_notices
from viaduct.migration.predicates import is_constant
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("D7", "D8", "D9", "D10", "D11"), category="advice", runs_last=True)

READERS = tuple(f"tensorflow.{name}" for name in ("WholeFileReader", "LMDBReader", "IdentityReader"))


@rule.call("tensorflow.estimator.inputs.numpy_input_fn", "tensorflow.estimator.inputs.pandas_input_fn")
def advise_epochs(site: Site) -> None:
    """Advise on shuffled input, which is for training, with a limited num_epochs (default 1)."""
    epochs = site.argument("num_epochs", 3)
    is_shuffled = is_constant(site.argument("shuffle", 4), True)
    if is_shuffled and not is_constant(epochs, None):
        site.advise(
            "unless num_epochs is None the last batch may be shorter: num_epochs=None and a number of steps keep "
            "shapes fixed",
            zh="num_epochs 不为 None 时最后一批可能不足:设 num_epochs=None 并用步数控制训练可保持 shape 固定",
        )


@rule.method("repeat")
def advise_repeat(site: Site) -> None:
    count = site.argument("count", 0)
    is_endless = count is None or (isinstance(count, ast.Constant) and count.value in (None, -1))
    if not is_endless and site.values.kind(site.node.func.value) == "dataset":
        site.advise(
            "call repeat() without a count and end training after a number of steps: the loop on the device needs to "
            "know its length",
            zh="建议 repeat 不带次数,用步数控制训练长度:设备上的循环需要知道其长度",
        )


@rule.node(ast.BinOp, only_if_file_contains=("num_gpus", "gpu_num", "n_gpus", "NUM_GPUS"))
def advise_batch_size(site: Site) -> None:
    """Advise on `batch_size // num_gpus`."""
    if isinstance(site.node.op, ast.Div | ast.FloorDiv):
        left, right = ast.unparse(site.node.left).lower(), ast.unparse(site.node.right).lower()
        if "batch" in left and "gpu" in right:
            site.advise(
                f"{site.text_of(site.node)}: on the accelerator every device has its own process, so the batch size "
                "is per device without a division",
                zh=f"{site.text_of(site.node)}:在昇腾上每个设备一个进程,批大小本就按设备计,无需再除",
            )


@rule.call("tensorflow.placeholder")
def advise_placeholder(site: Site) -> None:
    """Advise on unknown dimensions other than the first, which is the batch size."""
    shape = site.argument("shape", 1)
    dimensions = shape.elts if isinstance(shape, ast.List | ast.Tuple) else []
    unknown = [index for index, dimension in enumerate(dimensions) if is_constant(dimension, None)]
    if unknown and unknown != [0]:
        site.advise(
            "a placeholder with an unknown dimension besides the batch means dynamic shapes: fix it, or use the "
            "dynamic_input options",
            zh="placeholder 除批大小外还有未知维度,即为动态 shape:请固定,或使用 dynamic_input 相关选项",
            risk="medium",
        )


add_notices(
    rule,
    Notice(
        READERS,
        "{last} is not supported on the device: read with tf.data",
        "设备不支持 {last}:请使用 tf.data",
        risk="high",
    ),
)
