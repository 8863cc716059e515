"""Rules that report uses of a name of TensorFlow 1 with a fixed message."""

from viaduct.migration.lookups import is_called_in_project
from viaduct.migration.notices import Notice, make_notice_rule
from viaduct.migration.rule import ALL_CARDS
from viaduct.migration.rules.tf1 import _optimizers as optimizers
from viaduct.migration.rules.tf1._communication import START_CALLS, STOP_CALLS

DEBUG_MODULES = tuple(
    f"tensorflow.python.debug{module}"
    for module in (
        "",
        ".wrappers.hooks",
        ".wrappers.local_cli_wrapper",
        ".wrappers.dumping_wrapper",
        ".wrappers.grpc_wrapper",
    )
)
INTERACTIVE_DEBUGGERS = ("LocalCLIDebugHook", "LocalCLIDebugWrapperSession")
TENSOR_WRITERS = tuple(
    f"{name}{kind}" for name in ("DumpingDebug", "GrpcDebug", "TensorBoardDebug") for kind in ("Hook", "WrapperSession")
)
STRATEGY_MODULES = ("distribute", "distribute.experimental", "contrib.distribute")

rules = (
    make_notice_rule(
        __name__,
        "debug_hooks",
        """Report TensorFlow's debugger.

        `tf_debug.LocalCLIDebugHook()` and `LocalCLIDebugWrapperSession` stop before each step and wait for a command,
        so that a job in the background never trains. The debugger sees no tensors of graphs that are compiled for the
        accelerator. `--dump DIR` writes the device's tensors.
        """,
        Notice(
            tuple(f"{module}.{name}" for module in DEBUG_MODULES for name in INTERACTIVE_DEBUGGERS),
            "{last} waits for a command before every step, and sees no tensors of the accelerator: remove it; "
            "`--dump DIR` writes these tensors",
            "{last} 每步都会等待命令行输入,且看不到昇腾/寒武纪设备上的张量:请删除;可用 --dump DIR 导出设备上的张量",
            risk="high",
        ),
        Notice(
            tuple(f"{module}.{name}" for module in DEBUG_MODULES for name in TENSOR_WRITERS),
            "{last} watches graphs that TensorFlow itself runs, and sees no tensors of the accelerator: remove it; "
            "`--dump DIR` writes these tensors",
            "{last} 只能观察由 TensorFlow 自身执行的图,看不到设备上的张量:请删除;可用 --dump DIR 导出设备上的张量",
        ),
        category="report",
        targets=ALL_CARDS,
        target_needs="tensorflow_functions",
        spec_rows=("8",),
    ),
    make_notice_rule(
        __name__,
        "distribute_servers",
        """Report code for parameter servers and TPUs.

        The accelerator's ranks exchange gradients among themselves, without parameter servers and clusters of
        TensorFlow servers. NPURunConfig takes a ParameterServerStrategy in one mode only, and no TPUStrategy.
        """,
        Notice(
            tuple(f"tensorflow.{module}.ParameterServerStrategy" for module in STRATEGY_MODULES),
            "parameter servers: NPURunConfig takes this strategy as distribute= with mix_compile_mode=True; ranks with "
            "NPUDistributedOptimizer are the usual way",
            "参数服务器:NPURunConfig 可通过 distribute= 配合 mix_compile_mode=True 使用;"
            "通常改用 NPUDistributedOptimizer",
            risk="high",
        ),
        Notice(
            tuple(f"tensorflow.{module}.TPUStrategy" for module in STRATEGY_MODULES),
            "TPUStrategy: there is no TPU; remove it and use --distributed",
            "TPUStrategy:没有 TPU;请去掉,并使用 --distributed",
            risk="high",
        ),
        Notice(
            ("tensorflow.train.SyncReplicasOptimizer",),
            "SyncReplicasOptimizer gathers gradients on parameter servers: wrap its inner optimizer in "
            "NPUDistributedOptimizer instead, and remove its hook",
            "SyncReplicasOptimizer 依赖参数服务器:请用 NPUDistributedOptimizer 包装内层优化器,并去掉其 hook",
            risk="high",
        ),
        Notice(
            ("tensorflow.train.ClusterSpec", "tensorflow.train.Server", "tensorflow.distribute.Server"),
            "a cluster of TensorFlow servers: remove it; the start script starts the ranks with a rank table",
            "TensorFlow 集群:请改由启动脚本配合 rank table 启动各 rank",
        ),
        category="report",
        target_needs="communication",
        spec_rows=("V1",),
    ),
    make_notice_rule(
        __name__,
        "distribute_sum_left",
        """Report optimizers that average although `--reduction sum` was given.

        NPUDistributedOptimizer and similar wrappers can only average.
        """,
        Notice(
            optimizers.WRAPPERS,
            "{last} averages gradients despite --reduction sum: multiply the learning rate by the number of ranks, or "
            'sum them yourself with hccl_ops.allreduce(grad, "sum")',
            '{last} 对梯度取平均,而命令行要求求和:请将学习率乘以 rank 数,或自行使用 hccl_ops.allreduce(grad, "sum")',
            risk="high",
        ),
        category="report",
        when=lambda options: options.distributed and options.reduction == "sum",
        target_needs="optimizers",
        spec_rows=("V2",),
    ),
    make_notice_rule(
        __name__,
        "lifecycle_shutdown",
        """Advise on communication that is started but never shut down.

        npu_bridge, Ascend's package for TensorFlow, shuts it down when the interpreter ends; a run of
        `npu_ops.shutdown_system()` at the end of main releases the devices earlier.
        """,
        Notice(
            START_CALLS,
            "communication is started here and never shut down by the script; it ends when the interpreter exits",
            "此处初始化集合通信但未见 shutdown;资源将在解释器退出时清理",
            status="advice",
            condition=lambda site: not is_called_in_project(site, STOP_CALLS),
        ),
        category="advice",
        spec_rows=("C6",),
    ),
)
