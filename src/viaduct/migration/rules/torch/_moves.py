"""Receivers of `.cuda()`, and lookups of that method or of torch.cuda by name, as in `getattr(x, "cuda")`.

`site` is the call `getattr(…)`, `hasattr(…)` or `methodcaller(…)` in the lookups, the call `x.cuda()` elsewhere.
"""

from __future__ import annotations

import ast

from viaduct.migration.classes import OBJECT, is_module
from viaduct.migration.lookups import last_name, literal_text, plain_name
from viaduct.migration.rule import Site

UNBOUND_METHODS = ("torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.modules.Module.cuda")


def is_module_lookup(site: Site) -> bool:
    """Return True for `getattr(torch, "cuda")`."""
    is_cuda = [literal_text(node) for node in site.node.args[1:2]] == ["cuda"]
    return plain_name(site.node.func) == "getattr" and is_cuda and is_torch(site)


def is_method_lookup(site: Site) -> bool:
    """Return True for `getattr(x, "cuda")`, `hasattr(x, "cuda")` and `methodcaller("cuda")`, where x is not torch."""
    function = last_name(site.node.func)
    names = site.node.args[:1] if function == "methodcaller" else site.node.args[1:2]
    is_cuda = [literal_text(node) for node in names] == ["cuda"]
    return function in ("getattr", "hasattr", "methodcaller") and is_cuda and not is_torch(site)


def is_torch(site: Site) -> bool:
    """Return True if the first argument of the site's call is torch, as in `hasattr(torch, "cuda")`."""
    return bool(site.node.args) and site.qualified_name(site.node.args[0]) == "torch"


def is_torch_object(site: Site, receiver: ast.expr) -> bool:
    """Return True for a tensor, a module, `self`, `super()`, or the storage in a map_location."""
    kind = site.values.kind(receiver) or ""
    if kind.startswith(OBJECT):
        return is_module(site.file.project, kind.removeprefix(OBJECT))
    is_own = plain_name(receiver) == "self"
    is_super = isinstance(receiver, ast.Call) and plain_name(receiver.func) == "super"
    return kind in ("tensor", "module", "class_loss") or is_own or is_super or is_storage(site, receiver)


def is_storage(site: Site, receiver: ast.expr) -> bool:
    """Return True for `storage` in `torch.load(path, map_location=lambda storage, place: storage.cuda(0))`."""
    function = site.file.names.scope_of(receiver).node if isinstance(receiver, ast.Name) else None
    argument = site.source.parents.get(function) if isinstance(function, ast.Lambda) else None
    call = site.source.parents.get(argument) if isinstance(argument, ast.keyword) else argument
    return isinstance(call, ast.Call) and site.qualified_name(call.func) in ("torch.load", "torch.jit.load")
