"""Find the uses of a value, such as the result of torch.load, by following it from the expression that makes it.

A value is followed through names, attributes, subscripts, new dictionaries, loops, parameters and results of functions.
Where it leaves a file, a question is recorded: what do other files do with the result of `pkg.load_weights`, or with
the parameter `state` of `pkg.resume`? A survey of all files answers these questions beforehand (flow_survey.py).
"""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.lookups import find_called_function, find_parameter, last_name
from viaduct.migration.names import Function, Names, Scope
from viaduct.migration.predicates import is_property
from viaduct.migration.project import Project
from viaduct.migration.source import FunctionNode, group_by_name


class Use(Enum):
    """Use of a value."""

    STATE = "its tensors are copied into a network or an optimizer"
    NETWORK = "it is called, or a method that networks have is called"
    MOVED = "it is moved to a device, or becomes a part of a network, which is moved later"
    HOST = "it is read on the host"
    TENSOR = "it is an operand of a computation"
    UNKNOWN = "it is not followed further"
    NEAR_DEVICES = "another file uses it, and that file mentions devices"


@dataclass(frozen=True, order=True)
class Question:
    """Question about the uses of a value in other files."""

    subject: Literal["result", "property", "parameter"]
    module: str  # of the function; empty for a method or property, which is recognised by its name alone
    function: str
    parameter: str = ""


# Methods that return the value itself or a part of it.
VALUE_METHODS = {
    "get", "pop", "items", "values", "copy", "setdefault", "state_dict", "popitem", "__getitem__", "share_memory_",
    "float", "half", "double", "bfloat16", "type", "detach", "clone", "contiguous", "requires_grad_",
    "view", "reshape", "unsqueeze", "squeeze", "t", "transpose", "permute", "flatten", "expand", "repeat",
}  # fmt: skip
# Methods that networks have. What torch.load returns counts as a network if one of them is called, although other
# objects, such as tokenizers and estimators, have some of these methods too.
NETWORK_METHODS = {
    "eval", "train", "forward", "parameters", "named_parameters", "modules", "named_modules", "children", "generate",
    "zero_grad", "predict", "sample", "encode", "decode", "inference", "named_children", "buffers", "apply",
}  # fmt: skip
MOVE_METHODS = ("to", *DEVICE_TYPES, "cpu", "xpu", "to_empty")
HOST_METHODS = ("numpy", "tolist", "item", "__array__")
# Methods whose call does not count as a use.
NEUTRAL_METHODS = {
    "keys", "size", "dim", "numel", "stride", "element_size", "is_floating_point", "ndimension", "get_device",
    "load_state_dict",
}  # fmt: skip
# Methods that store an argument in their object.
STORING_METHODS = {"update", "append", "extend", "insert", "add", "__setitem__"}
# Builtins and functions that return their argument, or a container or iterator with it.
PASSING_BUILTINS = {
    "dict", "list", "tuple", "set", "iter", "next", "sorted", "enumerate", "zip", "reversed", "map", "filter",
}  # fmt: skip
COPYING_CALLS = (
    "collections.OrderedDict", "copy.deepcopy", "copy.copy", "types.SimpleNamespace", "tqdm.tqdm",
    "itertools.islice",
)  # fmt: skip
# Builtins that only inspect or print their argument.
INSPECTING_BUILTINS = {
    "print", "len", "type", "isinstance", "hasattr", "str", "repr", "bool", "any", "all", "id", "callable", "vars",
    "dir", "format", "int", "float", "max", "min", "sum", "range", "issubclass", "delattr",
}  # fmt: skip
HOST_LIBRARIES = {"numpy", "pandas", "PIL", "cv2", "scipy", "sklearn", "matplotlib", "h5py"}
# Modules and loggers whose functions only print a value or write it to a file.
PRINTING_NAMES = {"logging", "logger", "pprint", "warnings", "json", "yaml"}
LOG_METHODS = ("info", "warning", "debug", "error", "exception", "log")
# Functions that make a value a part of a network: `self.register_buffer("mean", value)`, nn.Embedding.from_pretrained.
NETWORK_PART_FUNCTIONS = ("register_buffer", "register_parameter", "from_pretrained")
PARAMETER_CLASSES = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
# Names of functions and keyword arguments that load weights into a network or an optimizer.
STATE_NAME = re.compile(
    r"load\w*(?:state|weight|param|checkpoint|ckpt|pretrain|model|dict)|set_\w*state|state_dict|copy_$"
)
DATASET_CLASS = re.compile(r"(?:^|\.)(?:\w*Dataset|\w*DataLoader|random_split|Subset)$")
MAX_DEVICE_TEXT = len("accelerator")  # a longer string that begins with DEVICE_WORD is prose or a path
DEVICE_WORD = re.compile(r"cuda|npu|mlu|gpu|device|accelerator", re.IGNORECASE)
Loop = ast.For | ast.AsyncFor | ast.While
# Expressions whose value is, or contains, the value of a child.
CONTAINING_NODES = (
    ast.Subscript, ast.IfExp, ast.BoolOp, ast.Await, ast.Starred, ast.Dict, ast.List, ast.Tuple, ast.Set,
    ast.DictComp, ast.ListComp, ast.GeneratorExp, ast.SetComp,
)  # fmt: skip
ReadsKey = tuple[ast.AST | None, str]
"""Key of all reads of a name or an attribute: (node of the scope, name) or (None, attribute)."""


class FileFlow:
    """Flow of the values of one file."""

    def __init__(self, names: Names, project: Project) -> None:
        self.names, self.source, self.project = names, names.source, project
        self.questions: set[Question] = set()  # about other files; raised by the values that were followed
        self.trails: dict[ReadsKey, Trail] = {}  # cache: trails from all reads of a name or attribute
        self.assignment_lines: dict[int, dict[str, list[tuple[int, int]]]] = {}  # see find_lines_of_assignments

    def find_uses(self, nodes: Iterable[ast.AST]) -> set[Use]:
        """Return the uses of expressions' values, in this file and, as far as the survey knows, in others."""
        trail = Trail(self)
        for node in nodes:
            trail.follow(node)
        return self.collect_uses(trail)

    def find_parameter_uses(self, function: Function, parameter: str) -> set[Use]:
        trail = Trail(self)
        trail.follow_name(parameter, self.names.scopes[function])
        return self.collect_uses(trail)

    def collect_uses(self, trail: Trail) -> set[Use]:
        """Run a trail; return the uses that it leads to, with those in other files."""
        trail.run()
        self.questions |= trail.questions
        answers = self.project.uses_by_question
        return trail.uses.union(*(answers.get(question, set()) for question in trail.questions))

    @cached_property
    def mentions_devices(self) -> bool:
        """True if a name in the file contains `cuda`, `device` or the like, or a short string begins with it."""
        for node in self.source.nodes:
            match node:
                case ast.Attribute(attr=text) | ast.Name(id=text) | ast.arg(arg=text) | ast.keyword(arg=str(text)):
                    if DEVICE_WORD.search(text):
                        return True
                case ast.Constant(value=str(text)) if len(text) <= MAX_DEVICE_TEXT and DEVICE_WORD.match(text):
                    return True
        return False

    # ---- reads and calls

    @cached_property
    def reads(self) -> dict[ReadsKey, tuple[list[ast.Name], list[ast.Name]]]:
        """Reads of each name: (those in the function that binds the name, by line; those in nested functions)."""
        by_name: dict[ReadsKey, tuple[list[ast.Name], list[ast.Name]]] = {}
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
        return group_by_name((last_name(call.func), call) for call in self.source.nodes_of_type(ast.Call))

    def binding_scope(self, name: ast.Name) -> Scope:
        """Return the scope that binds a name, or the module's."""
        scope = self.names.scope_of(name)
        while name.id not in scope.bindings and scope.outer is not None:
            scope = scope.global_or_nonlocal.get(name.id, scope.outer)
        return scope

    def function_around(self, node: ast.AST) -> ast.AST:
        return self.source.function_around(node) or self.source.tree

    def find_lines_of_value(self, name: str, scope: Scope, binder: ast.AST) -> tuple[int, int] | None:
        """Return the first and last line on which a name can have the value that it gets at the node `binder`.

        The last line is that of the next `name = value` in the same block. Return None if the name may have the value
        on any line: `binder` is in a loop, or outside the function to which the name belongs.
        """
        statement = self.source.statement_around(binder)
        in_loop = any(isinstance(parent, Loop) for parent in self.source.ancestors(statement))
        if in_loop or self.function_around(statement) is not scope.node:
            return None
        assignments = self.find_lines_of_assignments(statement).get(name, [])
        position = bisect_right(assignments, statement.lineno, key=lambda lines: lines[0])
        return statement.lineno, assignments[position][1] if position < len(assignments) else sys.maxsize

    def find_lines_of_assignments(self, statement: ast.stmt) -> dict[str, list[tuple[int, int]]]:
        """Return, for each name, the first and last line of each `name = value` in the block of a statement."""
        block = self.source.block_around(statement)
        if id(block) not in self.assignment_lines:
            lines = self.assignment_lines[id(block)] = defaultdict(list)
            for sibling in block:
                match sibling:
                    case ast.Assign(targets=[ast.Name(id=name)]):
                        lines[name].append((sibling.lineno, sibling.end_lineno or sibling.lineno))
        return self.assignment_lines[id(block)]


class Trail:
    """Search for the uses of some values of a file: `follow` them, then `run`.

    A method `follow_…` records a use, or adds to `pending` the expressions that get the value.
    """

    def __init__(self, flow: FileFlow, uses_cache: bool = True) -> None:
        self.flow, self.source, self.names = flow, flow.source, flow.names
        self.uses_cache = uses_cache  # False for the trails of the cache itself
        self.uses: set[Use] = set()
        self.questions: set[Question] = set()
        self.pending: list[ast.AST] = []
        self.visited: set[object] = set()  # expressions, functions, and names with the lines of their value

    def run(self) -> None:
        """Follow the pending expressions, and those that they lead to."""
        while self.pending:
            self.follow_to_parent(self.pending.pop())

    def visit(self, key: object) -> bool:
        """Return True at the first visit."""
        if key in self.visited:
            return False
        self.visited.add(key)
        return True

    def follow(self, node: ast.AST) -> None:
        """Add an expression to `pending`, once."""
        if self.visit(node):
            self.pending.append(node)

    def follow_to_parent(self, node: ast.AST) -> None:
        """Follow the value of an expression according to the expression's parent."""
        parent = self.source.parents[node]
        match parent:
            case ast.Attribute():
                self.follow_attribute(parent)
            case ast.Call() if parent.func is node:
                self.uses.add(Use.NETWORK)
            case ast.Call() if isinstance(node, ast.expr):
                self.follow_argument(parent, node)
            case ast.keyword():
                call = self.source.parents[parent]
                if isinstance(call, ast.Call):  # else a keyword of a class definition
                    self.follow_argument(call, parent)
            case ast.NamedExpr():
                self.follow(parent)
                self.follow_target(parent.target, parent)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
                    self.follow_target(target, parent)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                self.follow_result(parent)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                if parent.iter is node:
                    self.follow_target(parent.target, parent)
            case ast.withitem() if isinstance(parent.optional_vars, ast.expr):
                self.follow_target(parent.optional_vars, parent)
            case ast.IfExp() if parent.test is node:
                pass
            case ast.Subscript() if parent.value is not node:
                pass
            case ast.Lambda() | ast.Match():
                self.uses.add(Use.UNKNOWN)
            case ast.BinOp() | ast.UnaryOp() if not isinstance(parent.op, ast.Not):
                self.uses.add(Use.TENSOR)
            case _ if isinstance(parent, CONTAINING_NODES):
                self.follow(parent)

    def follow_attribute(self, node: ast.Attribute) -> None:
        """Follow the value of `value.name` or of `value.name(…)`."""
        call = self.source.parents[node]
        if not (isinstance(call, ast.Call) and call.func is node):
            self.follow(node)
        elif node.attr in MOVE_METHODS:
            self.uses.add(Use.MOVED)
        elif node.attr in HOST_METHODS:
            self.uses.add(Use.HOST)
        elif node.attr in NETWORK_METHODS:
            self.uses.add(Use.NETWORK)
        elif node.attr in VALUE_METHODS:
            self.follow(call)
        elif node.attr not in NEUTRAL_METHODS and node.attr not in STORING_METHODS:
            self.uses.add(Use.UNKNOWN)

    def follow_argument(self, call: ast.Call, argument: ast.expr | ast.keyword) -> None:
        """Follow a value that is an argument of a call."""
        name, last = self.names.qualified(call.func) or "", last_name(call.func)
        builtin = last if isinstance(call.func, ast.Name) else ""
        function = find_called_function(self.names, call)
        if isinstance(argument, ast.keyword) and STATE_NAME.search(argument.arg or ""):
            self.uses.add(Use.STATE)
        elif function is not None:
            self.follow_parameter(function, call, argument)
        elif name in self.flow.project.functions:
            self.ask_about_parameter(name, call, argument)
        elif STATE_NAME.search(last):
            self.uses.add(Use.STATE)
        elif last in STORING_METHODS and isinstance(call.func, ast.Attribute):
            self.follow_container(call.func.value)
        elif name in COPYING_CALLS or builtin in PASSING_BUILTINS or is_object_of_getattr(argument, call):
            self.follow(call)
        elif builtin in INSPECTING_BUILTINS or name == "torch.save" or only_prints(call.func):
            pass
        elif DATASET_CLASS.search(name or last) or name.partition(".")[0] in HOST_LIBRARIES:
            self.uses.add(Use.HOST)
        elif last in NETWORK_PART_FUNCTIONS or name in PARAMETER_CLASSES:
            self.uses.add(Use.MOVED)
        else:
            self.uses.add(Use.TENSOR if name.startswith("torch.") else Use.UNKNOWN)

    def ask_about_parameter(self, function: str, call: ast.Call, argument: ast.expr | ast.keyword) -> None:
        """Ask what a function of another file does with an argument."""
        parameter = find_parameter(self.flow.project.functions[function][1], call, argument)
        module, _, name = function.rpartition(".")
        if parameter is None:
            self.uses.add(Use.UNKNOWN)
        else:
            self.questions.add(Question("parameter", module, name, parameter))

    def follow_parameter(self, function: FunctionNode, call: ast.Call, argument: ast.expr | ast.keyword) -> None:
        """Follow an argument into a function of this file."""
        parameter = find_parameter(function, call, argument, isinstance(self.source.parents[function], ast.ClassDef))
        if parameter is None:
            self.uses.add(Use.UNKNOWN)
        else:
            self.follow_name(parameter, self.names.scopes[function])

    def follow_container(self, container: ast.expr) -> None:
        """Follow the object that stores a value, as in `weights.update(value)`."""
        if isinstance(container, ast.Name | ast.Attribute | ast.Subscript):
            self.follow_target(container, container)
        else:
            self.uses.add(Use.UNKNOWN)

    def follow_target(self, target: ast.expr, binder: ast.AST) -> None:
        """Follow a value to the reads of a target. `binder`: the node that gives the value to the target."""
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self.follow_target(element, binder)
        elif isinstance(target, ast.Starred):
            self.follow_target(target.value, binder)
        elif isinstance(target, ast.Name):
            self.follow_name(target.id, self.flow.binding_scope(target), binder)
        elif isinstance(target, ast.Attribute):
            self.follow_reads_of_attribute(target.attr)
        elif isinstance(target, ast.Subscript):
            self.follow_container(target.value)

    def follow_name(self, name: str, scope: Scope, binder: ast.AST | None = None) -> None:
        """Follow a name to its reads; with `binder`, to those that may read the value that it gets there."""
        lines = self.flow.find_lines_of_value(name, scope, binder) if binder is not None else None
        if not self.visit((scope.node, name, lines)):
            return
        direct, nested = self.flow.reads.get((scope.node, name), ([], []))
        if scope.outer is None and not direct and not nested:
            self.uses.add(Use.UNKNOWN)  # a module-level name; other files may read it
        if lines is None:
            self.follow_all_reads((scope.node, name), [*direct, *nested])
            return
        start = bisect_left(direct, lines[0], key=lambda read: read.lineno)
        stop = bisect_right(direct, lines[1], key=lambda read: read.lineno)
        for read in (*direct[start:stop], *nested):
            self.follow(read)

    def follow_reads_of_attribute(self, attribute: str) -> None:
        """Follow `self.state = …` to every read of an attribute `state` in the file, of any object."""
        if self.visit((None, attribute)):
            self.follow_all_reads((None, attribute), self.flow.attribute_reads.get(attribute, []))

    def follow_all_reads(self, key: ReadsKey, reads: Iterable[ast.AST]) -> None:
        """Follow all reads of a name or attribute; with the cache, once for all trails that come to them."""
        if not self.uses_cache:
            for read in reads:
                self.follow(read)
            return
        if key not in self.flow.trails:
            trail = self.flow.trails[key] = Trail(self.flow, uses_cache=False)
            for read in reads:
                trail.follow(read)
            trail.run()
        self.uses |= self.flow.trails[key].uses
        self.questions |= self.flow.trails[key].questions

    def follow_result(self, statement: ast.AST) -> None:
        """Follow a returned value to every call of the function in this file; ask about the calls in other files.

        A call that cannot be resolved counts as a call of the function if it has the function's name.
        """
        function = self.source.function_around(statement)
        if function is None or not self.visit(function):
            return
        is_method = isinstance(self.source.parents[function], ast.ClassDef)
        readers: list[ast.expr]
        if is_method and is_property(function):
            question = Question("property", module="", function=function.name)
            readers = [*self.flow.attribute_reads.get(function.name, [])]
        else:
            question = Question("result", "" if is_method else self.names.module, function.name)
            readers = [
                call
                for call in self.flow.calls_by_name.get(function.name, [])
                if isinstance(call.func, ast.Attribute) == is_method
                and find_called_function(self.names, call) in (function, None)
            ]
        for reader in readers:
            self.follow(reader)
        self.questions.add(question)
        if not readers and question not in self.flow.project.uses_by_question:
            self.uses.add(Use.UNKNOWN)  # no call is known


def is_object_of_getattr(argument: ast.AST, call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "getattr" and argument is call.args[0]


def only_prints(callee: ast.expr) -> bool:
    """Return True for functions of PRINTING_NAMES (`logging.…`, `json.…`) and for log methods (`self.log.info`)."""
    root = callee
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and (root.id in PRINTING_NAMES or getattr(callee, "attr", "") in LOG_METHODS)
