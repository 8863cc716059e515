"""Calls of `.cuda()`: whose method it is, and where it is only looked up by name."""

from __future__ import annotations

import ast

from viaduct.migration.classes import OBJECT, is_module
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Site

UNBOUND = ("torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.modules.Module.cuda")


def names_the_module(site: Site) -> bool:
    """`getattr(torch, "cuda")`."""
    texts = [argument.value for argument in site.node.args[1:2] if isinstance(argument, ast.Constant)]
    called = isinstance(site.node.func, ast.Name) and site.node.func.id == "getattr"
    return called and "cuda" in texts and is_torch(site)


def names_the_method(site: Site) -> bool:
    """Return True for a lookup of the method by its name: `getattr(x, "cuda")`."""
    called = site.node.func.id if isinstance(site.node.func, ast.Name) else getattr(site.node.func, "attr", "")
    asked = site.node.args[:1] if called == "methodcaller" else site.node.args[1:2]  # not getattr's default
    named = [node.value for node in asked if isinstance(node, ast.Constant)] == ["cuda"]
    return called in ("getattr", "hasattr", "methodcaller") and named and not is_torch(site)


def is_torch(site: Site) -> bool:
    """Return True if the first argument is torch: `hasattr(torch, "cuda")` asks for the module."""
    return bool(site.node.args) and site.qualified(site.node.args[0]) == "torch"


def is_of_torch(site: Site) -> bool:
    """Return True in a file of a PyTorch program, and in one whose text has the word torch."""
    return is_in_torch_program(site) or "torch" in site.source.text


def is_torchs(site: Site, receiver: ast.expr) -> bool:
    """Return True for a tensor, a module, `self`, `super()`, or the storage in a map_location."""
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
    """Return True in a function called `cuda`, as a class defines it to move the tensors that it holds."""
    function = site.source.function(site.node)
    return function is not None and function.name == "cuda"
