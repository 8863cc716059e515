"""Report device properties that the card lacks, or that mean something else on it.

Every card's properties have `name` and `total_memory`. The NPU's have no `major` and `minor`; on the MLU these are the
MLU's generation. Properties such as the number of multiprocessors describe a GPU's hardware.
"""

from __future__ import annotations

import ast

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.lookups import bindings_of
from viaduct.migration.rule import Site, make_rule_on_migrated_code

rule = make_rule_on_migrated_code(__name__, target_needs="device_calls", spec_rows=("P4", "6"))

GETTERS = {f"torch.{module}.get_device_properties" for module in DEVICE_TYPES}
GENERATION_NUMBERS = {"major", "minor"}
GENERATION_MEANINGS = {  # target -> meaning, in English and Chinese
    "npu": ("the NPU's properties have none", "NPU 的设备属性中没有"),
    "mlu": ("the MLU's counts MLU generations", "MLU 的该值表示 MLU 代次"),
}
GPU_PROPERTIES = {
    "multi_processor_count", "max_threads_per_multi_processor", "warp_size", "regs_per_multiprocessor",
    "is_integrated", "is_multi_gpu_board", "gcnArchName", "shared_memory_per_block",
    "shared_memory_per_multiprocessor",
}  # fmt: skip


@rule.node(ast.Attribute, only_if_file_contains=("get_device_properties",))
def report_property(site: Site) -> None:
    """Report an attribute of device properties that the card lacks or means differently."""
    if site.node.attr not in GENERATION_NUMBERS | GPU_PROPERTIES or not is_properties(site, site.node.value):
        return
    if site.node.attr in GENERATION_NUMBERS:
        meanings = [GENERATION_MEANINGS[card.name] for card in site.cards]
        english, chinese = ("; ".join(texts) for texts in zip(*meanings, strict=True))
    else:
        english = "it describes a GPU's hardware; older plug-ins lack it, in newer ones it means something else"
        chinese = "它描述 GPU 的硬件;旧版插件没有该属性,新版含义不同"
    site.request_review(f"{site.node.attr}: {english}", zh=f"{site.node.attr}:{chinese}", risk="high")


def is_properties(site: Site, value: ast.expr) -> bool:
    """Return True for a call of get_device_properties, and for a variable or attribute that holds its result."""
    if isinstance(value, ast.Call):
        return site.qualified_name(value.func) in GETTERS
    if isinstance(value, ast.Name):
        bindings = bindings_of(site, value)
        return bool(bindings) and all(isinstance(item, ast.Call) and is_properties(site, item) for item in bindings)
    text = ast.unparse(value)
    return isinstance(value, ast.Attribute) and any(
        isinstance(statement.value, ast.Call) and is_properties(site, statement.value)
        for statement in site.source.nodes_of_type(ast.Assign)
        if any(ast.unparse(target) == text for target in statement.targets)
    )
