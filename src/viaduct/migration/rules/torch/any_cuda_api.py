"""Ask whatever card there is where the script asks torch.cuda.

     import torch
    -torch.cuda.set_device(0)
    +from accelerator_device import accelerator
    +accelerator.set_device(0)
    -start = torch.cuda.Event(enable_timing=True)
    +start = accelerator.Event(enable_timing=True)

The helper hands every name on: to torch.cuda, torch.npu or torch.mlu, and without a card to what lets a script go on.
Changed are the names that all three cards have; what is CUDA's alone stays as written and is named. A branch that asks
`is_available()` keeps its shape. A type that is only compared (`isinstance(x, torch.cuda.FloatTensor)`) becomes
`accelerator.types.FloatTensor`, which no tensor of the CPU has.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import guarded, put
from viaduct.migration.rules.torch._surface import BOTH, SUBMODULES
from viaduct.migration.rules.torch._type_uses import is_compared
from viaduct.migration.rules.torch.any_amp import OWN as AMP
from viaduct.migration.rules.torch.default_tensor_type import is_default_type

rule = Rule(__name__, spec="P2 P24", kind="mandatory", targets=("any",), order=20)
EXAMPLE_OPTIONS = {"to": "any"}

OTHERWISE = {"device": "device_index"}  # accelerator.device() is a device; torch.accelerator calls the block so too
SAID = {"get_device_capability", "DoubleTensor", "DoubleStorage"}  # rules of their own say what these do elsewhere
MODULES = ("memory", "random", "streams")


@rule.call("torch.cuda.*")
def called(site: Site) -> None:
    change(site, site.node.func)


@rule.reference("torch.cuda.*")
def mentioned(site: Site) -> None:
    change(site, site.node)


def change(site: Site, node: ast.expr) -> None:
    name = site.name.removeprefix("torch.cuda.")
    module, _, rest = name.partition(".")
    if module in MODULES and rest in SUBMODULES[module]:
        name = rest
    first = name.partition(".")[0]
    if is_default_type(site, node):
        return
    if first.endswith(("Tensor", "Storage")) and first in BOTH and is_compared(site, node):
        put(site, node, f"types.{name}")
    elif first in BOTH:
        put(site, node, OTHERWISE.get(first, first) + name[len(first) :])
    elif site.name not in AMP and name != "amp" and first not in SAID:
        leave(site, name)


def leave(site: Site, name: str) -> None:
    if name == "OutOfMemoryError":
        site.advice(
            "torch.OutOfMemoryError, since torch 2.5, is the error of every card; this one may stay",
            zh="自 torch 2.5 起各加速卡共用 torch.OutOfMemoryError;此处可以保留",
        )
        return
    said = f"torch.cuda.{name} is CUDA's alone, or not known of the others"
    asked = guarded_by_name(site)
    site.manual(
        f'{said}: let it stand under `if accelerator.name() == "cuda":`',
        zh=f'torch.cuda.{name} 仅 CUDA 可用,或不确定其他卡是否支持:请置于 if accelerator.name() == "cuda": 之下',
        risk="low" if asked else "medium" if guarded(site, site.node) else "high",
    )


def guarded_by_name(site: Site) -> bool:
    tests = [one.test for one in site.source.ancestors(site.node) if isinstance(one, ast.If | ast.IfExp)]
    return any('.name() == "cuda"' in ast.unparse(test).replace("'", '"') for test in tests)


@rule.reference("torch.cuda")
def handed_around(site: Site) -> None:
    """The module itself as a value; an alias of it is seen through, and needs no change."""
    parent = site.source.parents.get(site.node)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        return
    site.manual(
        "torch.cuda is handed on as a module: hand on the helper's accelerator, which has its names",
        zh="torch.cuda 作为模块被传递:请改为传递辅助模块的 accelerator,其名称相同",
    )
