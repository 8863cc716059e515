"""Detection of scripts that launch their ranks themselves; viaduct starts such a script only once.

Such a script calls a launcher (`torch.multiprocessing.spawn`), runs a command that starts one (`torchrun`), or calls
`Process` with a function that calls `init_process_group`.
"""

from __future__ import annotations

import ast
from itertools import pairwise

from viaduct.rehearsal.project import Project, find_strings, get_unqualified_name

ELASTIC = "torch.distributed.elastic"
LAUNCHERS = {  # functions that start ranks
    "torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn",
    "torch.multiprocessing.start_processes", "torch.multiprocessing.spawn.start_processes",
    "torch.distributed.launcher.elastic_launch", "torch.distributed.launcher.api.elastic_launch",
    "torch.distributed.launcher.launch_agent", "torch.distributed.launcher.api.launch_agent",
    "torch.distributed.run.main", "torch.distributed.run.run",
    "torch.distributed.launch.main", "torch.distributed.launch.run", "torch.distributed.launch.launch",
    f"{ELASTIC}.multiprocessing.start_processes", f"{ELASTIC}.multiprocessing.api.start_processes",
    f"{ELASTIC}.agent.server.LocalElasticAgent",
    f"{ELASTIC}.agent.server.local_elastic_agent.LocalElasticAgent",
    "accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher",
    "accelerate.debug_launcher", "accelerate.launchers.debug_launcher",
}  # fmt: skip
COMMAND_FUNCTIONS = {  # names of functions that run a command
    "run", "call", "check_call", "check_output", "Popen", "system", "popen", "getoutput", "getstatusoutput", "execl",
    "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe", "spawnl", "spawnle", "spawnlp", "spawnlpe",
    "spawnv", "spawnve", "spawnvp", "spawnvpe", "posix_spawn", "posix_spawnp", "create_subprocess_exec",
    "create_subprocess_shell", "run_module",
}  # fmt: skip
# Words of a command that starts ranks; `starts_command` recognises "accelerate launch", which is two words.
LAUNCH_COMMANDS = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate-launch",
    "accelerate.commands.launch",
}  # fmt: skip


def find_launch_line(project: Project) -> str:
    """Return FILE:LINE of the first call by which the project starts its own ranks; "" if none is found."""
    for source in project.sources:
        names, assigned = find_bound_names(source.tree), find_assigned_strings(source.tree)
        workers = find_workers(source.tree, names)
        lines = [
            call.lineno
            for call in ast.walk(source.tree)
            if isinstance(call, ast.Call)
            and (
                resolve_qualified_name(call.func, names) in LAUNCHERS
                or starts_command(call, assigned)
                or starts_worker(call, workers)
            )
        ]
        if lines:
            return f"{source.path.name}:{min(lines)}"
    return ""


def starts_command(call: ast.Call, assigned: dict[str, list[str]]) -> bool:
    """Return True for `subprocess.run([…, "-m", "torch.distributed.run", …])`, also with the command in a variable."""
    if get_unqualified_name(call.func) not in COMMAND_FUNCTIONS:
        return False
    names = [node.id for node in ast.walk(call) if isinstance(node, ast.Name)]
    texts = [*find_strings(call), *(text for name in names for text in assigned.get(name, ()))]
    words = [word.rpartition("/")[2] for text in texts for word in text.split()]
    return not LAUNCH_COMMANDS.isdisjoint(words) or ("accelerate", "launch") in pairwise(words)


def find_assigned_strings(tree: ast.Module) -> dict[str, list[str]]:
    """Return the strings in the values that a file assigns to each name."""
    strings: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    strings.setdefault(target.id, []).extend(find_strings(node.value))
    return strings


def starts_worker(call: ast.Call, workers: set[str]) -> bool:
    """Return True for `Process(target=worker)` of multiprocessing."""
    targets = [keyword.value for keyword in call.keywords if keyword.arg == "target"]
    return get_unqualified_name(call.func) == "Process" and any(
        getattr(target, "id", "") in workers for target in targets
    )


def find_workers(tree: ast.Module, names: dict[str, str]) -> set[str]:
    """Return the names of the functions of a file that call `init_process_group`."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {
        function.name
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and resolve_qualified_name(node.func, names) == "torch.distributed.init_process_group"
    }


def find_bound_names(tree: ast.Module) -> dict[str, str]:
    """Return the dotted name that each name stands for by an absolute import."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def resolve_qualified_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return the dotted name of an expression by `names` from `find_bound_names`; "" for a call, ".a" for `f().a`."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    return f"{resolve_qualified_name(node.value, names)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
