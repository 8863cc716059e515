"""Report TensorFlow's debugger where a script still has it.

`tf_debug.LocalCLIDebugHook()` and `LocalCLIDebugWrapperSession` stop before each step and wait for a command, so that a
job in the background never trains. They are put in to write reference tensors where TensorFlow itself computes; graphs
that are compiled for the accelerator have no tensors for them. `--dump DIR` writes those of the device.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="8", kind="report", targets=("npu", "mlu"), last=True)

HOMES = (
    *("tensorflow.python.debug", "tensorflow.python.debug.wrappers.hooks"),
    *(f"tensorflow.python.debug.wrappers.{name}" for name in ("local_cli_wrapper", "dumping_wrapper", "grpc_wrapper")),
)
INTERACTIVE = ("LocalCLIDebugHook", "LocalCLIDebugWrapperSession")
WRITING = (
    *("DumpingDebugHook", "DumpingDebugWrapperSession", "GrpcDebugHook", "GrpcDebugWrapperSession"),
    *("TensorBoardDebugHook", "TensorBoardDebugWrapperSession"),
)


@rule.call(*(f"{home}.{name}" for home in HOMES for name in INTERACTIVE))
def report_interactive(site: Site) -> None:
    name = site.name.rpartition(".")[2]
    site.manual(
        f"{name} waits for a command before every step, and sees no tensors of the accelerator: remove it; "
        "`--dump DIR` writes the device's",
        zh=f"{name} 每步都会等待命令行输入,且看不到昇腾/寒武纪设备上的张量:请删除;可用 --dump DIR 导出设备上的张量",
        risk="high",
    )


@rule.call(*(f"{home}.{name}" for home in HOMES for name in WRITING))
def report_writing(site: Site) -> None:
    name = site.name.rpartition(".")[2]
    site.manual(
        f"{name} watches graphs that TensorFlow itself runs, and sees no tensors of the accelerator: remove it; "
        "`--dump DIR` writes the device's",
        zh=f"{name} 只能观察由 TensorFlow 自身执行的图,看不到设备上的张量:请删除;可用 --dump DIR 导出设备上的张量",
    )
