"""Ranks that a script launches itself: such a script is run once, not once for each rank.

It is known by a call of a launcher, of a command that starts one, or of `Process` with a function that calls
`init_process_group`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from viaduct.rehearsal.project import Project, last_name

ELASTIC = "torch.distributed.elastic"
LAUNCHERS = {
    *("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn"),
    *("torch.multiprocessing.start_processes", "torch.multiprocessing.spawn.start_processes"),
    *(f"torch.distributed.launcher.{name}" for name in ("elastic_launch", "launch_agent")),
    *(f"torch.distributed.launcher.api.{name}" for name in ("elastic_launch", "launch_agent")),
    *(f"torch.distributed.run.{name}" for name in ("main", "run")),
    *(f"torch.distributed.launch.{name}" for name in ("main", "run", "launch")),
    *(f"{ELASTIC}.multiprocessing.{name}" for name in ("start_processes", "api.start_processes")),
    *(f"{ELASTIC}.agent.server.{name}LocalElasticAgent" for name in ("", "local_elastic_agent.")),
    *("accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher"),
    *("accelerate.debug_launcher", "accelerate.launchers.debug_launcher"),
}
"""Functions that start ranks."""
STARTERS = {
    *("run", "call", "check_call", "check_output", "Popen", "system", "popen", "getoutput", "getstatusoutput"),
    *("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe"),
    *("spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe"),
    *("posix_spawn", "posix_spawnp", "create_subprocess_exec", "create_subprocess_shell", "run_module"),
}
"""Names of functions that run a command."""
COMMANDS = {
    *("torchrun", "torch.distributed.run", "torch.distributed.launch"),
    *("accelerate-launch", "accelerate.commands.launch"),
}
"""Words of a command that starts ranks; `accelerate launch` is two words."""


def find_launch_line(project: Project) -> str:
    """Return FILE:LINE of the first call with which the project starts its own ranks; "" if there is none."""
    for source in project.sources:
        names, texts = bound_names(source.tree), assigned_texts(source.tree)
        workers = find_workers(source.tree, names)
        lines = [
            call.lineno
            for call in ast.walk(source.tree)
            if isinstance(call, ast.Call)
            and (
                dotted_name(call.func, names) in LAUNCHERS
                or starts_command(call, texts)
                or starts_worker(call, workers)
            )
        ]
        if lines:
            return f"{source.path.name}:{min(lines)}"
    return ""


def starts_command(call: ast.Call, assigned: dict[str, list[str]]) -> bool:
    """Return True for `subprocess.run([…, "-m", "torch.distributed.run", …])`, and if the command is in a variable."""
    if last_name(call.func) not in STARTERS:
        return False
    used = [node.id for node in ast.walk(call) if isinstance(node, ast.Name)]
    texts = [*find_texts(call), *(text for name in used for text in assigned.get(name, ()))]
    words = [word.rpartition("/")[2] for text in texts for word in text.split()]
    return not COMMANDS.isdisjoint(words) or ("accelerate", "launch") in pairwise(words)


def assigned_texts(tree: ast.Module) -> dict[str, list[str]]:
    """Return the texts in what a file assigns to each name: the words of a command."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).extend(find_texts(node.value))
    return found


def find_texts(node: ast.AST) -> Iterator[str]:
    """Yield the strings in an expression."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def starts_worker(call: ast.Call, workers: set[str]) -> bool:
    """Return True for `Process(target=worker)` of multiprocessing."""
    targets = [keyword.value for keyword in call.keywords if keyword.arg == "target"]
    return last_name(call.func) == "Process" and any(getattr(target, "id", "") in workers for target in targets)


def find_workers(tree: ast.Module, names: dict[str, str]) -> set[str]:
    """Return the names of the functions of a file that call `init_process_group`."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {
        function.name
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and dotted_name(node.func, names) == "torch.distributed.init_process_group"
    }


def bound_names(tree: ast.Module) -> dict[str, str]:
    """Return the names that absolute imports bind, and the dotted names that they stand for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return an expression as a dotted name, by `names` from `bound_names`; of `f().a` only ".a", of `f()` nothing."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    return f"{dotted_name(node.value, names)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
