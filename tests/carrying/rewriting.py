"""Rewrites that do not change what a script computes: renames, other orders of independent lines, device strings.

Each is an edit of the text, like a mutation (mutating.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from carrying.mutating import Mutation, Source, is_python

# Names of the first parameters of functions and classes that are called with positional arguments.
PARAMETERS = {
    "nn.Linear": ("in_features", "out_features"),
    "nn.Embedding": ("num_embeddings", "embedding_dim"),
    "nn.Conv2d": ("in_channels", "out_channels", "kernel_size"),
    "nn.Dropout": ("p",),
    "nn.LayerNorm": ("normalized_shape",),
    "nn.functional.cross_entropy": ("input", "target"),
    "DataLoader": ("dataset",),
    "torch.full": ("size", "fill_value"),
}
ATTRIBUTES = {"torch.relu(": ".relu()", "torch.tanh(": ".tanh()"}
PURE = {"len", "int", "float", "min", "max", "range", "os.path.join", "nn.ReLU", "nn.Dropout"}
Rewrite = tuple[str, str, str, str, int]  # operator, old, new, the whole text, line


def as_rewrite(source: Source, operator: str, start: int, end: int, new: str) -> Rewrite:
    return operator, source.text[start:end], new, source.replace(start, end, new), source.line_at(start)


def iterate_bodies(source: Source) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    for node in ast.walk(source.tree):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield node, body


def indent_of(source: Source, node: ast.stmt) -> str:
    return " " * node.col_offset


# ---- names


def rename_locals(source: Source) -> Iterator[Rewrite]:
    """Rename the locals of one function; attributes and keywords stay."""
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for name in sorted(stored):
            yield from rename_operator(source, "rename a variable", name, f"{name}_value", function)


def rename_functions(source: Source, exported: set[str]) -> Iterator[Rewrite]:
    for node in source.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name not in exported:
            new = f"{node.name}_renamed" if isinstance(node, ast.FunctionDef) else f"{node.name}Renamed"
            yield from rename_operator(source, "rename a function", node.name, new, source.tree)


def rename_operator(source: Source, operator: str, old: str, new: str, scope: ast.AST) -> Iterator[Rewrite]:
    start, end = source.span(scope) if not isinstance(scope, ast.Module) else (0, len(source.text))
    text = re.sub(rf"\b{old}\b", new, source.text[start:end])
    rewritten = source.replace(start, end, text)
    if is_python(rewritten) and is_renamed(source, rewritten, old, new, scope):
        yield operator, old, new, rewritten, source.line_at(start)


def is_renamed(source: Source, text: str, old: str, new: str, scope: ast.AST) -> bool:
    """Return True if `text` differs from the source in the name of this variable or function only."""
    tree = ast.parse(source.text)
    inside = tree if isinstance(scope, ast.Module) else find_again(tree, scope)
    for node in ast.walk(inside):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == old:
            node.name = new
        elif isinstance(node, ast.arg) and node.arg == old:
            return False  # callers may pass it by keyword
    return ast.dump(ast.parse(text)) == ast.dump(tree)


def find_again(tree: ast.AST, wanted: ast.AST) -> ast.AST:
    position = wanted.lineno, wanted.col_offset  # type: ignore[attr-defined]
    nodes = (node for node in ast.walk(tree) if type(node) is type(wanted))
    return next(node for node in nodes if (node.lineno, node.col_offset) == position)  # type: ignore[attr-defined]


# ---- order


def reorder_lines(source: Source) -> Iterator[Rewrite]:
    for _, body in iterate_bodies(source):
        for first, second in pairwise(body):
            if first.end_lineno == second.lineno or not are_independent(first, second):
                continue
            (a, b), (c, d) = source.span(first), source.span(second)
            new = source.text[c:d] + source.text[b:c] + source.text[a:b]
            yield as_rewrite(source, "order of independent lines", a, d, new)


def are_independent(first: ast.stmt, second: ast.stmt) -> bool:
    if all(isinstance(example, ast.FunctionDef) and not example.decorator_list for example in (first, second)):
        return True
    if not all(isinstance(example, (ast.Assign, ast.AugAssign)) for example in (first, second)):
        return False
    if any(isinstance(n, ast.Call) and ast.unparse(n.func) not in PURE for s in (first, second) for n in ast.walk(s)):
        return False
    (stored, read), (stored2, read2) = find_names(first), find_names(second)
    return not (stored & (stored2 | read2) or stored2 & read)


def find_names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names, attributes and subscripts that a statement stores, and those that it reads."""
    stored: set[str] = set()
    read: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            (stored if isinstance(node.ctx, ast.Store) else read).add(ast.unparse(node))
    if isinstance(statement, ast.AugAssign):
        read |= stored
    return stored, read


# ---- devices


DEVICES = (
    (r'torch\.device\("npu"\)', 'torch.device("npu:0")'),
    (r'torch\.device\("npu:0"\)', 'torch.device("npu")'),
    (r'torch\.device\("npu", (\w+)\)', r'torch.device(f"npu:{\1}")'),
    (r'device = "npu"', 'device = "npu:0"'),
    (r"\.npu\(\)", '.to("npu")'),
    (r"\.npu\(non_blocking=True\)", '.to("npu", non_blocking=True)'),
    (r"\.to\(device\)", ".to(device=device)"),
    (r"(?<=device=)device\b", "torch.device(device)"),
    (r"(torch\.tensor\(\[[^()]*\])\)\.npu\(\)", r'\1, device="npu")'),
    (r'map_location="npu"', 'map_location="npu:0"'),
)


def rewrite_devices(source: Source) -> Iterator[Rewrite]:
    for pattern, new in DEVICES:
        for match in re.finditer(pattern, source.text):
            yield as_rewrite(source, "device", match.start(), match.end(), match.expand(new))


# ---- spelling


SPELLINGS = (
    (r"\.size\((\d)\)", r".shape[\1]"),
    (r"\.argmax\((\d)\)", r".argmax(dim=\1)"),
    (r"\brange\(((?:[^(),]|\([^()]*\))+)\)", r"range(0, \1)"),
    (r"^from torch import nn$", "import torch.nn as nn"),
    (r"^import torch\.nn\.functional as F$", "from torch.nn import functional as F"),
    (r"^import (os|math|json|random|copy)$", r"import \1 as \1"),
    (r"with torch\.no_grad\(\):", "with torch.inference_mode(False), torch.no_grad():"),
    (r"torch\.relu\((self\.\w+\(x\))\)", r"\1.relu()"),
    (r"loss\.backward\(\)", "torch.autograd.backward(loss)"),
    (r"\((\w+\.argmax\(1\)) == (\w+)\)", r"(\2 == \1)"),
)


def rewrite_spellings(source: Source) -> Iterator[Rewrite]:
    for pattern, new in SPELLINGS:
        for match in re.finditer(pattern, source.text, re.MULTILINE):
            yield as_rewrite(source, "spelling", match.start(), match.end(), match.expand(new))


def spell_numbers(source: Source) -> Iterator[Rewrite]:
    for node in source.walk():
        if isinstance(node, ast.Constant) and type(node.value) is float and node.value:
            new = f"{node.value:.17e}" if float(f"{node.value:e}") != node.value else f"{node.value:e}"
            yield as_rewrite(source, "spelling of a number", *source.span(node), new)


def name_arguments(source: Source) -> Iterator[Rewrite]:
    for node in source.walk():
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in PARAMETERS:
            continue
        names = PARAMETERS[ast.unparse(node.func)]
        for number, argument in enumerate(node.args):
            if number == len(node.args) - 1 and number < len(names):
                start, end = source.span(argument)
                yield as_rewrite(source, "keyword argument", start, end, f"{names[number]}={source.text[start:end]}")


def rewrite_f_strings(source: Source) -> Iterator[Rewrite]:
    """Replace f-strings by str.format."""
    forms = {id(node.format_spec) for node in ast.walk(source.tree) if isinstance(node, ast.FormattedValue)}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.JoinedStr) or node.lineno != node.end_lineno or id(node) in forms:
            continue
        if any(isinstance(part, ast.FormattedValue) and part.conversion != -1 for part in node.values):
            continue
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                form = "".join(str(p.value) for p in getattr(part.format_spec, "values", []))
                text += "{" + (":" + form if form else "") + "}"
                values.append(ast.unparse(part.value))
        yield as_rewrite(source, "format", *source.span(node), f"{text!r}.format({', '.join(values)})")


def add_comments(source: Source) -> Iterator[Rewrite]:
    for _, body in iterate_bodies(source):
        for statement in body[1:]:
            start = source.span(statement)[0] - statement.col_offset
            if source.text[start : start + statement.col_offset].strip():
                continue
            indent = indent_of(source, statement)
            yield as_rewrite(source, "comment", start, start, f"{indent}# for the migrated script\n")


# ---- structure


def name_results(source: Source) -> Iterator[Rewrite]:
    """Write `return a(b)` in two lines."""
    for node in source.walk():
        if isinstance(node, ast.Return) and isinstance(node.value, (ast.Call, ast.BinOp)):
            start, end = source.span(node)
            value = source.code(node.value)
            yield as_rewrite(
                source, "named result", start, end, f"result = {value}\n{indent_of(source, node)}return result"
            )


def extract_functions(source: Source) -> Iterator[Rewrite]:
    """Compute `x = a * b` in a new function."""
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            simple = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1
            if not simple or not isinstance(node.value, (ast.Call, ast.BinOp)) or node.lineno != node.end_lineno:
                continue
            name, value, indent = ast.unparse(node.targets[0]), source.code(node.value), indent_of(source, node)
            if re.search(rf"\b{name}\b", value):
                continue
            new = f"def compute_{name}():\n{indent}    return {value}\n\n{indent}{name} = compute_{name}()"
            yield as_rewrite(source, "extracted function", *source.span(node), new)


def invert_branches(source: Source) -> Iterator[Rewrite]:
    for node in source.walk():
        if isinstance(node, ast.IfExp):
            new = f"{source.code(node.orelse)} if not ({source.code(node.test)}) else {source.code(node.body)}"
            yield as_rewrite(source, "inverted branch", *source.span(node), f"({new})")


def add_assignments(source: Source) -> Iterator[Rewrite]:
    """Write `total += x` as `total = total + x`; for a tensor this would be a new one."""
    for node in source.walk():
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and isinstance(node.op, ast.Add):
            name, value = node.target.id, source.code(node.value)
            yield as_rewrite(source, "sum", *source.span(node), f"{name} = {name} + ({value})")


def write_loops(source: Source) -> Iterator[Rewrite]:
    """Write `xs = [f(x) for x in ys]` as a loop."""
    for node in source.walk():
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.ListComp):
            continue
        made, indent = node.value, indent_of(source, node)
        part = made.generators[0]
        if len(made.generators) > 1 or part.ifs or not isinstance(node.targets[0], (ast.Name, ast.Attribute)):
            continue
        name = ast.unparse(node.targets[0])
        if re.search(rf"\b{re.escape(name)}\b", source.code(made)):
            continue
        new = f"{name} = []\n{indent}for {source.code(part.target)} in {source.code(part.iter)}:\n"
        yield as_rewrite(
            source, "loop", *source.span(node), new + f"{indent}    {name}.append({source.code(made.elt)})"
        )


def split_assignments(source: Source) -> Iterator[Rewrite]:
    """Write `a, b = f(c), g(d)` in two lines."""
    for node in source.walk():
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or len(node.value.elts) != 2:
            continue
        (x, y), (a, b) = map(source.code, target.elts), map(source.code, node.value.elts)
        if re.search(rf"\b{re.escape(x)}\b", b):
            continue
        yield as_rewrite(source, "two lines", *source.span(node), f"{x} = {a}\n{indent_of(source, node)}{y} = {b}")


KINDS: tuple[Callable[[Source], Iterator[Rewrite]], ...] = (
    rename_locals,
    reorder_lines,
    rewrite_devices,
    rewrite_spellings,
    spell_numbers,
    name_arguments,
    rewrite_f_strings,
    add_comments,
    name_results,
    extract_functions,
    invert_branches,
    add_assignments,
    write_loops,
    split_assignments,
)


def find_rewrites(tree: Path) -> list[Mutation]:
    texts = {path.relative_to(tree).as_posix(): path.read_text() for path in sorted(tree.rglob("*.py"))}
    found = []
    for file, text in texts.items():
        source = Source(text)
        others = " ".join(other for name, other in texts.items() if name != file)
        exported = set(re.findall(r"\w+", others))
        rewrites = [rewrite for kind in KINDS for rewrite in kind(source)]
        rewrites += rename_functions(source, exported)
        for operator, old, new, context, line in rewrites:
            if is_python(context):
                found.append(Mutation(operator, file, line, old, new, context))
    return found
