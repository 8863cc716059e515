"""Options of a command line that a file declares: argparse, click and absl."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.predicates import is_literal
from viaduct.migration.rule import Site

FLAGS = {"absl.flags.DEFINE_string": 2, "absl.flags.DEFINE_list": 2, "absl.flags.DEFINE_enum": 3}
"""Number of positional arguments before the help text: the name, the default and possible values."""

CLICK = ("click.option", "click.argument", "rich_click.option")

VALUES = ("default", "const", "choices", "type", "nargs", "flag_value", "enum_values")


def calls(site: Site) -> Iterator[ast.Call]:
    """Yield every call of the file."""
    for node in site.source.of_kind(ast.Call):
        if isinstance(node, ast.Call):
            yield node


def option_names(site: Site, call: ast.Call) -> list[str]:
    """Return the names of a declared option as the parser has them (`train_device`); none if the call declares none."""
    qualified = site.qualified(call.func) or ""
    declares = isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    if not (declares or qualified in CLICK or qualified in FLAGS):
        return []
    given = call.args[:1] if qualified in FLAGS else call.args
    written = [node.value for node in given if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    written += [
        str(keyword.value.value) for keyword in call.keywords if keyword.arg == "dest" and is_literal(keyword.value)
    ]
    return [text.split("/")[0].strip().lstrip("-").replace("-", "_") for text in written]


def is_default_of_option(site: Site, literal: ast.expr) -> bool:
    """Return True for a literal anywhere within an add_argument: `device_argparse` deals with it."""
    return any(
        isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "add_argument"
        for parent in site.source.ancestors(literal)
    )
