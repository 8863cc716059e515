"""The stand-in for the adapter has every name and signature that migrated scripts use.

`npu_bridge_surface.txt` lists the names and signatures.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script

pytestmark = needs_tensorflow


LISTED = Path(__file__).with_name("npu_bridge_surface.txt")

SURFACE = """
import importlib, inspect, json, sys
answer = {}
for module, names in json.load(open("surface.json")).items():
    try:
        home = importlib.import_module(module)
    except Exception as error:
        answer[module] = repr(error)
        continue
    for name in names:
        found = home
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            answer[module + " " + name] = None
            continue
        try:
            given = inspect.signature(found).parameters.values()
        except (TypeError, ValueError):  # an object, or a message of protobuf
            given = []
        shown = [[p.name, p.kind.name, None if p.default is p.empty else repr(p.default)] for p in given]
        answer[module + " " + name] = shown
print(json.dumps(answer))
"""


def list_documented_names() -> dict[str, dict[str, str]]:
    modules: dict[str, dict[str, str]] = {}
    for line in LISTED.read_text().splitlines():
        if found := re.fullmatch(r"\[(.+)\]", line):
            modules[found[1]] = {}
        elif line and not line.startswith("#"):
            name, bracket, arguments = line.partition("(")
            modules[list(modules)[-1]][name] = bracket + arguments
    return modules


def parameters(text: str) -> list[list[Any]]:
    """Names, kinds and defaults of `(a, b=1, **c)`."""
    function = ast.parse(f"def f{text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    blank: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    plain = [
        [argument.arg, "POSITIONAL_OR_KEYWORD", None if default is None else repr(ast.literal_eval(default))]
        for argument, default in zip(given.args, [*blank, *given.defaults], strict=True)
    ]
    if given.vararg:
        plain.append([given.vararg.arg, "VAR_POSITIONAL", None])
    if given.kwarg:
        plain.append([given.kwarg.arg, "VAR_KEYWORD", None])
    return plain


@needs_tensorflow
def test_every_name_and_signature_is_there(tmp_path: Path) -> None:
    modules = list_documented_names()
    names = [(module, name) for module, found in modules.items() for name in found]
    assert len(modules) >= 25
    assert len(names) >= 180
    script = tmp_path / "surface.py"
    script.write_text(SURFACE)
    (tmp_path / "surface.json").write_text(json.dumps({module: list(found) for module, found in modules.items()}))
    answer = rehearse_script("npu", script)
    assert answer.code == 0, answer.stderr[-3000:]
    found = answer.parse_last_line()
    assert [module for module in modules if module in found] == [], found
    wrong = {}
    for module, name in names:
        shown, wanted = found[f"{module} {name}"], modules[module][name]
        if shown is None:
            wrong[name] = "missing"
        elif wanted not in ("", "(?)") and shown != parameters(wanted):
            wrong[name] = f"{shown} is not {parameters(wanted)}"
    assert wrong == {}
