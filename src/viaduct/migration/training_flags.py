"""Find the command-line flags of a training script in its text: those of absl, tf.flags and argparse."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.import_graph import Modules, scan_imports
from viaduct.migration.names import Names
from viaduct.migration.predicates import find_argument, is_string
from viaduct.migration.project import parse_names
from viaduct.migration.results import Outcome

FLAG_MODULES = ("absl.flags", "tensorflow.flags", "tensorflow.app.flags")
KINDS = ("bool", "boolean", "enum", "float", "integer", "list", "string", "multi_string", "multi_integer")
DEFINE_FUNCTIONS = frozenset(f"{module}.DEFINE_{kind}" for module in FLAG_MODULES for kind in KINDS)


@dataclass(frozen=True)
class Flag:
    """Flag of a script's command line."""

    name: str  # without dashes
    default: str  # as a Python literal; "" if there is none or it is not a literal
    file: str  # the file that defines it


def list_flags(outcome: Outcome) -> list[Flag]:
    """Return the flags of the entry script and of the files that it imports; of equal names only the first."""
    if not outcome.entry:
        return []
    modules = Modules(path for path in outcome.by_path if path.endswith(".py"))
    pending, visited, flags = [outcome.entry], set[str](), dict[str, Flag]()
    while pending:
        path = pending.pop(0)
        if path in visited or path not in outcome.by_path:
            continue
        visited.add(path)
        data = read_text(outcome, path)
        for flag in find_flags(path, parse_names(path, data)):
            flags.setdefault(flag.name, flag)
        pending += sorted(modules.find_all(scan_imports(data, path), path))
    return list(flags.values())


def read_text(outcome: Outcome, path: str) -> bytes:
    """Return the content of a file after the migration; b"" if it cannot be read."""
    file = outcome.by_path[path]
    if file.after or file.before:
        return file.after or file.before
    try:
        return (outcome.root / path).read_bytes()
    except OSError:
        return b""


def find_flags(path: str, names: Names | None) -> Iterator[Flag]:
    """Yield the flags that a file defines. `names`: its parsed text with resolved names; None if this failed."""
    if names is None:
        return
    for call in names.source.nodes_of_type(ast.Call):
        if names.qualified(call.func) in DEFINE_FUNCTIONS:
            name, default = find_argument(call, "name", 0), find_argument(call, "default", 1)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            # Of add_argument("-b", "--batch") the name with two dashes.
            long_names = (value for value in call.args if is_string(value) and str(value.value).startswith("--"))  # type: ignore[attr-defined]
            name, default = next(long_names, None), find_argument(call, "default")
        else:
            continue
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            try:
                literal = repr(ast.literal_eval(default)) if default is not None else ""
            except ValueError:
                literal = ""
            yield Flag(name.value.lstrip("-"), literal, path)
