"""Move tensors and modules to whatever card there is.

     import torch
    +from accelerator_device import accelerator
     images = torch.zeros(2)
    -images = images.cuda(gpu, non_blocking=True)
    +images = images.to(accelerator.device(gpu), non_blocking=True)

`.cuda()` and `.to("cuda")` are one thing; without a card the second leaves everything where it is. A class of the
project with a `cuda` of its own keeps its calls, and where the text does not show whose method it is, a person looks.
"""

from __future__ import annotations

import ast

from viaduct.migration.classes import owners
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import helper, number, scripted
from viaduct.migration.rules.torch._device_texts import head
from viaduct.migration.rules.torch._devices import is_foreign, receiver_class
from viaduct.migration.rules.torch.cuda_method import (
    UNBOUND,
    is_of_torch,
    is_torchs,
    names_the_method,
    names_the_module,
    root_of,
    within_own,
)

rule = Rule(__name__, spec="P7", kind="mandatory", targets=("any",), order=17)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.method("cuda")
def move(site: Site) -> None:
    receiver = site.node.func.value
    if not is_of_torch(site) or is_foreign(root_of(site, receiver)):
        return
    if receiver_class(site, receiver, "cuda") is not None:
        return
    own = owners(site.work.project, "cuda", site.work.path)
    doubtful = own and not (is_torchs(site, receiver) or within_own(site))
    if doubtful or not plain(site):
        ask(site)
    elif not scripted(site, site.node):
        rewrite(site)


@rule.call(*UNBOUND)
@rule.reference(*UNBOUND)
def unbound(site: Site) -> None:
    site.manual(
        f"{site.name} moves to CUDA: hand on `lambda it: it.to(accelerator.device())`, or call .to",
        zh=f"{site.name} 移动到 CUDA:请改为 lambda it: it.to(accelerator.device()),或调用 .to",
    )


@rule.node(ast.Call, words=("getattr", "hasattr", "methodcaller"))
def asked_by_name(site: Site) -> None:
    if names_the_method(site):
        site.manual(
            "'cuda' is looked up by name: if a tensor's or module's method is meant, call .to(accelerator.device())",
            zh="此处按名称查找 'cuda':若指张量或模块的方法,请改用 .to(accelerator.device())",
        )


@rule.node(ast.Call, words=("getattr",))
def module_by_name(site: Site) -> None:
    if names_the_module(site):
        site.manual(
            "torch.cuda is looked up by its name: take the helper's accelerator, which has its names",
            zh="此处按名称查找 torch.cuda:请改用辅助模块的 accelerator,其名称相同",
        )


def plain(site: Site) -> bool:
    """With arguments that `.to` has as well."""
    unknown = {word.arg for word in site.node.keywords} - {"device", "non_blocking"}
    return not unknown and not site.unpacked and len(site.node.args) <= 2 and site.editable


def rewrite(site: Site) -> None:
    end = site.source.span(site.node.func)[1]
    site.edit.replace(end - len("cuda"), end, "to")
    give_device(site)
    site.changed(".cuda() becomes .to() with whatever card there is", zh=".cuda() 替换为 .to(),设备为现有的加速卡")


def ask(site: Site) -> None:
    site.manual(
        "if this moves a tensor or a module, write .to(accelerator.device())",
        zh="若此处移动的是张量或模块,请改为 .to(accelerator.device())",
    )


def give_device(site: Site) -> None:
    call, name = site.node, helper(site)
    place = site.argument("device", 0)
    if len(call.args) > 1:  # of .to the second is a dtype
        site.edit.insert(site.source.span(call.args[1])[0], "non_blocking=")
    if place is None:
        opening = site.source.opening(call).end
        site.edit.insert(opening, f"{keyed(site)}{name}.device(){', ' if call.keywords else ''}")
    elif call.args:
        site.edit.node(place, f"{keyed(site)}{name}.device({given(site, place)})")
    else:
        site.edit.node(site.keyword("device") or place, f"device={name}.device({given(site, place)})")


def keyed(site: Site) -> str:
    """Of `map_location=lambda storage, _: storage.cuda(1)`: a storage takes the device by its name alone."""
    held = next((one for one in site.source.ancestors(site.node) if isinstance(one, ast.Lambda)), None)
    around = site.source.parents.get(held) if held is not None else None
    mapped = isinstance(around, ast.keyword) and around.arg == "map_location"
    loads = isinstance(around, ast.Call) and site.qualified(around.func) in ("torch.load", "torch.jit.load")
    return "device=" if mapped or loads else ""


def given(site: Site, place: ast.expr) -> str:
    """`.cuda(None)` and `.cuda("cuda:1")` say what the helper is told by nothing and by 1."""
    if isinstance(place, ast.Constant) and place.value is None:
        return ""
    told = number(site, place) if head(place) is not None else None
    return site.text(place) if told is None else told
