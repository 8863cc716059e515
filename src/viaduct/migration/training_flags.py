"""Find the command-line flags of a training script in its text: those of absl, tf.flags and argparse."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.migration.import_graph import Modules, scan_imports
from viaduct.migration.names import Names
from viaduct.migration.predicates import find_argument, is_string
from viaduct.migration.project import parse_names
from viaduct.migration.results import Outcome

FLAG_MODULES = ("absl.flags", "tensorflow.flags", "tensorflow.app.flags")
KINDS = ("bool", "boolean", "enum", "float", "integer", "list", "string", "multi_string", "multi_integer")
DEFINITIONS = frozenset(f"{module}.DEFINE_{kind}" for module in FLAG_MODULES for kind in KINDS)


@dataclass(frozen=True)
class Flag:
    """Flag of a script's command line."""

    name: str  # without dashes
    default: str  # as a Python literal; "" if there is none or it is not a literal
    file: str  # the file that defines it


def list_flags(outcome: Outcome) -> list[Flag]:
    """Return the flags of the entry script and of the files that it imports; for each name only the first."""
    if not outcome.entry:
        return []
    paths = [path for path in outcome.by_path if path.endswith(".py")]
    modules, pending, read = Modules(paths), [outcome.entry], dict[str, Names | None]()
    while pending:
        path = pending.pop(0)
        if path in read or path not in outcome.by_path:
            continue
        data = read_text(outcome, path)
        read[path] = parse_names(path, data)
        pending += sorted(modules.find_all(scan_imports(data, path), path))
    flags = (flag for path, names in read.items() if names is not None for flag in find_flags(path, names))
    return list({flag.name: flag for flag in reversed(list(flags))}.values())[::-1]


def read_text(outcome: Outcome, path: str) -> bytes:
    """Return the content of a file after the migration; b"" if it cannot be read."""
    file = outcome.by_path[path]
    if file.after or file.before:
        return file.after or file.before
    folder = outcome.root if outcome.root.is_dir() else outcome.root.parent
    try:
        return Path(folder, path).read_bytes()
    except OSError:
        return b""


def find_flags(path: str, names: Names) -> Iterator[Flag]:
    for call in names.source.of_kind(ast.Call):
        if names.qualified(call.func) in DEFINITIONS:
            name, default = find_argument(call, "name", 0), find_argument(call, "default", 1)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument" and call.args:
            name = next((value for value in call.args if is_string(value) and str(value.value).startswith("--")), None)  # type: ignore[attr-defined]
            default = find_argument(call, "default")
        else:
            continue
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            try:
                literal = repr(ast.literal_eval(default)) if default is not None else ""
            except ValueError:
                literal = ""
            yield Flag(name.value.lstrip("-"), literal, path)
