"""Report parts of model code that may not suit the device.

Tests of gradients for overflow and CuDNN layers need manual review. Recurrent cells, operators that run on the host,
summaries in the model function and assertions of a dtype get advice.
"""

from __future__ import annotations

import ast

from viaduct.migration.notices import Notice, add_notices
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("N8", "N9", "N10", "N11"), category="advice", runs_last=True)

FINITENESS_CHECKS = tuple(
    f"tensorflow.{prefix}{name}" for prefix in ("", "math.", "debugging.") for name in ("is_finite", "is_inf", "is_nan")
)
CUDNN_LAYERS = tuple(
    f"{prefix}{kind}"
    for prefix in ("tensorflow.contrib.cudnn_rnn.Cudnn", "tensorflow.keras.layers.CuDNN", "keras.layers.CuDNN")
    for kind in ("LSTM", "GRU")
)
RECURRENT_CELLS = tuple(
    f"tensorflow.{prefix}.{name}"
    for prefix in ("contrib.rnn", "nn.rnn_cell")
    for name in ("LSTMCell", "BasicLSTMCell", "LayerNormBasicLSTMCell", "GRUCell", "LSTMBlockCell")
)
HOST_FUNCTIONS = ("tensorflow.py_func", "tensorflow.py_function", "tensorflow.numpy_function")


@rule.call(*FINITENESS_CHECKS)
def report_finite_check(site: Site) -> None:
    """Report a test of gradients for overflow; advise on a test of other values."""
    name = site.name.rpartition(".")[2]
    if "grad" in ast.unparse(site.node).lower():
        site.request_review(
            f"{name} on gradients does not see the device's overflow: use NPULossScaleOptimizer",
            zh=f"对梯度使用 {name} 无法感知设备溢出:请使用 NPULossScaleOptimizer",
            risk="high",
        )
    else:
        site.advise(
            f"{name} is not a supported operator; on data it may run on the host",
            zh=f"{name} 不在支持列表;用于数据时可在 host 执行",
        )


add_notices(
    rule,
    Notice(
        CUDNN_LAYERS,
        "{last} needs cuDNN: use an LSTM or GRU cell with npu_dynamic_rnn or DynamicRNN",
        "{last} 依赖 cuDNN:请改用 LSTM/GRU cell 配合 npu_dynamic_rnn 或 DynamicRNN",
        risk="high",
    ),
    Notice(
        RECURRENT_CELLS,
        "a recurrent cell: npu_rnn.npu_dynamic_rnn, or DynamicRNN for an LSTM, may be faster",
        "循环单元:npu_rnn.npu_dynamic_rnn 或 DynamicRNN(LSTM)可能更快",
        status="advice",
    ),
    Notice(
        HOST_FUNCTIONS,
        "{last} runs on the host: in a model put it under npu_scope.without_npu_compile_scope()",
        "{last} 在 host 执行:若在模型内,请置于 npu_scope.without_npu_compile_scope() 中",
        status="advice",
    ),
)


@rule.call("tensorflow.summary.*")
def advise_summary(site: Site) -> None:
    """Advise on a summary in a function with the parameters features, labels and mode."""
    function = site.source.function_around(site.node)
    if function is not None and {"features", "labels", "mode"} <= {argument.arg for argument in function.args.args}:
        site.advise(
            "summaries in a model function need host_call of NPUEstimatorSpec, or save_summary_steps=0",
            zh="模型函数中的 summary 需通过 NPUEstimatorSpec 的 host_call,或设置 save_summary_steps=0",
        )


@rule.node(ast.Assert, only_if_file_contains=(".dtype",))
def advise_dtype_assertion(site: Site) -> None:
    test = site.node.test
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Attribute) and test.left.attr == "dtype":
        site.advise(
            f"{ast.unparse(test)} may fail if the input function yields float16: cast instead of asserting",
            zh=f"输入为 float16 时 {ast.unparse(test)} 可能不成立:建议改为类型转换",
        )
