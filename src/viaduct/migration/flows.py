"""Find the uses of a value, such as the result of torch.load, by following it from the expression that makes it.

A value is followed through names, attributes, subscripts, new dictionaries, loops, parameters and results of functions.
Where it leaves a file, a question is recorded as text: what uses has the `result of pkg.load_weights`, or the
`parameter state of pkg.resume`? The survey of the other files answers it (`record_uses`). A method is named without its
class and module: `result of .load`, `value of .weights` (a property).
"""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from viaduct.migration.lookups import last_name, positional_parameters
from viaduct.migration.names import Function, Names, Scope
from viaduct.migration.predicates import is_property
from viaduct.migration.project import Project
from viaduct.migration.source import FunctionNode, group_by_name

CHECKPOINT_LOADS = ("torch.load", "torch.jit.load", "torch.serialization.load")
STATE, MODULE, MOVED, HOST, TENSOR, UNKNOWN, CARD = "state", "module", "moved", "host", "tensor", "unknown", "card"
"""Uses of a value. STATE: copied into a network or an optimizer; MODULE: run as a network; MOVED: moved to a device;
HOST: read on the host; TENSOR: part of a computation; UNKNOWN: not followed further. CARD: the file that uses it
mentions devices (`works_on_card`)."""
CALLED = "called"
"""Further use: a function that returns the value is called, for whatever purpose."""
ROUNDS = 4
"""Number of rounds in which files answer each other's questions; then as many rounds join the answers."""
MAX_DEPTH = 40
"""Steps through which a value is followed; after these its use is UNKNOWN."""

# Methods and attributes that return the value itself or a part of it.
VALUE_MEMBERS = {
    *("get", "pop", "items", "values", "copy", "setdefault", "state_dict", "popitem", "module", "__getitem__"),
    *("float", "half", "double", "bfloat16", "type", "detach", "clone", "contiguous", "data", "requires_grad_"),
    *("view", "reshape", "unsqueeze", "squeeze", "t", "transpose", "permute", "flatten", "expand", "repeat"),
    "share_memory_",
}
# Methods that only a network has.
MODULE_METHODS = {
    *("eval", "train", "forward", "parameters", "named_parameters", "modules", "named_modules", "children", "generate"),
    *("zero_grad", "predict", "sample", "encode", "decode", "inference", "named_children", "buffers", "apply"),
}
MOVE_METHODS = ("to", "cuda", "npu", "mlu", "cpu", "xpu", "to_empty")
HOST_METHODS = ("numpy", "tolist", "item", "__array__")
# Methods whose call does not count as a use.
NEUTRAL_METHODS = {
    *("keys", "size", "dim", "numel", "stride", "element_size", "is_floating_point", "ndimension", "get_device"),
    "load_state_dict",
}
# Methods that store an argument in their object.
STORING_METHODS = {"update", "append", "extend", "insert", "add", "__setitem__"}
# Builtins and functions that return their argument, or a container or iterator with it.
PASSING_BUILTINS = {
    *("dict", "list", "tuple", "set", "iter", "next", "sorted", "enumerate", "zip", "reversed", "map", "filter"),
}
COPYING_CALLS = (
    *("collections.OrderedDict", "copy.deepcopy", "copy.copy", "types.SimpleNamespace", "tqdm.tqdm"),
    "itertools.islice",
)
# Builtins that only inspect or print their argument.
INSPECTING_BUILTINS = {
    *("print", "len", "type", "isinstance", "hasattr", "str", "repr", "bool", "any", "all", "id", "callable", "vars"),
    *("dir", "format", "int", "float", "max", "min", "sum", "range", "issubclass", "delattr"),
}
HOST_LIBRARIES = {"numpy", "pandas", "PIL", "cv2", "scipy", "sklearn", "matplotlib", "json", "h5py"}
LOGGER_NAMES = {"logging", "logger", "pprint", "warnings", "json", "yaml"}
LOG_METHODS = ("info", "warning", "debug", "error", "exception", "log")
MODULE_PART_FUNCTIONS = ("register_buffer", "register_parameter", "from_pretrained")
# Names of functions and keyword arguments that load weights into a network or an optimizer.
STATE_NAME = re.compile(
    r"load\w*(?:state|weight|param|checkpoint|ckpt|pretrain|model|dict)|set_\w*state|state_dict|copy_$"
)
DATASET_CLASS = re.compile(r"(?:^|\.)(?:\w*Dataset|\w*DataLoader|random_split|Subset)$")
DEVICE_WORD = re.compile(r"cuda|npu|mlu|gpu|device|accelerator", re.IGNORECASE)
Loop = ast.For | ast.AsyncFor | ast.While
# Expressions whose value is, or contains, the value of a child.
CONTAINING_NODES = (
    *(ast.Subscript, ast.IfExp, ast.BoolOp, ast.Await, ast.Starred, ast.Dict, ast.List, ast.Tuple, ast.Set),
    *(ast.DictComp, ast.ListComp, ast.GeneratorExp, ast.SetComp),
)
EVERYWHERE = (0, sys.maxsize)
"""First and last line for `follow_name`: all reads are followed."""


@dataclass(frozen=True)
class Trail:
    """State of following one value: uses found and nodes visited so far, and the number of steps."""

    uses: set[str] = field(default_factory=set)
    visited: set[object] = field(default_factory=set)
    depth: int = 0

    def deeper(self) -> Trail:
        return replace(self, depth=self.depth + 1)


class Flow:
    """Finds the uses of the values of one file. Other files answer its `questions`."""

    def __init__(self, names: Names, project: Project) -> None:
        self.names, self.source, self.project = names, names.source, project
        self.questions: set[str] = set()
        # Cache of uses_everywhere: (scope's node, name) or (None, attribute) -> uses and questions
        self.known: dict[tuple[ast.AST | None, str], tuple[set[str], set[str]]] = {}
        self.is_filling_cache = False  # True while an entry of `known` is computed; no other entry is then added
        self.blocks: dict[int, dict[str, list[ast.stmt]]] = {}  # see assigned_in_block

    # ---- results

    def uses(self, node: ast.AST) -> set[str]:
        """Return the uses of an expression's value, in this file and, as far as the survey knows, in others."""
        trail = Trail()
        self.follow(node, trail)
        return trail.uses

    def parameter_uses(self, function: Function, parameter: str) -> set[str]:
        trail = Trail()
        self.follow_name(parameter, self.names.scopes[function], trail)
        return trail.uses

    @cached_property
    def works_on_card(self) -> bool:
        """True if a name in the file contains `cuda`, `device` or the like, or a short string begins with it."""
        for node in self.source.nodes:
            match node:
                case ast.Attribute(attr=text) | ast.Name(id=text) | ast.arg(arg=text) | ast.keyword(arg=str(text)):
                    if DEVICE_WORD.search(text):
                        return True
                case ast.Constant(value=str(text)) if len(text) < 12 and DEVICE_WORD.match(text):
                    return True
        return False

    # ---- following

    def follow(self, node: ast.AST, trail: Trail) -> None:
        """Add the uses of an expression to the trail, according to its parent node."""
        if node in trail.visited:
            return
        trail.visited.add(node)
        if trail.depth > MAX_DEPTH:
            trail.uses.add(UNKNOWN)
            return
        parent = self.source.parents[node]
        match parent:
            case ast.Attribute():
                self.follow_attribute(parent, trail)
            case ast.Call() if parent.func is node:
                trail.uses.add(MODULE)
            case ast.Call():
                self.follow_argument(parent, parent.args.index(node) if node in parent.args else -1, "", trail)
            case ast.keyword():
                self.follow_keyword(parent, trail)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() | ast.AugAssign():
                if isinstance(parent, ast.NamedExpr):
                    self.follow(parent, trail.deeper())
                for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
                    self.follow_target(target, parent, trail)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                self.follow_result(parent, trail)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                if parent.iter is node:
                    self.follow_target(parent.target, parent, trail)
            case ast.IfExp() if parent.test is node:
                pass
            case ast.Subscript() if parent.value is not node:
                pass
            case ast.Lambda():
                trail.uses.add(UNKNOWN)
            case ast.withitem() if isinstance(parent.optional_vars, ast.expr):
                self.follow_target(parent.optional_vars, parent, trail)
            case ast.BinOp() | ast.UnaryOp() if not isinstance(parent.op, ast.Not):
                trail.uses.add(TENSOR)
            case _ if isinstance(parent, CONTAINING_NODES):
                self.follow(parent, trail.deeper())

    def follow_attribute(self, node: ast.Attribute, trail: Trail) -> None:
        """Follow `value.name`, called or not."""
        call = self.source.parents[node]
        if not (isinstance(call, ast.Call) and call.func is node):
            self.follow(node, trail.deeper())
        elif node.attr in MOVE_METHODS:
            trail.uses.add(MOVED)
        elif node.attr in HOST_METHODS:
            trail.uses.add(HOST)
        elif node.attr in MODULE_METHODS:
            trail.uses.add(MODULE)
        elif node.attr in VALUE_MEMBERS:
            self.follow(call, trail.deeper())
        elif node.attr not in NEUTRAL_METHODS and node.attr not in STORING_METHODS:
            trail.uses.add(UNKNOWN)

    def follow_keyword(self, argument: ast.keyword, trail: Trail) -> None:
        call = self.source.parents[argument]
        if not isinstance(call, ast.Call):
            return
        if argument.arg is not None and STATE_NAME.search(argument.arg):
            trail.uses.add(STATE)
        else:
            self.follow_argument(call, -1, argument.arg or "", trail)

    def follow_argument(self, call: ast.Call, position: int, keyword: str, trail: Trail) -> None:
        """Follow a value that is passed to a function, by position or keyword; -1 and "": by **."""
        name = self.names.qualified(call.func) or ""
        last = last_name(call.func)
        function, is_plain = self.find_own_function(call.func), isinstance(call.func, ast.Name)
        if function is not None:
            self.follow_into(function, call, position, keyword, trail)
        elif name in self.project.functions:
            self.add_answer(f"parameter {self.parameter_name(name, position, keyword)} of {name}", trail)
        elif STATE_NAME.search(last):
            trail.uses.add(STATE)
        elif last in STORING_METHODS and isinstance(call.func, ast.Attribute):
            self.follow_receiver(call.func.value, trail)
        elif name in COPYING_CALLS or (
            is_plain and (last in PASSING_BUILTINS or (last == "getattr" and position == 0))
        ):
            self.follow(call, trail.deeper())
        elif (is_plain and last in INSPECTING_BUILTINS) or name == "torch.save" or is_logging(call.func):
            pass
        elif DATASET_CLASS.search(name or last) or name.partition(".")[0] in HOST_LIBRARIES:
            trail.uses.add(HOST)
        elif last in MODULE_PART_FUNCTIONS or name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            trail.uses.add(MOVED)
        else:
            trail.uses.add(TENSOR if name.startswith("torch.") else UNKNOWN)

    def follow_into(self, function: FunctionNode, call: ast.Call, position: int, keyword: str, trail: Trail) -> None:
        parameters = positional_parameters(function)
        if isinstance(self.source.parents[function], ast.ClassDef) and parameters[:1] in (["self"], ["cls"]):
            parameters = parameters[1:]
        starred = position >= 0 and any(isinstance(argument, ast.Starred) for argument in call.args[: position + 1])
        name = keyword or (parameters[position] if 0 <= position < len(parameters) and not starred else "")
        if name in [*parameters, *(parameter.arg for parameter in function.args.kwonlyargs)]:
            self.follow_name(name, self.names.scopes[function], trail.deeper())
        else:
            trail.uses.add(UNKNOWN)

    def follow_receiver(self, receiver: ast.expr, trail: Trail) -> None:
        """Follow the object that stores a value, as in `weights.update(value)`."""
        if isinstance(receiver, ast.Name | ast.Attribute | ast.Subscript):
            self.follow_target(receiver, receiver, trail)
        else:
            trail.uses.add(UNKNOWN)

    def follow_target(self, target: ast.expr, statement: ast.AST, trail: Trail) -> None:
        """Follow a value to the reads of the target that a statement assigns it to."""
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self.follow_target(element, statement, trail)
        elif isinstance(target, ast.Starred):
            self.follow_target(target.value, statement, trail)
        elif isinstance(target, ast.Name):
            self.follow_name(target.id, self.binding_scope(target), trail, statement)
        elif isinstance(target, ast.Attribute):
            self.follow_attribute_reads(target, trail)
        elif isinstance(target, ast.Subscript):
            self.follow_receiver(target.value, trail)

    def follow_name(self, name: str, scope: Scope, trail: Trail, since: ast.AST | None = None) -> None:
        """Follow a name to its reads; with `since`, to those that can read the value that this statement binds."""
        first, last = self.lines_reached(name, scope, since)
        key = scope.node, name, first, last
        if key in trail.visited:
            return
        trail.visited.add(key)
        direct, nested = self.reads.get((scope.node, name), ([], []))
        if scope.outer is None and not direct and not nested:
            trail.uses.add(UNKNOWN)  # a module-level name; other files may read it
        if first == 0 and not self.is_filling_cache:
            trail.uses.update(self.uses_everywhere((scope.node, name), (*direct, *nested), key))
            return
        start = bisect_left(direct, first, key=lambda read: read.lineno)
        stop = bisect_right(direct, last, key=lambda read: read.lineno)
        for read in (*direct[start:stop], *nested):
            self.follow(read, trail.deeper())

    def uses_everywhere(self, key: tuple[ast.AST | None, str], reads: Sequence[ast.AST], visited: object) -> set[str]:
        """Return the uses of all reads, cached under `key`. `visited`: the entry by which a trail marks these reads."""
        if key not in self.known:
            outer_questions, self.questions = self.questions, set()
            self.is_filling_cache, trail = True, Trail(visited={visited}, depth=1)
            try:
                for read in reads:
                    self.follow(read, trail)
            finally:
                self.is_filling_cache = False
            self.known[key] = trail.uses, self.questions
            self.questions = outer_questions
        uses, questions = self.known[key]
        self.questions |= questions
        return uses.union(*(self.project.uses_by_question.get(question, set()) for question in questions))

    def lines_reached(self, name: str, scope: Scope, since: ast.AST | None) -> tuple[int, int]:
        """Return the first and last line on which the value that the statement `since` binds to a name can be read.

        The last line is that of the next `name = value` in the same block, if any. Return EVERYWHERE without a
        statement, for one in a loop or comprehension, and for one outside the function that the name belongs to.
        """
        if since is None or isinstance(since, ast.comprehension):
            return EVERYWHERE
        statement = self.source.statement_around(since)
        in_loop = any(isinstance(parent, Loop) for parent in self.source.ancestors(statement))
        if in_loop or self.function_around(statement) is not scope.node:
            return EVERYWHERE
        assignments = self.assigned_in_block(statement).get(name, [])
        position = bisect_right(assignments, statement.lineno, key=lambda node: node.lineno)
        return statement.lineno, (assignments[position].end_lineno or 0) if position < len(assignments) else sys.maxsize

    def function_around(self, node: ast.AST) -> ast.AST:
        return self.source.function_around(node) or self.source.tree

    def assigned_in_block(self, statement: ast.stmt) -> dict[str, list[ast.stmt]]:
        """Return, for each name, the statements `name = value` in the same block."""
        block = self.source.block_around(statement)
        if id(block) not in self.blocks:
            assignments = self.blocks[id(block)] = defaultdict(list)
            for sibling in block:
                if (
                    isinstance(sibling, ast.Assign)
                    and len(sibling.targets) == 1
                    and isinstance(sibling.targets[0], ast.Name)
                ):
                    assignments[sibling.targets[0].id].append(sibling)
        return self.blocks[id(block)]

    def follow_attribute_reads(self, target: ast.Attribute, trail: Trail) -> None:
        """Follow `self.state = …` to every read of an attribute `state` in the file, of any object."""
        key, reads = ("attribute", target.attr), self.attribute_reads.get(target.attr, [])
        if key in trail.visited:
            return
        trail.visited.add(key)
        if not self.is_filling_cache:
            trail.uses.update(self.uses_everywhere((None, target.attr), reads, key))
            return
        for read in reads:
            self.follow(read, trail.deeper())

    def follow_result(self, node: ast.AST, trail: Trail) -> None:
        """Follow a returned value to every call of the function in this file; ask the survey about other files."""
        function = self.source.function_around(node)
        if function is None or function in trail.visited:
            return
        trail.visited.add(function)
        is_method = isinstance(self.source.parents[function], ast.ClassDef)
        callers: list[ast.expr] = [
            call
            for call in self.calls_by_name.get(function.name, [])
            if isinstance(call.func, ast.Attribute) == is_method
            and self.find_own_function(call.func) in (function, None)
        ]
        question = f"result of .{function.name}" if is_method else f"result of {self.names.module}.{function.name}"
        if is_method and is_property(function):
            callers = [*self.attribute_reads.get(function.name, [])]
            question = f"value of .{function.name}"
        for caller in callers:
            self.follow(caller, trail.deeper())
        self.add_answer(question, trail)
        if not callers and not self.project.uses_by_question.get(question):
            trail.uses.add(UNKNOWN)  # no call is known

    def add_answer(self, question: str, trail: Trail) -> None:
        """Add the survey's answer to a question about other files, and record the question."""
        self.questions.add(question)
        trail.uses.update(self.project.uses_by_question.get(question, ()))

    # ---- reads and definitions of the file

    @cached_property
    def reads(self) -> dict[tuple[ast.AST, str], tuple[list[ast.Name], list[ast.Name]]]:
        """(scope's node, name) -> reads in the function that binds the name, by line, and reads in nested functions."""
        by_name: dict[tuple[ast.AST, str], tuple[list[ast.Name], list[ast.Name]]] = {}
        for node in self.source.nodes_of_type(ast.Name):
            if isinstance(node.ctx, ast.Load):
                scope = self.binding_scope(node)
                direct, nested = by_name.setdefault((scope.node, node.id), ([], []))
                (direct if self.function_around(node) is scope.node else nested).append(node)
        for direct, _ in by_name.values():
            direct.sort(key=lambda read: read.lineno)
        return by_name

    @cached_property
    def attribute_reads(self) -> dict[str, list[ast.Attribute]]:
        reads = (node for node in self.source.nodes_of_type(ast.Attribute) if isinstance(node.ctx, ast.Load))
        return group_by_name((node.attr, node) for node in reads)

    @cached_property
    def calls_by_name(self) -> dict[str, list[ast.Call]]:
        """Calls by the last part of the function's name."""
        calls = self.source.nodes_of_type(ast.Call)
        return group_by_name((last_name(call.func), call) for call in calls)

    @cached_property
    def functions_by_name(self) -> dict[str, list[FunctionNode]]:
        return group_by_name((function.name, function) for function in self.source.functions)

    @cached_property
    def classes_by_name(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.source.nodes_of_type(ast.ClassDef)}

    def find_own_function(self, callee: ast.expr) -> FunctionNode | None:
        """Return the only function of this file whose name fits a call; None for a function of a known module."""
        is_method = isinstance(callee, ast.Attribute)
        name = last_name(callee)
        if isinstance(callee, ast.Attribute) and self.names.qualified(callee.value) is not None:
            return None
        parents = self.source.parents
        if isinstance(callee, ast.Name) and name not in self.functions_by_name and name in self.classes_by_name:
            functions = self.functions_by_name.get("__init__", [])
            candidates = [function for function in functions if parents[function] is self.classes_by_name[name]]
        else:
            functions = self.functions_by_name.get(name, [])
            candidates = [
                function for function in functions if isinstance(parents[function], ast.ClassDef) == is_method
            ]
        return candidates[0] if len(candidates) == 1 else None

    def parameter_name(self, function: str, position: int, keyword: str) -> str:
        """Return the name of the parameter that gets an argument; `?` if it is not known."""
        _, definition = self.project.functions[function]
        parameters = positional_parameters(definition)
        return keyword or (parameters[position] if 0 <= position < len(parameters) else "?")

    def binding_scope(self, name: ast.Name) -> Scope:
        """Return the scope that binds a name, or the module's."""
        scope = self.names.scope_of(name)
        while name.id not in scope.bindings and scope.outer is not None:
            scope = scope.global_or_nonlocal.get(name.id, scope.outer)
        return scope


def is_logging(callee: ast.expr) -> bool:
    """Return True for functions of LOGGER_NAMES (`logging.…`, `json.…`) and log methods (`self.log.info`)."""
    root = callee
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and (root.id in LOGGER_NAMES or getattr(callee, "attr", "") in LOG_METHODS)


# ---- the survey


def record_uses(project: Project, files: dict[str, Names]) -> None:
    """Fill `project.uses`: answers to the questions that loads of checkpoints raise about other files."""
    flows = [Flow(names, project) for path, names in files.items() if path in project.torch_files]
    needs: dict[str, set[str]] = {}  # question -> questions that its answers depend on
    for flow in flows:
        for call in flow.source.nodes_of_type(ast.Call) if "load" in flow.source.text else ():
            if flow.names.qualified(call.func) in CHECKPOINT_LOADS:
                flow.uses(call)
    for _ in range(ROUNDS):
        new = {question for flow in flows for question in flow.questions} - needs.keys()
        by_name = flows_by_name(flows, {question.rpartition(".")[2] for question in new})
        for question in sorted(new):
            needs[question] = set()
            for flow in by_name.get(question.rpartition(".")[2], ()):
                former_questions, flow.questions = flow.questions, set()
                uses = find_answer(flow, question)
                if uses and flow.works_on_card:
                    uses.add(CARD)
                needs[question] |= flow.questions
                flow.questions |= former_questions
                if uses:
                    project.uses_by_question.setdefault(question, set()).update(uses)
    for _ in range(ROUNDS):  # an answer includes the answers to the questions that it has raised
        for question, dependencies in needs.items():
            uses = set[str]().union(*(project.uses_by_question.get(dependency, set()) for dependency in dependencies))
            if uses:
                project.uses_by_question.setdefault(question, set()).update(uses)


def flows_by_name(flows: Iterable[Flow], names: set[str]) -> dict[str, list[Flow]]:
    """Return, by name, the flows of files that call or define a function, or read an attribute, of this name."""
    return group_by_name(
        (name, flow)
        for flow in (flows if names else ())
        for name in names & (flow.calls_by_name.keys() | flow.functions_by_name.keys() | flow.attribute_reads.keys())
    )


def find_answer(flow: Flow, question: str) -> set[str]:
    """Return a file's answer to a question (see the module's docstring): uses in this file."""
    subject, _, function = question.partition(" of ")
    module, _, name = function.rpartition(".")  # no module: a method
    if subject == "result":
        calls = [
            call
            for call in flow.calls_by_name.get(name, [])
            if (flow.names.qualified(call.func) == function if module else is_method_call(flow, call))
        ]
        local = module == flow.names.module or (not module and name in flow.functions_by_name)
        return set() if local else collect_uses(flow, calls)
    if subject == "value":
        return set() if name in flow.functions_by_name else collect_uses(flow, flow.attribute_reads.get(name, []))
    if module != flow.names.module:
        return set()
    parameter = subject.removeprefix("parameter ")
    defined = [node for node in flow.functions_by_name.get(name, []) if flow.source.parents[node] is flow.source.tree]
    return {use for definition in defined for use in flow.parameter_uses(definition, parameter)}


def collect_uses(flow: Flow, nodes: Sequence[ast.expr]) -> set[str]:
    """Return the uses of the values of several calls or reads, and CALLED if there are any."""
    return {CALLED, *(use for node in nodes for use in flow.uses(node))} if nodes else set()


def is_method_call(flow: Flow, call: ast.Call) -> bool:
    """Return True for `x.name(…)` where x is not a known module."""
    return isinstance(call.func, ast.Attribute) and flow.names.qualified(call.func.value) is None
