"""Report a default tensor type of CUDA's.

`torch.set_default_tensor_type` does not take the NPU's types (its vendor's table says so), and nothing promises the
MLU's, so the line stays as it is. What it was for takes two calls today: `torch.set_default_dtype` and
`torch.set_default_device`. The second also concerns tensors that a data loader makes, so it needs manual review.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.cards.advice import DEFAULT_TENSOR_TYPE
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._type_uses import TAKER
from viaduct.migration.targets import cards

rule = Rule(__name__, spec="P2 5 6", kind="report", targets=("npu", "mlu", "any"), patch=True)

ROOTS = ("torch.cuda.", "torch.npu.", "torch.mlu.")
DTYPES = {"Half": "float16", "BFloat16": "bfloat16", "Double": "float64"}


@rule.call(TAKER)
def report(site: Site) -> None:
    """Report a default tensor type of CUDA's with what replaces it."""
    given = site.argument("t", 0)
    texts = [text for text in types(site, given) if text.startswith(ROOTS)]
    for target in cards(site.options) if texts else ():
        dtype = DTYPES.get(texts[0].rpartition(".")[2].removesuffix("Tensor"), "float32")
        recipe = f'torch.set_default_dtype(torch.{dtype}) and torch.set_default_device("{target.device}")'
        site.manual(
            f"{DEFAULT_TENSOR_TYPE[target.name][0]}: write {recipe}, and check what the data loader makes",
            zh=f"{DEFAULT_TENSOR_TYPE[target.name][1]}:请改用 {recipe.replace(' and ', ' 与 ')},并检查数据加载部分",
            risk="high",
        )


def types(site: Site, given: ast.AST | None) -> Iterator[str]:
    """The names of all types that an argument can be."""
    if given is None:
        return
    made = site.values.origin(given)
    if isinstance(made, ast.IfExp):
        yield from types(site, made.body)
        yield from types(site, made.orelse)
    elif isinstance(made, ast.Constant) and isinstance(made.value, str):
        yield made.value
    else:
        yield site.qualified(made) or ""
