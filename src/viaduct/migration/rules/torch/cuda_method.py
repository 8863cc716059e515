"""Move tensors and modules to the accelerator by its own method.

     import torch
     import torch_npu
     model = torch.nn.Linear(2, 2)
    -model = model.cuda()
    -x = torch.zeros(2).cuda(0, non_blocking=True)
    +model = model.npu()
    +x = torch.zeros(2).npu(0, non_blocking=True)

The plug-ins give every tensor, storage and module a method of the device's name, with the arguments of `.cuda`; numbers
of devices stay. A class of the project that has its own `cuda` keeps it, and so do the calls of it; where both could be
meant, it needs manual review. Attributes that are no calls (`args.cuda`) are nobody's business.
"""

from __future__ import annotations

import ast

from viaduct.migration.classes import OBJECT, is_module, owners
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._devices import is_foreign, receiver_class
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.rules.torch.device_string import imports_torch

rule = Rule(__name__, spec="P7 P18 6", kind="mandatory", targets=("npu", "mlu"), order=40)

UNBOUND = ("torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.modules.Module.cuda")


@rule.method("cuda")
def move(site: Site) -> None:
    receiver = site.node.func.value
    if not is_of_torch(site) or is_foreign(root_of(site, receiver)):
        return
    if receiver_class(site, receiver, "cuda") is not None:
        return
    possible = owners(site.work.project, "cuda", site.work.path)
    if possible and not (is_torchs(site, receiver) or within_own(site)):
        undecided(site, possible)
    else:
        rename(site, site.node.func)


@rule.call(*UNBOUND)
@rule.reference(*UNBOUND)
def move_unbound(site: Site) -> None:
    rename(site, site.node.func if isinstance(site.node, ast.Call) else site.node)


@rule.node(ast.Attribute, words=(".cuda",))
def move_later(site: Site) -> None:
    """`move = x.cuda`, which is called elsewhere."""
    if site.node.attr == "cuda" and is_bound_move(site):
        rename(site, site.node)


@rule.node(ast.Call, words=("getattr", "hasattr", "methodcaller"))
def asked_by_name(site: Site) -> None:
    if names_the_method(site):
        word = card(site.options).method
        site.manual(
            f"'cuda' is looked up by its name: if a tensor's or module's method is meant, write {word!r}",
            zh=f"此处按名称查找 'cuda':若指张量或模块的方法,请改为 {word!r}",
        )


@rule.node(ast.Call, words=("getattr",))
def module_by_name(site: Site) -> None:
    if names_the_module(site):
        word = card(site.options).device
        site.manual(
            f"torch.cuda is looked up by its name: write {word!r}, or look up torch.{word}",
            zh=f"此处按名称查找 torch.cuda:请改为 {word!r}",
        )


def is_bound_move(site: Site) -> bool:
    """Return True for the method of a tensor or module that is not called here: `move = x.cuda`."""
    node, parent = site.node, site.source.parents.get(site.node)
    if not isinstance(node.ctx, ast.Load) or isinstance(parent, ast.Attribute | ast.IfExp):
        return False
    if isinstance(parent, ast.Call) and parent.func is node:
        return False
    if site.qualified(node) is not None or receiver_class(site, node.value, "cuda") is not None:
        return False
    named_self = isinstance(node.value, ast.Name) and node.value.id == "self"  # as a rule a field: `self.cuda`
    return not named_self and is_torchs(site, node.value)


def names_the_module(site: Site) -> bool:
    """`getattr(torch, "cuda")`."""
    texts = [one.value for one in site.node.args[1:2] if isinstance(one, ast.Constant)]
    called = isinstance(site.node.func, ast.Name) and site.node.func.id == "getattr"
    return called and "cuda" in texts and is_torch(site)


def names_the_method(site: Site) -> bool:
    called = site.node.func.id if isinstance(site.node.func, ast.Name) else getattr(site.node.func, "attr", "")
    asked = site.node.args[:1] if called == "methodcaller" else site.node.args[1:2]  # not getattr's default
    named = [one.value for one in asked if isinstance(one, ast.Constant)] == ["cuda"]
    return called in ("getattr", "hasattr", "methodcaller") and named and not is_torch(site)


def is_torch(site: Site) -> bool:
    """`hasattr(torch, "cuda")` asks for the module, which is there without a GPU too."""
    return bool(site.node.args) and site.qualified(site.node.args[0]) == "torch"


def root_of(site: Site, node: ast.AST) -> str | None:
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return site.qualified(node)


def is_of_torch(site: Site) -> bool:
    """Return True in a file of a PyTorch program, and in one that at least speaks of torch."""
    return imports_torch(site) or "torch" in site.source.text


def is_torchs(site: Site, receiver: ast.expr) -> bool:
    """A tensor, a module of PyTorch, or one of the project that does not bring its own `cuda`."""
    kind = site.values.kind(receiver) or ""
    if kind.startswith(OBJECT):
        return is_module(site.work.project, kind.removeprefix(OBJECT))
    own = isinstance(receiver, ast.Name) and receiver.id == "self"
    parent = isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Name) and receiver.func.id == "super"
    return kind in ("tensor", "module", "class_loss") or own or parent or is_storage(site, receiver)


def is_storage(site: Site, receiver: ast.expr) -> bool:
    """`torch.load(path, map_location=lambda storage, place: storage.cuda(0))`."""
    function = site.work.names.scope_of(receiver).node if isinstance(receiver, ast.Name) else None
    holder = site.source.parents.get(function) if isinstance(function, ast.Lambda) else None
    call = site.source.parents.get(holder) if isinstance(holder, ast.keyword) else holder
    return isinstance(call, ast.Call) and site.qualified(call.func) in ("torch.load", "torch.jit.load")


def within_own(site: Site) -> bool:
    """In a class's own `cuda`, what is moved are the tensors that it holds."""
    function = site.source.function(site.node)
    return function is not None and function.name == "cuda"


def rename(site: Site, function: ast.expr) -> None:
    word = card(site.options).method
    if site.source.in_f_string(function):
        site.manual(
            f"`.cuda` within an f-string cannot be edited safely: write .{word}",
            zh=f"f-string 中的 .cuda 无法安全改写:请手工改为 .{word}",
        )
        return
    _, end = site.source.span(function)
    site.edit.replace(end - len("cuda"), end, word)
    site.changed(f".cuda() becomes .{word}()", zh=f".cuda() 改为 .{word}()")


def undecided(site: Site, possible: list[str]) -> None:
    word, owner = card(site.options).method, possible[0].rpartition(".")[2]
    site.manual(
        f"{owner} has a method `cuda` of its own, and this may be a call of it: if it is a tensor's or module's, "
        f"write .{word}()",
        zh=f"{owner} 定义了自己的 cuda 方法,此处可能是对它的调用;若是张量或模块的方法,请改为 .{word}()",
    )
