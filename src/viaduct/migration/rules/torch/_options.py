"""Options of a command line that a file declares with argparse, click, typer, absl or TensorFlow."""

from __future__ import annotations

import ast

from viaduct.migration.lookups import keyword_value, literal_text
from viaduct.migration.rule import Site

# Function of absl, or its copy in TensorFlow -> number of positional arguments before the help text: name, default,
# possible values.
ABSL_FLAGS = {
    f"{root}.{name}": count
    for root in ("absl.flags", "tensorflow.flags", "tensorflow.app.flags")
    for name, count in (("DEFINE_string", 2), ("DEFINE_list", 2), ("DEFINE_enum", 3))
}
CLICK_DECLARATIONS = ("click.option", "click.argument", "rich_click.option")
TYPER_DECLARATIONS = ("typer.Option", "typer.Argument")  # their first argument is the default
DECLARATIONS = (*ABSL_FLAGS, *CLICK_DECLARATIONS, *TYPER_DECLARATIONS)
VALUE_KEYWORDS = ("default", "const", "choices", "type", "nargs", "flag_value", "enum_values")
"""Keyword arguments of a declaration that may hold a value of the option."""


def get_option_names(site: Site, call: ast.Call) -> list[str]:
    """Return the names of the option that a call declares, as the parser stores it: `train_device`."""
    qualified = site.qualified_name(call.func) or ""
    is_add_argument = isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    if not (is_add_argument or qualified in CLICK_DECLARATIONS or qualified in ABSL_FLAGS):
        return []
    names = [literal_text(node) for node in (call.args[:1] if qualified in ABSL_FLAGS else call.args)]
    dest = keyword_value(call, "dest")
    names += [str(dest.value)] if isinstance(dest, ast.Constant) else []
    return [name.split("/")[0].strip().lstrip("-").replace("-", "_") for name in names if name]


def get_option_values(site: Site, call: ast.Call) -> list[ast.expr]:
    """Return the arguments of a declaration that may hold a value of the option, without its help text."""
    name = site.qualified_name(call.func) or ""
    by_position = call.args[:1] if name in TYPER_DECLARATIONS else call.args[1 : ABSL_FLAGS.get(name, 0)]
    return [keyword.value for keyword in call.keywords if keyword.arg in VALUE_KEYWORDS] + by_position


def is_in_add_argument(site: Site, literal: ast.expr) -> bool:
    """Return True for a literal in an add_argument, which `device_argparse` edits."""
    return any(
        isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "add_argument"
        for parent in site.source.ancestors(literal)
    )
