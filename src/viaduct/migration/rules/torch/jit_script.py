"""Point out torch.jit.script.

Scripting of device code is limited on the NPU, and the vendor's run-time patch for the MLU switches it off. What is
scripted runs as plain Python otherwise, with the same results.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import cards

rule = Rule(__name__, spec="P21 6", kind="advice", targets=("npu", "mlu", "any"), last=True)

NAMES = ("torch.jit.script", "torch.jit.script_method")
LIMITS = {
    "npu": ("scripting of device code is limited on the NPU", "NPU 对设备代码的脚本化支持有限"),
    "mlu": ("the MLU's run-time patch switches scripting off", "MLU 的运行时补丁会关闭脚本化"),
}


@rule.call(*NAMES)
@rule.reference(*NAMES)
def report(site: Site) -> None:
    """Say what torch.jit.script does on the card."""
    reported = [LIMITS[target.name] for target in cards(site.options)]
    site.advice(
        f"{site.name}: {'; '.join(english for english, _ in reported)}; without it the results are the same",
        zh=f"{site.name}:{';'.join(chinese for _, chinese in reported)};不使用时结果相同",
    )
