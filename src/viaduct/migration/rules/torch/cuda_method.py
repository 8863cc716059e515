"""Replace `.cuda()` of tensors and modules by the card's method.

     import torch
     import torch_npu
     model = torch.nn.Linear(2, 2)
    -model = model.cuda()
    -x = torch.zeros(2).cuda(0, non_blocking=True)
    +model = model.npu()
    +x = torch.zeros(2).npu(0, non_blocking=True)

torch_npu and torch_mlu give every tensor, storage and module a method named after the device, with the arguments of
`.cuda`; device numbers stay. If a class of the project defines a method `cuda`, its calls stay, and calls that may be
of this method need manual review. Attributes that are not called stay (`args.cuda`), except a tensor's or module's
bound method (`move = x.cuda`).

With `--to any` the call becomes `.to`, which moves nothing on a machine without a card:

     import torch
    +from accelerator_device import accelerator
     images = torch.zeros(2)
    -images = images.cuda(gpu, non_blocking=True)
    +images = images.to(accelerator.device(gpu), non_blocking=True)
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Bilingual
from viaduct.migration.classes import find_classes_defining
from viaduct.migration.device_texts import device_literal, device_number_text
from viaduct.migration.lookups import last_name, literal_text
from viaduct.migration.predicates import is_in_torch_program, is_none
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._devices import (
    get_qualified_root,
    is_bound_cuda_method,
    is_method_of_project,
    is_of_other_library,
    is_storage,
    is_torch_object,
)
from viaduct.migration.rules.torch._helper import report_if_in_torchscript
from viaduct.migration.targets import import_helper

rule = Rule(
    __name__,
    target_needs="moves",
    spec_rows=("P7", "P18", "6"),
    targets=ALL_TARGETS,
    former_names=("any_cuda_method",),
)
# A message for one card, and one for `--to any`:
METHOD_BY_NAME: tuple[Bilingual, Bilingual] = (
    (
        "'cuda' is looked up by its name: if a tensor's or module's method is meant, write '{card.device}'",
        "此处按名称查找 'cuda':若指张量或模块的方法,请改为 '{card.device}'",
    ),
    (
        "'cuda' is looked up by name: if a tensor's or module's method is meant, call .to(accelerator.device())",
        "此处按名称查找 'cuda':若指张量或模块的方法,请改用 .to(accelerator.device())",
    ),
)
MODULE_BY_NAME: tuple[Bilingual, Bilingual] = (
    (
        "torch.cuda is looked up by its name: write '{card.device}', or look up torch.{card.device}",
        "此处按名称查找 torch.cuda:请改为 '{card.device}',或查找 torch.{card.device}",
    ),
    (
        "torch.cuda is looked up by its name: use the helper's accelerator, which has the same functions",
        "此处按名称查找 torch.cuda:请改用辅助模块的 accelerator,其名称相同",
    ),
)
UNBOUND_METHODS = ("torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.modules.Module.cuda")


@rule.method("cuda")
def replace_move(site: Site) -> None:
    """Replace `.cuda()`, unless a class of the project defines the method; report a call that may be of that method.

    With `--to any` also report a call with arguments that `.to` does not accept.
    """
    receiver = site.node.func.value
    is_torch_file = is_in_torch_program(site) or "torch" in site.source.text
    if (
        not is_torch_file
        or is_of_other_library(get_qualified_root(site, receiver))
        or is_method_of_project(site, receiver, "cuda")
    ):
        return
    own_classes = find_classes_defining(site.file.project, "cuda", site.file.path)
    function = site.source.function_around(site.node)
    is_in_cuda_method = function is not None and function.name == "cuda"  # which moves the tensors of its object
    is_doubtful = bool(own_classes) and not (is_torch_object(site, receiver) or is_in_cuda_method)
    if site.target.is_any_card:
        if is_doubtful or not has_arguments_of_to(site):
            site.request_review(
                "if this moves a tensor or a module, write .to(accelerator.device())",
                zh="若此处移动的是张量或模块,请改为 .to(accelerator.device())",
            )
        elif not report_if_in_torchscript(site, site.node):
            replace_by_to(site)
    elif is_doubtful:
        report_undecided(site, own_classes[0])
    else:
        rename_method(site, site.node.func)


@rule.use(*UNBOUND_METHODS)
def replace_unbound_method(site: Site) -> None:
    """Replace `torch.Tensor.cuda` and the like; report them with `--to any`."""
    if site.target.is_any_card:
        site.request_review(
            f"{site.name} moves to CUDA: pass `lambda x: x.to(accelerator.device())`, or call .to",
            zh=f"{site.name} 移动到 CUDA:请改为 lambda x: x.to(accelerator.device()),或调用 .to",
        )
        return
    if isinstance(site.name_node, ast.Attribute):  # else a variable that holds the method
        rename_method(site, site.name_node)


@rule.node(ast.Attribute, only_if_file_contains=(".cuda",))
def rename_bound_method(site: Site) -> None:
    """For one card rename a bound method: `move = x.cuda`."""
    if site.node.attr == "cuda" and not site.target.is_any_card and is_bound_cuda_method(site):
        rename_method(site, site.node)


@rule.node(ast.Call, only_if_file_contains=("getattr", "hasattr", "methodcaller", "attrgetter"))
def report_lookup(site: Site) -> None:
    """Report `getattr(x, "cuda")`, `methodcaller("cuda")` and the like; `hasattr(torch, "cuda")` is right as it is."""
    function, arguments = last_name(site.node.func), site.node.args
    if function in ("methodcaller", "attrgetter"):
        if any("cuda" in literal_text(node).split(".") for node in arguments):
            site.request_review(*site.target.select_message(*METHOD_BY_NAME))
    elif function in ("getattr", "hasattr") and [literal_text(node) for node in arguments[1:2]] == ["cuda"]:
        is_of_torch = site.qualified_name(arguments[0]) == "torch"
        if not is_of_torch:
            site.request_review(*site.target.select_message(*METHOD_BY_NAME))
        elif function == "getattr":
            site.request_review(*site.target.select_message(*MODULE_BY_NAME))


def rename_method(site: Site, function: ast.Attribute) -> None:
    """Replace `.cuda` by the card's method."""
    method = site.target.card.device
    if site.source.is_in_f_string(function):
        site.request_review(
            f"`.cuda` within an f-string cannot be edited safely: write .{method}",
            zh=f"f-string 中的 .cuda 无法安全改写:请手工改为 .{method}",
        )
        return
    site.edit.replace_attribute(function, method)
    site.report_change(f".cuda() becomes .{method}()", zh=f".cuda() 改为 .{method}()")


def report_undecided(site: Site, own_class: str) -> None:
    """Report a call that may be a method of the project's class `own_class`, a qualified name."""
    method, owner = site.target.card.device, own_class.rpartition(".")[2]
    site.request_review(
        f"{owner} has its own method `cuda`, and this may be a call of it: if it is a tensor's or module's, "
        f"write .{method}()",
        zh=f"{owner} 定义了自己的 cuda 方法,此处可能是对它的调用;若是张量或模块的方法,请改为 .{method}()",
    )


def has_arguments_of_to(site: Site) -> bool:
    """Return True if `.to` accepts the arguments too, and the call can be edited."""
    unknown = {keyword.arg for keyword in site.node.keywords} - {"device", "non_blocking"}
    return not unknown and not site.has_unpacked_arguments and len(site.node.args) <= 2 and site.is_editable


def replace_by_to(site: Site) -> None:
    site.edit.replace_attribute(site.node.func, "to")
    insert_device(site)
    site.report_change(".cuda() becomes .to() with the available card", zh=".cuda() 替换为 .to(),设备为现有的加速卡")


def insert_device(site: Site) -> None:
    """Write `accelerator.device(…)` as the first argument of `.to`."""
    call, helper = site.node, import_helper(site)
    device = site.argument("device", 0)
    keyword = "device=" if is_storage(site, call.func.value) else ""  # storages require the keyword
    if len(call.args) > 1:  # the second argument of .to is a dtype
        site.edit.insert(site.source.span(call.args[1])[0], "non_blocking=")
    if device is None:
        opening = site.source.opening_parenthesis(call).end
        site.edit.insert(opening, f"{keyword}{helper}.device(){', ' if call.keywords else ''}")
    elif call.args:
        site.edit.replace_node(device, f"{keyword}{helper}.device({render_number(site, device)})")
    else:
        keyword_node = site.keyword("device") or device
        site.edit.replace_node(keyword_node, f"device={helper}.device({render_number(site, device)})")


def render_number(site: Site, device: ast.expr) -> str:
    """Return the argument of accelerator.device: "" for `.cuda(None)`, "1" for `.cuda("cuda:1")`, else the value."""
    if is_none(device):
        return ""
    index = device_number_text(site.source, device) if device_literal(device) is not None else None
    return site.text_of(device) if index is None else index
