"""Names of TensorFlow 1 whose every use is reported in the same words: one row a rule (`migration/notices.py`)."""

from viaduct.migration.notices import Notice, report_rule
from viaduct.migration.rules.tf1 import _optimizers as optimizers

DEBUG_MODULES = (
    *("tensorflow.python.debug", "tensorflow.python.debug.wrappers.hooks"),
    *(f"tensorflow.python.debug.wrappers.{name}" for name in ("local_cli_wrapper", "dumping_wrapper", "grpc_wrapper")),
)
INTERACTIVE_DEBUGGERS = ("LocalCLIDebugHook", "LocalCLIDebugWrapperSession")
TENSOR_WRITERS = (
    *("DumpingDebugHook", "DumpingDebugWrapperSession", "GrpcDebugHook", "GrpcDebugWrapperSession"),
    *("TensorBoardDebugHook", "TensorBoardDebugWrapperSession"),
)
STRATEGY_HOMES = ("distribute", "distribute.experimental", "contrib.distribute")

rules = (
    report_rule(
        __name__,
        "debug_hooks",
        """Report TensorFlow's debugger where a script still has it.

        `tf_debug.LocalCLIDebugHook()` and `LocalCLIDebugWrapperSession` stop before each step and wait for a command,
        so that a job in the background never trains. They are put in to write reference tensors where TensorFlow itself
        computes; graphs that are compiled for the accelerator have no tensors for them. `--dump DIR` writes those of
        the device.
        """,
        Notice(
            tuple(f"{module}.{name}" for module in DEBUG_MODULES for name in INTERACTIVE_DEBUGGERS),
            "{last} waits for a command before every step, and sees no tensors of the accelerator: remove it; "
            "`--dump DIR` writes the device's",
            "{last} 每步都会等待命令行输入,且看不到昇腾/寒武纪设备上的张量:请删除;可用 --dump DIR 导出设备上的张量",
            risk="high",
        ),
        Notice(
            tuple(f"{module}.{name}" for module in DEBUG_MODULES for name in TENSOR_WRITERS),
            "{last} watches graphs that TensorFlow itself runs, and sees no tensors of the accelerator: remove it; "
            "`--dump DIR` writes the device's",
            "{last} 只能观察由 TensorFlow 自身执行的图,看不到设备上的张量:请删除;可用 --dump DIR 导出设备上的张量",
        ),
        category="report",
        targets=("npu", "mlu"),
    ),
    report_rule(
        __name__,
        "distribute_servers",
        """Report what needs parameter servers or TPUs.

        ParameterServerStrategy, SyncReplicasOptimizer, cluster specifications and TPUStrategy have no counterpart that
        could be written in their place: the accelerator's ranks exchange gradients among themselves.
        """,
        Notice(
            tuple(f"tensorflow.{module}.ParameterServerStrategy" for module in STRATEGY_HOMES),
            "parameter servers: NPURunConfig takes this strategy as distribute= with mix_compile_mode=True; ranks with "
            "NPUDistributedOptimizer are the usual way",
            "参数服务器:NPURunConfig 可通过 distribute= 配合 mix_compile_mode=True 使用;"
            "通常改用 NPUDistributedOptimizer",
            risk="high",
        ),
        Notice(
            tuple(f"tensorflow.{module}.TPUStrategy" for module in STRATEGY_HOMES),
            "TPUStrategy: there is no TPU; remove it and use --distributed",
            "TPUStrategy:没有 TPU;请去掉,并使用 --distributed",
            risk="high",
        ),
        Notice(
            ("tensorflow.train.SyncReplicasOptimizer",),
            "SyncReplicasOptimizer gathers gradients on parameter servers: use the inner optimizer in "
            "NPUDistributedOptimizer, and no hook of its own",
            "SyncReplicasOptimizer 依赖参数服务器:请用 NPUDistributedOptimizer 包装内层优化器,并去掉其 hook",
            risk="high",
        ),
        Notice(
            ("tensorflow.train.ClusterSpec", "tensorflow.train.Server", "tensorflow.distribute.Server"),
            "a cluster of TensorFlow servers: ranks are started by the start script with a rank table instead",
            "TensorFlow 集群:请改由启动脚本配合 rank table 启动各 rank",
        ),
        category="report",
    ),
    report_rule(
        __name__,
        "distribute_sum_left",
        """Report optimizers that average although a sum was asked for.

        With `--reduction sum` gradients are added up where a script computes them in sight. NPUDistributedOptimizer and
        its like know averages only: an optimizer that had to be wrapped in one, or was before, averages.
        """,
        Notice(
            optimizers.WRAPPERS,
            "{last} averages gradients, and --reduction sum was asked for: multiply the learning rate by the number of "
            'ranks, or exchange them yourself with hccl_ops.allreduce(grad, "sum")',
            '{last} 对梯度取平均,而命令行要求求和:请将学习率乘以 rank 数,或自行使用 hccl_ops.allreduce(grad, "sum")',
            risk="high",
        ),
        category="report",
        when=lambda options: options.distributed and options.reduction == "sum",
        after=("keras_distributed_optimizer",),
    ),
)
