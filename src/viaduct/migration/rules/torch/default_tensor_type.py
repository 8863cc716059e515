"""Report a default tensor type that is a CUDA type.

`torch.set_default_tensor_type` does not accept the NPU's types, according to Ascend's table, and Cambricon's documents
do not mention the MLU's, so the line stays. `torch.set_default_dtype` and `torch.set_default_device` replace it. The
latter also affects tensors that a data loader creates, so this needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards.advice import DEFAULT_TENSOR_TYPE
from viaduct.migration.lookups import literal_text
from viaduct.migration.rule import ALL_MODES, ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._type_uses import SET_DEFAULT_TYPE

rule = Rule(
    __name__,
    target_needs="device_strings",
    spec_rows=("P2", "5", "6"),
    category="report",
    targets=ALL_TARGETS,
    modes=ALL_MODES,
)

CARD_MODULES = ("torch.cuda.", "torch.npu.", "torch.mlu.")
DTYPES = {"Half": "float16", "BFloat16": "bfloat16", "Double": "float64"}


@rule.call(SET_DEFAULT_TYPE)
def report_default_type(site: Site) -> None:
    names = [name for name in get_type_names(site, site.argument("t", 0)) if name.startswith(CARD_MODULES)]
    if not names:
        return
    dtype = DTYPES.get(names[0].rpartition(".")[2].removesuffix("Tensor"), "float32")
    for card in site.cards:
        calls = f'torch.set_default_dtype(torch.{dtype}) and torch.set_default_device("{card.device}")'
        site.request_review(
            f"{DEFAULT_TENSOR_TYPE[card.name][0]}: write {calls}, and check the tensors of the data loader",
            zh=f"{DEFAULT_TENSOR_TYPE[card.name][1]}:请改用 {calls.replace(' and ', ' 与 ')},并检查数据加载部分",
            risk="high",
        )


def get_type_names(site: Site, argument: ast.expr | None) -> list[str]:
    """Return the names of all types that an argument can be."""
    value = site.values.assigned_value(argument) if argument is not None else None
    if isinstance(value, ast.IfExp):
        return get_type_names(site, value.body) + get_type_names(site, value.orelse)
    return [literal_text(value) or site.qualified_name(value) or ""] if value is not None else []
