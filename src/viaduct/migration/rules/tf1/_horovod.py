"""What in a file is Horovod for TensorFlow. Not a rule: the Horovod rules share it."""

from __future__ import annotations

import ast

from viaduct.migration.rule import Site

KERAS = ("horovod.keras", "horovod.tensorflow.keras")
ROOTS = ("horovod.tensorflow", *KERAS)


def names(*functions: str) -> tuple[str, ...]:
    """Of a function of Horovod, all spellings."""
    return tuple(f"{root}.{function}" for root in ROOTS for function in functions)


def short(site: Site) -> str:
    """`callbacks.MetricAverageCallback` of the qualified name."""
    root = next(root for root in sorted(ROOTS, key=len, reverse=True) if site.name.startswith(f"{root}."))
    return site.name.removeprefix(f"{root}.")


def is_horovod(name: str | None) -> bool:
    return name is not None and any(name == root or name.startswith(f"{root}.") for root in ROOTS)


def mentions(site: Site, node: ast.AST, *functions: str) -> bool:
    """Whether an expression calls one of these functions of Horovod."""
    wanted = names(*functions)
    return any(isinstance(one, ast.Call) and site.qualified(one.func) in wanted for one in ast.walk(node))


def whole(site: Site, text: str) -> bool:
    """Put a text in the place of the whole call; not where that would swallow a comment."""
    if not site.editable or site.edit.has_comment(*site.source.span(site.node)):
        return False
    site.edit.node(site.node, text)
    return True


def by_hand(site: Site, instead: str, zh: str) -> None:
    what = f"hvd.{short(site)}"
    site.manual(f"{what}: by hand; {instead}", zh=f"{what}:请手工修改;{zh}", risk="high")
