"""Flow of a value from the expression that makes it: the uses of what torch.load returns.

It is followed through names, attributes, subscripts, new dictionaries, loops, parameters and results of functions.
Where a value leaves a file, a question is recorded as text, `result of pkg.load_weights` or `parameter state of
pkg.resume`, and the survey of the other file answers it: no syntax tree goes from file to file.
"""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from viaduct.migration.names import Function, Names, Scope
from viaduct.migration.project import Project

LOADS = ("torch.load", "torch.jit.load", "torch.serialization.load")
STATE, MODULE, MOVED, HOST, TENSOR, UNKNOWN, CARD = "state", "module", "moved", "host", "tensor", "unknown", "card"
"""Uses of a value. STATE: copied into a network or an optimizer; MODULE: run as a network; MOVED: moved to a device;
HOST: read on the host; TENSOR: computed with; UNKNOWN: not followed further. CARD: the file that uses it works on a
card."""
CALLED = "called"
"""A function that returns the value is called somewhere, whatever becomes of the result."""
ROUNDS = 4
"""Rounds in which questions are answered that the answers of the round before have raised."""
DEPTH = 40
"""Steps of one value; beyond them its use is UNKNOWN."""

# Methods whose result holds the value, or a part of it.
HANDS_ON = {
    *("get", "pop", "items", "values", "copy", "setdefault", "state_dict", "popitem", "module", "__getitem__"),
    *("float", "half", "double", "bfloat16", "type", "detach", "clone", "contiguous", "data", "requires_grad_"),
    *(
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "t",
        "transpose",
        "permute",
        "flatten",
        "expand",
        "repeat",
        "share_memory_",
    ),
}
RUNS = {
    *("eval", "train", "forward", "parameters", "named_parameters", "modules", "named_modules", "children", "generate"),
    *("zero_grad", "predict", "sample", "encode", "decode", "inference", "named_children", "buffers", "apply"),
}
MOVES = ("to", "cuda", "npu", "mlu", "cpu", "xpu", "to_empty")
ON_HOST = ("numpy", "tolist", "item", "__array__")
SAYS_NOTHING = {
    "keys",
    "size",
    "dim",
    "numel",
    "stride",
    "element_size",
    "is_floating_point",
    "ndimension",
    "get_device",
}
COLLECTS = {"update": 0, "append": 0, "extend": 0, "insert": 1, "add": 0, "__setitem__": 1}
PASSES_ON = {"dict", "list", "tuple", "set", "iter", "next", "sorted", "enumerate", "zip", "reversed", "map", "filter"}
COPIES = (
    "collections.OrderedDict",
    "copy.deepcopy",
    "copy.copy",
    "types.SimpleNamespace",
    "tqdm.tqdm",
    "itertools.islice",
)
INSPECTS = {
    *("print", "len", "type", "isinstance", "hasattr", "str", "repr", "bool", "any", "all", "id", "callable", "vars"),
    *("dir", "format", "int", "float", "max", "min", "sum", "range", "issubclass", "delattr"),
}
HOST_LIBRARIES = {"numpy", "pandas", "PIL", "cv2", "scipy", "sklearn", "matplotlib", "json", "h5py"}
LOGGING = {"logging", "logger", "pprint", "warnings", "json", "yaml"}
PARTS_OF_MODULES = ("register_buffer", "register_parameter", "from_pretrained")
TAKES_STATE = re.compile(
    r"load\w*(?:state|weight|param|checkpoint|ckpt|pretrain|model|dict)|set_\w*state|state_dict|copy_$"
)
DATA = re.compile(r"(?:^|\.)(?:\w*Dataset|\w*DataLoader|random_split|Subset)$")
WORKS_ON_CARD = re.compile(r"cuda|npu|mlu|gpu|device|accelerator", re.IGNORECASE)
Binding = ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign


class Flow:
    """Uses of the values of one file. `questions`: what other files must answer."""

    def __init__(self, names: Names, project: Project) -> None:
        self.names, self.source, self.project = names, names.source, project
        self.questions: set[str] = set()
        self.known: dict[tuple[ast.AST | None, str], tuple[set[str], set[str]]] = {}  # see uses_everywhere
        self.is_asking = False
        self.blocks: dict[int, dict[str, list[ast.stmt]]] = {}  # see assigned_in_block

    # ---- asking

    def uses(self, node: ast.AST) -> set[str]:
        """Return the uses of the value of an expression: in this file and, as far as the survey knows, in others."""
        found: set[str] = set()
        self.follow(node, found, set(), 0)
        return found

    def parameter_uses(self, function: Function, parameter: str) -> set[str]:
        """Return what a function does with one of its parameters."""
        found: set[str] = set()
        self.follow_name(parameter, self.names.scopes[function], found, set(), 0)
        return found

    @cached_property
    def works_on_card(self) -> bool:
        """True if the file has a name or a short text that speaks of a card or a device."""
        for node in self.source.nodes:
            match node:
                case ast.Attribute(attr=text) | ast.Name(id=text) | ast.arg(arg=text) | ast.keyword(arg=str(text)):
                    if WORKS_ON_CARD.search(text):
                        return True
                case ast.Constant(value=str(text)) if len(text) < 12 and WORKS_ON_CARD.match(text):
                    return True
        return False

    # ---- following

    def follow(self, node: ast.AST, found: set[str], seen: set[object], depth: int) -> None:
        """Add the uses of an expression to `found`, by the syntax node around it."""
        if node in seen:
            return
        seen.add(node)
        if depth > DEPTH:
            found.add(UNKNOWN)
            return
        parent = self.source.parents[node]
        match parent:
            case ast.Attribute():
                self.follow_attribute(parent, found, seen, depth)
            case ast.Call():
                self.follow_call(parent, node, found, seen, depth)
            case ast.keyword():
                self.follow_keyword(parent, found, seen, depth)
            case ast.Subscript() if parent.value is node:
                self.follow(parent, found, seen, depth + 1)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() | ast.AugAssign():
                self.follow_assignment(parent, found, seen, depth)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                self.follow_result(parent, found, seen, depth)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self.follow_loop(parent, node, found, seen, depth)
            case ast.DictComp() | ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                self.follow(parent, found, seen, depth + 1)
            case ast.IfExp() if parent.test is node:
                pass
            case (
                ast.IfExp()
                | ast.BoolOp()
                | ast.Await()
                | ast.Starred()
                | ast.Dict()
                | ast.List()
                | ast.Tuple()
                | ast.Set()
            ):
                self.follow(parent, found, seen, depth + 1)
            case ast.Lambda():
                found.add(UNKNOWN)
            case ast.withitem() if isinstance(parent.optional_vars, ast.expr):
                self.follow_target(parent.optional_vars, parent, found, seen, depth)
            case ast.BinOp() | ast.UnaryOp():
                if not isinstance(getattr(parent, "op", None), ast.Not):
                    found.add(TENSOR)

    def follow_attribute(self, node: ast.Attribute, found: set[str], seen: set[object], depth: int) -> None:
        """Follow `value.name`, called or not."""
        call = self.source.parents[node]
        if not (isinstance(call, ast.Call) and call.func is node):
            self.follow(node, found, seen, depth + 1)
            return
        name = node.attr
        if name in MOVES:
            found.add(MOVED)
        elif name in ON_HOST:
            found.add(HOST)
        elif name in RUNS:
            found.add(MODULE)
        elif name in HANDS_ON:
            self.follow(call, found, seen, depth + 1)
        elif name not in SAYS_NOTHING and name not in COLLECTS and name != "load_state_dict":
            found.add(UNKNOWN)

    def follow_call(self, call: ast.Call, node: ast.AST, found: set[str], seen: set[object], depth: int) -> None:
        """Follow a value that is an argument of a call, or is called itself."""
        if call.func is node:
            found.add(MODULE)
            return
        position = call.args.index(node) if node in call.args else -1
        self.follow_argument(call, position, "", found, seen, depth)

    def follow_keyword(self, argument: ast.keyword, found: set[str], seen: set[object], depth: int) -> None:
        """Follow a value that is given as a keyword argument."""
        call = self.source.parents[argument]
        if not isinstance(call, ast.Call):
            return
        if argument.arg is not None and TAKES_STATE.search(argument.arg):
            found.add(STATE)
        else:
            self.follow_argument(call, -1, argument.arg or "", found, seen, depth)

    def follow_argument(
        self, call: ast.Call, place: int, keyword: str, found: set[str], seen: set[object], depth: int
    ) -> None:
        """Follow a value that is passed to a function, by position or keyword."""
        name = self.names.qualified(call.func) or ""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        own, plain = self.own_function(call.func), isinstance(call.func, ast.Name)
        if own is not None:
            self.follow_own(own, call, place, keyword, found, seen, depth)
        elif name in self.project.functions:
            self.add_answer(f"parameter {self.parameter_name(name, place, keyword)} of {name}", found)
        elif TAKES_STATE.search(last):
            found.add(STATE)
        elif last in COLLECTS and isinstance(call.func, ast.Attribute):
            self.follow_receiver(call.func.value, found, seen, depth)
        elif name in COPIES or (plain and (last in PASSES_ON or (last == "getattr" and place == 0))):
            self.follow(call, found, seen, depth + 1)
        elif (plain and last in INSPECTS) or name == "torch.save" or self.is_logging(call.func):
            pass
        elif DATA.search(name or last) or name.partition(".")[0] in HOST_LIBRARIES:
            found.add(HOST)
        elif last in PARTS_OF_MODULES or name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            found.add(MOVED)
        else:
            found.add(TENSOR if name.startswith("torch.") else UNKNOWN)

    def is_logging(self, called: ast.expr) -> bool:
        """Return True for a call that prints or logs."""
        root = called
        while isinstance(root, ast.Attribute):
            root = root.value
        last = called.attr if isinstance(called, ast.Attribute) else ""
        return isinstance(root, ast.Name) and (
            root.id in LOGGING or last in ("info", "warning", "debug", "error", "exception", "log")
        )

    def follow_own(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        call: ast.Call,
        place: int,
        keyword: str,
        found: set[str],
        seen: set[object],
        depth: int,
    ) -> None:
        """Follow a value into a function or method of this file."""
        entries = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(self.source.parents[function], ast.ClassDef) and entries[:1] in (["self"], ["cls"]):
            entries = entries[1:]
        starred = place >= 0 and any(isinstance(argument, ast.Starred) for argument in call.args[: place + 1])
        name = keyword or (entries[place] if 0 <= place < len(entries) and not starred else "")
        if name in [*entries, *(param.arg for param in function.args.kwonlyargs)]:
            self.follow_name(name, self.names.scopes[function], found, seen, depth + 1)
        else:
            found.add(UNKNOWN)

    def follow_receiver(self, receiver: ast.expr, found: set[str], seen: set[object], depth: int) -> None:
        """Follow the object that a value is put into, as in `weights.update(value)`."""
        if isinstance(receiver, ast.Name | ast.Attribute | ast.Subscript):
            self.follow_target(receiver, receiver, found, seen, depth)
        else:
            found.add(UNKNOWN)

    def follow_assignment(self, node: Binding, found: set[str], seen: set[object], depth: int) -> None:
        """Follow a value to the targets of an assignment."""
        if isinstance(node, ast.NamedExpr):
            self.follow(node, found, seen, depth + 1)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.follow_target(target, node, found, seen, depth)

    def follow_target(
        self, target: ast.expr, statement: ast.AST, found: set[str], seen: set[object], depth: int
    ) -> None:
        """Follow the value to where an assignment keeps it."""
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self.follow_target(part, statement, found, seen, depth)
        elif isinstance(target, ast.Starred):
            self.follow_target(target.value, statement, found, seen, depth)
        elif isinstance(target, ast.Name):
            self.follow_name(target.id, self.scope_holding(target), found, seen, depth, statement)
        elif isinstance(target, ast.Attribute):
            self.follow_kept(target, found, seen, depth)
        elif isinstance(target, ast.Subscript):
            self.follow_receiver(target.value, found, seen, depth)

    def follow_name(
        self, name: str, scope: Scope, found: set[str], seen: set[object], depth: int, since: ast.AST | None = None
    ) -> None:
        """Follow a name to the places that read it."""
        first, last = self.lines_reached(name, scope, since)
        if (scope.node, name, first, last) in seen:
            return
        seen.add((scope.node, name, first, last))
        near, far = self.readings.get((scope.node, name), ([], []))
        if scope.outer is None and not near and not far:
            found.add(UNKNOWN)  # a module's name that other files may read
        if first == 0 and not self.is_asking:
            found |= self.uses_everywhere((scope.node, name), (*near, *far), {(scope.node, name, first, last)})
            return
        start = bisect_left(near, first, key=lambda use: use.lineno)
        stop = bisect_right(near, last, key=lambda use: use.lineno)
        for use in (*near[start:stop], *far):
            self.follow(use, found, seen, depth + 1)

    def uses_everywhere(self, key: tuple[ast.AST | None, str], nodes: Sequence[ast.AST], seen: set[object]) -> set[str]:
        """Return the uses of a name or attribute wherever it is read; computed once, as a loop may bind it often."""
        if key not in self.known:
            outer, self.questions = self.questions, set()
            self.is_asking, found = True, set[str]()
            try:
                for node in nodes:
                    self.follow(node, found, seen, 1)
            finally:
                self.is_asking = False
            self.known[key] = found, self.questions
            self.questions = outer
        found, asked = self.known[key]
        self.questions |= asked
        return found.union(*(self.project.uses.get(question, set()) for question in asked))

    def lines_reached(self, name: str, scope: Scope, since: ast.AST | None) -> tuple[int, int]:
        """Return the first and last line at which a value that a statement binds to a name can be read.

        They are the line of the statement and the next assignment to the name in the same block; in a loop, all lines.
        """
        if since is None or isinstance(since, ast.comprehension):
            return 0, sys.maxsize
        statement = self.source.statement(since)
        above = self.source.ancestors(statement)
        if (
            any(isinstance(parent, ast.For | ast.While | ast.AsyncFor) for parent in above)
            or self.holder(statement) is not scope.node
        ):
            return 0, sys.maxsize
        again = self.assigned_in_block(statement).get(name, [])
        position = bisect_right(again, statement.lineno, key=lambda node: node.lineno)
        return statement.lineno, (again[position].end_lineno or 0) if position < len(again) else sys.maxsize

    def holder(self, node: ast.AST) -> ast.AST:
        """Return the function around a node, or the module."""
        return self.source.function(node) or self.source.tree

    def assigned_in_block(self, statement: ast.stmt) -> dict[str, list[ast.stmt]]:
        """Return, for each name, the statements beside this one that assign it and nothing else."""
        block = self.source.block(statement)
        if id(block) not in self.blocks:
            found: dict[str, list[ast.stmt]] = {}
            for other in block:
                if isinstance(other, ast.Assign) and len(other.targets) == 1 and isinstance(other.targets[0], ast.Name):
                    found.setdefault(other.targets[0].id, []).append(other)
            self.blocks[id(block)] = found
        return self.blocks[id(block)]

    def follow_kept(self, target: ast.Attribute, found: set[str], seen: set[object], depth: int) -> None:
        """Follow `self.state = …` to every read of an attribute of that name in the file, whatever its object."""
        if ("attribute", target.attr) in seen:
            return
        seen.add(("attribute", target.attr))
        if not self.is_asking:
            read = self.attributes_of.get(target.attr, [])
            found |= self.uses_everywhere((None, target.attr), read, {("attribute", target.attr)})
            return
        for use in self.attributes_of.get(target.attr, []):
            self.follow(use, found, seen, depth + 1)

    def follow_loop(
        self,
        loop: ast.For | ast.AsyncFor | ast.comprehension,
        node: ast.AST,
        found: set[str],
        seen: set[object],
        depth: int,
    ) -> None:
        """Follow a value that a loop goes over to the loop's variable."""
        if loop.iter is node:
            self.follow_target(loop.target, loop, found, seen, depth)

    def follow_result(self, node: ast.AST, found: set[str], seen: set[object], depth: int) -> None:
        """Follow a returned value to every call of the function in this file; add the survey's answer for others."""
        function = self.source.function(node)
        if function is None or function in seen:
            return
        seen.add(function)
        held = isinstance(self.source.parents[function], ast.ClassDef)
        callers: list[ast.expr] = [
            call
            for call in self.calls_named.get(function.name, [])
            if isinstance(call.func, ast.Attribute) == held and self.own_function(call.func) in (function, None)
        ]
        if held and is_property(function):
            callers = [*self.attributes_of.get(function.name, [])]
            question = f"value of .{function.name}"
        else:
            question = f"result of .{function.name}" if held else f"result of {self.names.own}.{function.name}"
        for caller in callers:
            self.follow(caller, found, seen, depth + 1)
        self.add_answer(question, found)
        if not callers and not self.project.uses.get(question):
            found.add(UNKNOWN)  # no file of the project calls it

    def add_answer(self, question: str, found: set[str]) -> None:
        """Add the survey's answer about another file, and record that it was asked for."""
        self.questions.add(question)
        found |= self.project.uses.get(question, set())

    # ---- what is where

    @cached_property
    def readings(self) -> dict[tuple[ast.AST, str], tuple[list[ast.Name], list[ast.Name]]]:
        """Return where a name is read in the function that binds it, by line, and where further within."""
        found: dict[tuple[ast.AST, str], tuple[list[ast.Name], list[ast.Name]]] = {}
        for node in self.source.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                scope = self.scope_holding(node)
                near, far = found.setdefault((scope.node, node.id), ([], []))
                (near if self.holder(node) is scope.node else far).append(node)
        for near, _ in found.values():
            near.sort(key=lambda use: use.lineno)
        return found

    @cached_property
    def attributes_of(self) -> dict[str, list[ast.Attribute]]:
        """Attributes of the file by their name."""
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.source.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.setdefault(node.attr, []).append(node)
        return found

    @cached_property
    def calls_named(self) -> dict[str, list[ast.Call]]:
        """Calls of the file by the name of what is called."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def functions_named(self) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
        """Functions of the file by their name."""
        found: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        for node in self.source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append(node)
        return found

    def own_function(self, called: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the function of this file that a call runs, if exactly one can be meant; else None."""
        method = isinstance(called, ast.Attribute)
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if isinstance(called, ast.Attribute) and self.names.qualified(called.value) is not None:
            return None
        if isinstance(called, ast.Name) and name not in self.functions_named and name in self.classes_named:
            name, method = "__init__", True
            found = [
                function
                for function in self.functions_named.get(name, [])
                if self.source.parents[function] is self.classes_named[called.id]
            ]
        else:
            found = [
                item
                for item in self.functions_named.get(name, [])
                if isinstance(self.source.parents[item], ast.ClassDef) == method
            ]
        return found[0] if len(found) == 1 else None

    @cached_property
    def classes_named(self) -> dict[str, ast.ClassDef]:
        """Classes of the file by their name."""
        return {node.name: node for node in self.source.nodes if isinstance(node, ast.ClassDef)}

    def parameter_name(self, function: str, position: int, keyword: str) -> str:
        """Return the name of the parameter that an argument is given for."""
        if keyword:
            return keyword
        arguments = self.project.functions[function][1].args
        entries = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
        return entries[position] if 0 <= position < len(entries) else "?"

    def scope_holding(self, name: ast.Name) -> Scope:
        """Return the scope that binds a name."""
        scope = self.names.scope_of(name)
        while name.id not in scope.bound and scope.outer is not None:
            scope = scope.elsewhere.get(name.id, scope.outer)
        return scope


# ---- the survey


def note_uses(project: Project, files: dict[str, Names]) -> None:
    """Answer the questions that loads in one file put to others, in `project.uses`."""
    flows = {path: Flow(names, project) for path, names in files.items() if path in project.torch_files}
    asked: dict[str, set[str]] = {}  # question -> those that its answers depend on
    for flow in flows.values():
        for call in loads_in(flow.names):
            flow.uses(call)
    for _ in range(ROUNDS):
        fresh = {question for flow in flows.values() for question in flow.questions} - asked.keys()
        concerned = flows_by_name(flows.values(), {question.rpartition(".")[2] for question in fresh})
        for question in sorted(fresh):
            asked[question] = set()
            for flow in concerned.get(question.rpartition(".")[2], ()):
                outer, flow.questions = flow.questions, set()
                found = answer(flow, question)
                if found and flow.works_on_card:
                    found.add(CARD)
                asked[question] |= flow.questions
                flow.questions |= outer
                if found:
                    project.uses.setdefault(question, set()).update(found)
    for _ in range(ROUNDS):
        for question, needed in asked.items():
            found = set[str]().union(*(project.uses.get(node, set()) for node in needed))
            if found:
                project.uses.setdefault(question, set()).update(found)


def flows_by_name(flows: Iterable[Flow], names: set[str]) -> dict[str, list[Flow]]:
    """Return, by name, the files that call or define a function of the name, or read such an attribute."""
    found: dict[str, list[Flow]] = {}
    for flow in flows if names else ():
        for name in names & (flow.calls_named.keys() | flow.functions_named.keys() | flow.attributes_of.keys()):
            found.setdefault(name, []).append(flow)
    return found


def loads_in(names: Names) -> Iterator[ast.Call]:
    """Yield the loads of checkpoints in a file."""
    if "load" in names.source.text:
        for node in names.source.nodes:
            if isinstance(node, ast.Call) and names.qualified(node.func) in LOADS:
                yield node


def answer(flow: Flow, question: str) -> set[str]:
    """Return the uses of a function's result in this file, or of a parameter of a function that is defined here."""
    subject, _, function = question.partition(" of ")
    own, _, last = function.rpartition(".")
    if subject == "result":
        calls = [
            call
            for call in flow.calls_named.get(last, [])
            if (flow.names.qualified(call.func) == function if own else is_method_call(flow, call))
        ]
        local = own == flow.names.own or (not own and last in flow.functions_named)
        return set() if local else uses_of_all(flow, calls)
    if subject == "value":
        return set() if last in flow.functions_named else uses_of_all(flow, flow.attributes_of.get(last, []))
    if own != flow.names.own:
        return set()
    parameter = subject.removeprefix("parameter ")
    defined = [item for item in flow.functions_named.get(last, []) if flow.source.parents[item] is flow.source.tree]
    return {use for binding in defined for use in flow.parameter_uses(binding, parameter)}


def uses_of_all(flow: Flow, nodes: Sequence[ast.expr]) -> set[str]:
    """Return the uses of the values of several nodes."""
    return {CALLED, *(use for node in nodes for use in flow.uses(node))} if nodes else set()


def is_property(function: Function) -> bool:
    """`@property`, `@functools.cached_property` and their like."""
    named = (
        getattr(decorator, "attr", getattr(decorator, "id", ""))
        for decorator in getattr(function, "decorator_list", [])
    )
    return any(name.endswith("property") for name in named)


def is_method_call(flow: Flow, call: ast.Call) -> bool:
    """Return True for a call on something that is no module."""
    return isinstance(call.func, ast.Attribute) and flow.names.qualified(call.func.value) is None
