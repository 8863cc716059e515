"""Report code and settings for CUDA within strings, and code that the file does not show.

    import torch
    model = torch.nn.Linear(2, 2)
    exec("model.cuda()")

Text in a string is not migrated. A string needs manual review if it is Python code that uses CUDA, also in a command
`python -c`, or has a setting such as `device: cuda`. So does any text with CUDA or NCCL that is given to a function
that runs code: exec, eval, compile, timeit, torch's benchmark timer. The code of `exec(text)` is unresolved if the file
does not show the text; `eval(text)`, and exec in setup.py, then gets advice. Messages and docstrings are not reported.
"""

from __future__ import annotations

import ast
import re
from textwrap import dedent

from viaduct.cards.limits import Bilingual
from viaduct.migration.lookups import argument_values, bindings_of, is_reported, literal_text, plain_name
from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._messages import is_prose

rule = Rule(
    __name__, target_needs="device_calls", spec_rows=("6",), category="report", targets=ALL_TARGETS, runs_last=True
)

RUNNING_BUILTINS = ("exec", "eval", "compile")
RUNNING_FUNCTIONS = (
    *(f"builtins.{name}" for name in RUNNING_BUILTINS),
    *(f"timeit.{name}" for name in ("timeit", "repeat", "Timer")),
    *("torch.utils.benchmark.Timer", "torch.utils.benchmark.utils.timer.Timer", "cProfile.run", "cProfile.runctx"),
)
INSTALLATION_FILES = ("setup.py", "conf.py")  # they usually run a file with the version number
CUDA_OR_NCCL = re.compile(r"cuda|nccl", re.IGNORECASE)
CUDA_CODE = re.compile(r"\.cuda\b|\.is_cuda\b|\b(?:import|from)\s+(?:pycuda|cupy)\b|[\"'](?:cuda(?::\d+)?|nccl)[\"']")
NAME = re.compile(r"[\w.]+")  # `model.cuda` is a name rather than code
SETTING = re.compile(r"^\s*[\w.]*(?:device|backend)\w*\s*[:=]\s*(?:cuda(?::\d+)?|nccl)\s*$", re.MULTILINE)  # YAML, INI
PYTHON_COMMAND = re.compile(r"\bpython[\d.]*\s+-c\b")  # a shell command with Python code
CUDA_IN_TEXT: tuple[Bilingual, Bilingual] = (  # a message for one card, and one for `--to any`
    (
        "this string has code or settings for CUDA, and strings are not migrated: write it for the {card.title}",
        "此字符串含 CUDA 代码或设置,而字符串不会被迁移:请按 {card.title} 改写",
    ),
    (
        "this string has code or settings for CUDA, and strings are not migrated: write it for every card",
        "此字符串含 CUDA 代码或设置,而字符串不会被迁移:请改写为适用于各种加速卡",
    ),
)
HIDDEN_CODE: Bilingual = (
    "this runs code from a text that the file does not show, so it was not searched: see whether it uses CUDA",
    "此处运行的代码文本未出现在本文件中,因此未被检查:请确认其是否使用 CUDA",
)


@rule.node(ast.Constant, ast.JoinedStr, only_if_file_contains=("cuda", "nccl"))
def report_code(site: Site) -> None:
    """Report a string that is Python code for CUDA or has settings for it, on a line without a finding."""
    text = read_text(site.node)
    is_code = CUDA_CODE.search(text) and (is_python(text) or PYTHON_COMMAND.search(text))
    if not is_code and not SETTING.search(text):
        return
    is_assigned = isinstance(site.source.parents[site.node], ast.Assign)
    if NAME.fullmatch(text) and not (text.startswith("torch.cuda") and is_assigned):
        return  # a name, such as a key; only `path = "torch.cuda.Stream"` is taken for code
    if not is_prose(site.source, find_whole_text(site)) and is_in_torch_program(site) and not is_reported(site):
        site.request_review(*site.target.select_message(*CUDA_IN_TEXT))


@rule.node(ast.Call, only_if_file_contains=RUNNING_BUILTINS)
def report_run_code(site: Site) -> None:
    """Report code that exec, eval or compile gets, unless the file binds that name itself."""
    if plain_name(site.node.func) in RUNNING_BUILTINS and not bindings_of(site, site.node.func):
        check_code(site)


@rule.call(*RUNNING_FUNCTIONS)
def check_code(site: Site) -> None:
    """Report the code that a call runs if it mentions CUDA, or if the file does not show it."""
    if not is_in_torch_program(site) or is_reported(site):
        return
    values = [site.values.assigned_value(value) for value in argument_values(site.node)]
    if any(CUDA_OR_NCCL.search(literal_text(node)) for value in values for node in ast.walk(value)):
        site.request_review(*site.target.select_message(*CUDA_IN_TEXT))
    elif site.node.args and not is_shown(site, site.node.args[0]):
        runs_statements = plain_name(site.node.func) == "exec" or is_literal_in(site.argument("mode", 2), "exec")
        is_for_installation = site.file.path.rpartition("/")[2] in INSTALLATION_FILES
        add_finding = site.report_unresolved if runs_statements and not is_for_installation else site.advise
        add_finding(*HIDDEN_CODE, risk="low")


def is_shown(site: Site, code: ast.expr) -> bool:
    """Return True for code that is a text of this file, a call of compile, or the content of a file of the project.

    The texts that `compile` gets, and the files of the project, are searched themselves.
    """
    value = site.values.assigned_value(code)
    if read_text(value) or (isinstance(value, ast.Call) and plain_name(value.func) == "compile"):
        return True
    paths = [literal_text(node) for node in ast.walk(value)]
    return any(path.endswith(".py") and path.removeprefix("./") in site.file.project.surveyed for path in paths)


def read_text(node: ast.AST) -> str:
    """Return the text of a string, also of a composed one, with `_` for the parts that are not known; else ""."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal_text(value) if isinstance(value, ast.Constant) else "_" for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = read_text(node.left), read_text(node.right)
        return "".join(side or "_" for side in sides) if any(sides) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return read_text(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # "…".format(…), textwrap.dedent("…")
        return read_text(node.func.value) or "".join(map(read_text, node.args[:1]))
    return literal_text(node)


def is_python(text: str) -> bool:
    """Return True for a text that Python can parse."""
    try:
        ast.parse(dedent(text))
    except (SyntaxError, ValueError):
        return False
    return True


def find_whole_text(site: Site) -> ast.expr:
    """Return the expression that composes a text of the site's string: `"…" + name`, `"…" % name`."""
    node, parent = site.node, site.source.parents[site.node]
    while isinstance(parent, ast.BinOp):
        node, parent = parent, site.source.parents[parent]
    return node  # type: ignore[no-any-return]
