"""Kinds of values: whether an expression is a dataset, a session or a run configuration.

A kind is a string: one that `kind_of_call` returns, `object:` with a class of the project, or `tuple:` with the kinds
of the elements. None: the text does not show the kind. The kind of a call follows from the function or method. The kind
of a name follows from all its assignments in the scope, the kind of a parameter from all arguments that the project
passes for it. A parameter is also a dataset if it is annotated as one, or if the function uses it as only a TensorFlow
dataset can be used.
"""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from viaduct.cards import DEVICE_TYPES
from viaduct.cards.tensorflow_api import full_name
from viaduct.migration import classes
from viaduct.migration.classes import OBJECT
from viaduct.migration.names import Function, Names, Scope, Table, all_parameters
from viaduct.migration.predicates import is_none, is_property, is_self
from viaduct.migration.project import Project, returns_of
from viaduct.migration.sessions import MONITORED_SESSIONS, SESSION_CLASSES
from viaduct.migration.source import FunctionNode

DATASET_METHODS = {
    "apply", "batch", "cache", "concatenate", "enumerate", "filter", "flat_map", "interleave", "map",
    "map_and_batch", "padded_batch", "prefetch", "reduce", "repeat", "shard", "shuffle", "skip", "take", "unbatch",
    "window", "zip", "with_options", "from_generator", "from_tensors", "from_tensor_slices", "list_files", "range",
}  # fmt: skip
# Methods, keywords and arguments of TensorFlow's datasets that other libraries lack. A parameter used with one of them,
# and otherwise with dataset methods only, is a dataset.
TENSORFLOW_METHODS = {"interleave", "padded_batch", "make_one_shot_iterator", "make_initializable_iterator"}
TENSORFLOW_KEYWORDS = {"num_parallel_calls", "reshuffle_each_iteration", "drop_remainder", "padded_shapes"}
TENSORFLOW_ARGUMENTS = ("tensorflow.data.", "tensorflow.contrib.data.")
# Libraries whose objects have methods named like those of TensorFlow's datasets.
OTHER_LIBRARIES = (
    "webdataset", "datasets", "torch", "torchdata", "torchtext", "ray", "mxnet", "paddle", "pandas", "numpy",
)  # fmt: skip
# Methods of modules and tensors that return the same kind.
CONVERSIONS = {"to", *DEVICE_TYPES, "cpu", "half", "float", "double", "bfloat16", "requires_grad_", "type"}
# Kind of an object -> its methods that return an object of the same kind.
SAME_KIND_METHODS = {
    "dataset": DATASET_METHODS - {"reduce"},
    "module": CONVERSIONS | {"train", "eval", "apply"},
    "class_loss": CONVERSIONS,
    "tensor": CONVERSIONS | {"clone", "detach", "contiguous", "view", "reshape", "unsqueeze", "squeeze", "long", "int"},
}
# Functions and classes of torch that create a tensor.
TENSOR_CONSTRUCTORS = {
    "arange", "as_tensor", "cat", "empty", "empty_like", "eye", "from_numpy", "full", "full_like", "linspace",
    "ones", "ones_like", "rand", "rand_like", "randint", "randn", "randn_like", "randperm", "stack", "tensor",
    "zeros", "zeros_like", "Tensor", "FloatTensor", "LongTensor", "IntTensor", "nn.Parameter",
}  # fmt: skip
CONSTRUCTORS = {
    **dict.fromkeys(SESSION_CLASSES, "session"),
    **dict.fromkeys((*MONITORED_SESSIONS, "tensorflow.train.MonitoredSession"), "monitored_session"),
    "tensorflow.train.Supervisor": "supervisor",
    "tensorflow.train.SessionManager": "session_manager",
    "tensorflow.ConfigProto": "config_proto",
    "tensorflow.core.protobuf.config_pb2.ConfigProto": "config_proto",
    full_name("npu_config_proto"): "npu_config_proto",
    "tensorflow.estimator.RunConfig": "run_config",
    "tensorflow.estimator.tpu.RunConfig": "tpu_run_config",
    **dict.fromkeys(map(full_name, ("NPURunConfig", "npu_run_config_init")), "npu_run_config"),
    "tensorflow.estimator.Estimator": "estimator",
    "tensorflow.estimator.tpu.TPUEstimator": "estimator",
    full_name("NPUEstimator"): "npu_estimator",
    **dict.fromkeys(
        map(full_name, ("NPUDistributedOptimizer", "npu_distributed_optimizer_wrapper", "npu_tf_optimizer")),
        "npu_optimizer",
    ),
    full_name("NPULossScaleOptimizer"): "loss_scale_optimizer",
    "tensorflow.train.experimental.enable_mixed_precision_graph_rewrite": "optimizer",
    "tensorflow.train.experimental.MixedPrecisionLossScaleOptimizer": "loss_scale_optimizer",
    "tensorflow.contrib.mixed_precision.LossScaleOptimizer": "loss_scale_optimizer",
    **{
        f"{keras}.{name}": "keras_model"
        for keras in ("tensorflow.keras", "keras")
        for name in ("models.Sequential", "models.Model", "Sequential", "Model", "models.load_model")
    },
    **{f"tensorflow.keras.models.{name}": "keras_model" for name in ("clone_model", "model_from_json")},
    **{f"tensorflow.train.{name}": "global_step" for name in ("get_global_step", "get_or_create_global_step")},
}


def kind_of_call(name: str) -> str | None:
    """Return the kind of the result of calling a qualified name, or None."""
    if name in CONSTRUCTORS:
        return CONSTRUCTORS[name]
    last = name.rpartition(".")[2]
    if name.startswith("tensorflow.data.") and "Dataset" in name:
        return "dataset"
    if name.startswith("tensorflow.data.experimental.make_") and name.endswith("_dataset"):
        return "dataset"
    if name.startswith(("tensorflow.keras.applications.", "keras.applications.")) and last[:1].isupper():
        return "keras_model"
    if name.startswith("torch"):
        return kind_of_torch_call(name, last)
    if name.startswith(("tensorflow.keras.optimizers.", "keras.optimizers.")):
        return "keras_optimizer"
    if name.startswith(("tensorflow.train.", "tensorflow.contrib.opt.")) and last.endswith("Optimizer"):
        return "optimizer"
    return None


def kind_of_torch_call(name: str, last: str) -> str | None:
    """Return the kind of the result of a function or class of PyTorch; `last` is the last part of its name.

    class_loss: a loss whose targets are class indices.
    """
    if last in ("CrossEntropyLoss", "NLLLoss") and name.startswith("torch.nn."):
        return "class_loss"
    if name == "torch.device":
        return "torch_device"
    if name.removeprefix("torch.") in TENSOR_CONSTRUCTORS:
        return "tensor"
    if name.startswith("torchvision.models.") or (name.startswith("torch.nn.") and last[:1].isupper()):
        return "module"
    return None


class Undecided:
    """Provisional kind of an expression that depends on a name whose kind is still being computed."""


UNDECIDED = Undecided()
Kind = str | None | Undecided
Key = tuple[str, object, str]
"""One of ("name", scope, name), ("self", class, attribute), ("method", class, name) and ("expression", node, "")."""
MAX_ELEMENTS = 8  # a longer tuple has no kind
TUPLE = "tuple:"
"""Prefix of the kind of a tuple. The kinds of its elements follow, separated by `|`; an unknown one is empty."""
TORCH_KINDS = ("module", "tensor", "class_loss", "torch_device")
"""Kinds that are not recorded for attributes and results of methods: classes.record_methods."""


@dataclass(frozen=True, slots=True)
class Element:
    """Value that one target of `a, b = pair` or `a = b = value` gets."""

    value: ast.expr
    index: int  # position in `a, b = pair`; -1 in `a = b = value`
    count: int  # number of targets in `a, b = pair`


def cached_in_names(make: Callable[[Values], Table]) -> cached_property[Table]:
    """Make a property of Values that depends on the text alone; `Names.get_table` caches it for all Values."""
    return cached_property(lambda values: values.names.get_table(make.__name__, lambda: make(values)))


class Values:
    """Kinds of the expressions of one file.

    Names and attributes of `self` depend on each other (`ds = ds.map(f)`, `self.ds = ds`), so `solve` computes their
    kinds together: each is undecided at first and is evaluated again when a kind that it depends on changes. A kind
    changes at most twice (undecided, known, contradictory), so this ends.
    """

    def __init__(self, names: Names, project: Project) -> None:
        self.names, self.project = names, project
        self.known: dict[Key, str | None] = {}  # kinds that `solve` has computed
        self.expressions: dict[ast.AST, str | None] = {}  # see full_kind
        self.solving: dict[Key, Kind] = {}  # kinds so far, while `solve` runs
        self.users: dict[Key, dict[Key, None]] = {}  # key -> keys whose kinds depend on its kind
        self.queue: deque[Key] = deque()  # keys to evaluate; `queued` is the same as a set
        self.queued: set[Key] = set()
        self.current: Key = ("expression", None, "")  # the key that is being evaluated
        self.methods: dict[ast.ClassDef, dict[str, list[ast.FunctionDef]]] = {}  # see methods_of
        self.other_library_names: dict[tuple[int, str], bool] = {}  # see is_from_other_library
        self.uses: dict[ast.AST, dict[str, list[ast.Attribute]]] = {}  # function -> name -> every `name.x`

    def kind(self, node: ast.AST | None) -> str | None:
        """Return the kind of an expression; None for tuples, and for objects of classes outside PyTorch files."""
        kind = self.full_kind(node)
        if kind is not None and kind.startswith((OBJECT, TUPLE)):
            return kind if classes.is_torch_object(self.project, kind) else None
        return kind

    def full_kind(self, node: ast.AST | None) -> str | None:
        """Return the kind of an expression, also of tuples and objects of any class of the project."""
        if node is None:
            return None
        if node not in self.expressions:
            self.expressions[node] = self.solve(("expression", node, ""))
        return self.expressions[node]

    def solve(self, key: Key) -> str | None:
        """Compute the kinds of a key and of all keys that it depends on."""
        if key in self.known:
            return self.known[key]
        self.solving, self.users = {key: UNDECIDED}, {}
        self.enqueue(key)
        while self.queue:
            self.current = self.queue.popleft()
            self.queued.discard(self.current)
            if self.solving[self.current] is None:
                continue  # a contradiction stays one
            kind = self.evaluate(*self.current)
            if kind != self.solving[self.current]:
                self.solving[self.current] = kind
                for user in self.users.get(self.current, ()):
                    self.enqueue(user)
        for solved, kind in self.solving.items():
            self.known[solved] = None if isinstance(kind, Undecided) else kind
        return self.known[key]

    def enqueue(self, key: Key) -> None:
        if key not in self.queued:
            self.queued.add(key)
            self.queue.append(key)

    def read(self, key: Key) -> Kind:
        """Return the kind of a key so far; the current key is evaluated again when this kind changes."""
        if key in self.known:
            return self.known[key]
        self.users.setdefault(key, {})[self.current] = None
        if key not in self.solving:
            self.solving[key] = UNDECIDED
            self.enqueue(key)
        return self.solving[key]

    def evaluate(self, key_type: str, owner: Any, name: str) -> Kind:
        """Return the kind of a key (see `Key`), computed from the kinds so far of the keys that it depends on."""
        if key_type == "name":
            return self.kind_of_bound(owner, name)
        if key_type == "self":
            return self.kind_of_own_attribute(owner, name)
        return self.kind_of_own_method(owner, name) if key_type == "method" else self.find_kind(owner)

    def find_kind(self, node: ast.AST | None) -> Kind:
        """Return the kind of an expression. Of `a.b().c()` first the kind of `a` is found, then that of each link."""
        chain: list[ast.Call | ast.Attribute] = []
        while True:
            if isinstance(node, ast.Call):
                kind: Kind = self.kind_by_name(node)
                if kind is not None:
                    break
                if not isinstance(node.func, ast.Attribute):
                    return None
                chain.append(node)
                node = node.func.value
            elif isinstance(node, ast.Attribute) and not is_self(node.value):
                chain.append(node)
                node = node.value
            elif isinstance(node, ast.NamedExpr | ast.Await):
                node = node.value
            else:
                kind = self.kind_of_chain_start(node, chain)
                break
        for link in reversed(chain):
            if kind is None:
                break
            if not isinstance(kind, Undecided):
                kind = self.kind_of_link(kind, link)
        return kind

    def kind_of_chain_start(self, node: ast.AST | None, chain: list[ast.Call | ast.Attribute]) -> Kind:
        """Return the kind of a chain's first expression; of `self.x` and `self.f()`, which count as first expressions.

        For `self.f()` the call is removed from `chain`.
        """
        if isinstance(node, ast.Attribute) or (node is not None and is_self(node)):
            owner = self.names.source.class_around(node)
            if owner is None:
                return None
            if isinstance(node, ast.Attribute):
                return self.read(("self", owner, node.attr))
            if chain and isinstance(chain[-1], ast.Call):
                return self.read(("method", owner, chain.pop().func.attr))  # type: ignore[union-attr]
            return self.kind_of_self(owner)
        if isinstance(node, ast.Name):
            scope = self.names.binding_scope(node.id, self.names.scope_of(node))
            return self.read(("name", scope, node.id)) if scope is not None else None
        if isinstance(node, ast.IfExp):
            return single_kind({self.find_kind(node.body), self.find_kind(node.orelse)})
        if isinstance(node, ast.Tuple) and len(node.elts) <= MAX_ELEMENTS:
            return self.kind_of_tuple(node)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and type(node.slice.value) is int:
            kind = self.find_kind(node.value)
            return kind if isinstance(kind, Undecided) else element_of(kind, node.slice.value)
        return None

    def kind_of_tuple(self, node: ast.Tuple) -> Kind:
        """Return the kind of a tuple; the kind of a nested tuple is unknown."""
        kinds = [self.find_kind(element) for element in node.elts]
        if any(isinstance(kind, Undecided) for kind in kinds):
            return UNDECIDED
        texts = [kind if isinstance(kind, str) and not kind.startswith(TUPLE) else "" for kind in kinds]
        return f"{TUPLE}{'|'.join(texts)}" if any(texts) else None

    def kind_by_name(self, node: ast.Call) -> str | None:
        """Return the kind of a call, by the qualified name of the function or class."""
        name = self.names.qualified(node.func)
        if not name:
            return None
        kind = kind_of_call(name) or self.project.result_kinds.get(name)
        if kind:
            return kind
        class_name = classes.find_class(self.project, name) if self.project.classes else None
        return f"{OBJECT}{class_name}" if class_name is not None else None

    def kind_of_link(self, object_kind: str, link: ast.Call | ast.Attribute) -> str | None:
        """Return the kind of `object.method()` or `object.attribute`."""
        is_own = object_kind.startswith(OBJECT)
        if isinstance(link, ast.Attribute):
            owner = object_kind.removeprefix(OBJECT)
            return classes.find_attribute_kind(self.project, owner, link.attr) if is_own else None
        method = link.func.attr  # type: ignore[attr-defined]
        if method in SAME_KIND_METHODS.get(object_kind, ()):
            return object_kind
        return self.kind_from_method(object_kind, method) if is_own else None

    def kind_from_method(self, object_kind: str, method: str) -> str | None:
        """Return the kind of `object.method()` for an object of the project's class, also for nn.Module's methods."""
        name = object_kind.removeprefix(OBJECT)
        owner = classes.find_method_owner(self.project, name, method)
        if owner is not None:
            return self.project.result_kinds.get(f"{owner}.{method}")
        return object_kind if method in SAME_KIND_METHODS["module"] and classes.is_module(self.project, name) else None

    def kind_of_self(self, owner: ast.ClassDef) -> str | None:
        """Return the kind of `self` in a class; None if the survey does not have the class."""
        name = f"{self.names.module}.{owner.name}"
        return f"{OBJECT}{name}" if name in self.project.classes else None

    def kind_of_own_method(self, owner: ast.ClassDef, name: str) -> Kind:
        """Return the kind that all return statements of a method, defined here or inherited, agree on."""
        methods = self.methods_of(owner).get(name)
        if methods:
            return single_kind({self.find_kind(statement.value) for statement in returns_of(self.names, methods[0])})
        object_kind = self.kind_of_self(owner)
        return self.kind_from_method(object_kind, name) if object_kind else None

    def methods_of(self, owner: ast.ClassDef) -> dict[str, list[ast.FunctionDef]]:
        """Return the definitions of each method of a class; a setter has the name of its property."""
        if owner not in self.methods:
            methods = self.methods[owner] = defaultdict(list)
            for statement in owner.body:
                if isinstance(statement, ast.FunctionDef):
                    methods[statement.name].append(statement)
        return self.methods[owner]

    def kind_of_bound(self, scope: Scope, name: str) -> Kind:
        """Return the kind that all bindings of a name agree on; of a parameter see kind_of_parameter.

        A name that is also bound to None has no kind, unless it is a dataset.
        """
        bound = scope.bindings[name]
        expressions = [expression for expression in bound if isinstance(expression, ast.expr)]
        elements = self.elements.get((id(scope), name), []) if len(expressions) < len(bound) else []
        if len(expressions) + len(elements) < len(bound):  # a parameter, or a loop variable and the like
            return self.kind_of_parameter(scope, name)
        kind = self.kind_of_assigned([*expressions, *elements], lambda value: starts_with_name(value, name))
        may_be_none = any(is_none(value) for value in expressions)
        return None if may_be_none and isinstance(kind, str) and kind != "dataset" else kind

    def kind_of_assigned(self, values: list[ast.expr | Element], extends: Callable[[ast.expr], bool]) -> Kind:
        """Return the kind that all values agree on; None does not count, nor does `x = x.f()` if its kind is unknown.

        `extends(value)`: the value is such an `x.f()`.
        """
        kinds: set[Kind] = set()
        for value in values:
            if isinstance(value, Element):
                kinds.add(self.kind_of_element(value))
            elif not is_none(value):
                kind = self.find_kind(value)
                if kind is not None or not extends(value):
                    kinds.add(kind)
        return single_kind(kinds)

    def kind_of_element(self, element: Element) -> Kind:
        """Return the kind of the value that one target of a shared assignment gets."""
        value = element.value
        if element.index < 0:
            return self.find_kind(value)
        if isinstance(value, ast.Tuple | ast.List):
            if len(value.elts) != element.count or any(isinstance(item, ast.Starred) for item in value.elts):
                return None
            return self.find_kind(value.elts[element.index])
        kind = self.find_kind(value)
        return kind if isinstance(kind, Undecided) else element_of(kind, element.index, element.count)

    def kind_of_own_attribute(self, owner: ast.ClassDef, name: str) -> Kind:
        """Return the kind of `self.x`, by an assignment, a property, an inherited attribute or the class body."""
        values: list[ast.expr | Element] = [*self.assigned_in(owner).get(name, ())]
        values += self.attribute_elements.get(owner, {}).get(name, ())
        if values:
            return self.kind_of_assigned(values, lambda value: starts_with_attribute(value, name))
        if any(map(is_property, self.methods_of(owner).get(name, ()))):
            return self.read(("method", owner, name))
        inherited = classes.find_attribute_kind(self.project, f"{self.names.module}.{owner.name}", name)
        if inherited is not None:
            return inherited
        scope = self.names.scopes.get(owner)
        return self.read(("name", scope, name)) if scope is not None and name in scope.bindings else None

    def assigned_in(self, owner: ast.ClassDef) -> dict[str, list[ast.expr]]:
        """Return attribute -> values other than None that a class assigns to `self.attribute`."""
        return self.attributes.get(owner, {})

    @cached_in_names
    def attributes(self) -> dict[ast.ClassDef, dict[str, list[ast.expr]]]:
        """Class -> attribute -> values other than None of `self.attribute = value`."""
        values_by_class: dict[ast.ClassDef, dict[str, list[ast.expr]]] = {}
        for node in self.names.source.nodes_of_types(ast.Assign, ast.AnnAssign):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            if node.value is None or is_none(node.value):
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                owner = self.find_class_of_target(target)
                if owner is not None and isinstance(target, ast.Attribute):
                    values_by_class.setdefault(owner, {}).setdefault(target.attr, []).append(node.value)
        return values_by_class

    def find_class_of_target(self, target: ast.expr) -> ast.ClassDef | None:
        """Return the class around a target `self.x`; None for other targets."""
        is_own = isinstance(target, ast.Attribute) and is_self(target.value)
        return self.names.source.class_around(target) if is_own else None

    @cached_in_names
    def attribute_elements(self) -> dict[ast.ClassDef, dict[str, list[Element]]]:
        """Class -> attribute -> values that `self.a, self.b = pair` assigns."""
        elements_by_class: dict[ast.ClassDef, dict[str, list[Element]]] = {}
        for target, element in self.find_shared_assignments():
            owner = self.find_class_of_target(target)
            if owner is not None and isinstance(target, ast.Attribute) and element.index >= 0:
                elements_by_class.setdefault(owner, {}).setdefault(target.attr, []).append(element)
        return elements_by_class

    @cached_in_names
    def elements(self) -> dict[tuple[int, str], list[Element]]:
        """(id of the scope, name) -> values that `a, b = pair` and `a = b = value` assign."""
        elements_by_name: dict[tuple[int, str], list[Element]] = {}
        for target, element in self.find_shared_assignments():
            if isinstance(target, ast.Name):
                scope = self.names.scope_of(target)
                binding_scope = scope.global_or_nonlocal.get(target.id, scope)
                elements_by_name.setdefault((id(binding_scope), target.id), []).append(element)
        return elements_by_name

    def find_shared_assignments(self) -> Iterator[tuple[ast.expr, Element]]:
        """Yield each target of `a, b = pair` and `a = b = value` with its value; nothing for `a, *b = value`."""
        for node in self.names.source.nodes_of_type(ast.Assign):
            if len(node.targets) > 1 or isinstance(node.targets[0], ast.Tuple | ast.List):
                for target in node.targets:
                    if isinstance(target, ast.Tuple | ast.List):
                        starred = any(isinstance(part, ast.Starred) for part in target.elts)
                        for index, element in enumerate(target.elts if not starred else ()):
                            yield element, Element(node.value, index, len(target.elts))
                    else:
                        yield target, Element(node.value, -1, 1)

    def kind_of_parameter(self, scope: Scope, name: str) -> str | None:
        """Return the kind that all calls pass for a parameter, or "dataset" by its annotation or use."""
        function = scope.node
        if not isinstance(function, Function):
            return None
        if name not in {parameter.arg for parameter in all_parameters(function.args)}:
            return None
        if isinstance(function, FunctionNode):
            kind = self.project.parameter_kinds.get((f"{self.names.module}.{function.name}", name))
            if kind:
                return kind
        if self.mentions_datasets and (self.is_annotated(function, name) or self.is_used_as_dataset(function, name)):
            return "dataset"
        return None

    @cached_property
    def mentions_datasets(self) -> bool:
        """Quick test: False if no parameter of the file can be recognised as a dataset."""
        terms = ("tensorflow", *TENSORFLOW_METHODS, *TENSORFLOW_KEYWORDS)
        return any(term in self.names.source.text for term in terms)

    def is_annotated(self, function: Function, name: str) -> bool:
        """Return True for a parameter that is annotated as a dataset: `def f(ds: tf.data.Dataset)`."""
        annotation = next(parameter.annotation for parameter in all_parameters(function.args) if parameter.arg == name)
        return annotation is not None and self.names.qualified(annotation) == "tensorflow.data.Dataset"

    def is_used_as_dataset(self, function: Function, name: str) -> bool:
        """Return True if only dataset members are read from a parameter, and a call of one is for TensorFlow."""
        if function not in self.uses:
            attributes = self.uses[function] = defaultdict(list)
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    attributes[node.value.id].append(node)
        used = self.uses[function].get(name, [])
        if not {node.attr for node in used} <= DATASET_METHODS | TENSORFLOW_METHODS | {"output_shapes", "output_types"}:
            return False
        return any(self.is_for_tensorflow(call) for node in used for call in self.chained_calls(node))

    def chained_calls(self, node: ast.Attribute) -> Iterator[ast.Call]:
        """Yield the calls in `name.a().b()`, beginning with that of `name.a`."""
        child: ast.AST = node
        for parent in self.names.source.ancestors(node):
            if isinstance(parent, ast.Call) and parent.func is child:
                yield parent
            elif not isinstance(parent, ast.Attribute):
                return
            child = parent

    def is_for_tensorflow(self, call: ast.Call) -> bool:
        """Return True for a call that only a TensorFlow dataset supports, by its method or arguments."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in TENSORFLOW_METHODS:
            return True
        if any(keyword.arg in TENSORFLOW_KEYWORDS for keyword in call.keywords):
            return True
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        nodes = [value.func if isinstance(value, ast.Call) else value for value in values]
        return any((self.names.qualified(node) or "").startswith(TENSORFLOW_ARGUMENTS) for node in nodes)

    def is_from_other_library(self, node: ast.AST) -> bool:
        """Return True for a value of one of OTHER_LIBRARIES, and for a name or parameter that only gets such values."""
        while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Attribute) and self.names_other_library(node):
                return True
            node = node.func if isinstance(node, ast.Call) else node.value
        if self.names_other_library(node):
            return True
        if not isinstance(node, ast.Name):
            return False
        key = (id(self.names.scope_of(node)), node.id)
        if key not in self.other_library_names:
            self.other_library_names[key] = False  # ends the recursion of `x = f(x)`
            self.other_library_names[key] = self.is_name_from_other_library(node)
        return self.other_library_names[key]

    def is_name_from_other_library(self, node: ast.Name) -> bool:
        """Return True if all values assigned to a name, or passed for a parameter, are from another library."""
        scope = self.names.scope_of(node)
        bound = self.names.lookup(node.id, scope) or []
        values = [
            expression
            for expression in bound
            if isinstance(expression, ast.expr) and not starts_with_name(expression, node.id)
        ]
        if values:
            return None not in bound and all(self.is_from_other_library(value) for value in values)
        function = f"{self.names.module}.{getattr(scope.node, 'name', '')}"
        return (function, node.id) in self.project.other_library_parameters

    def names_other_library(self, node: ast.AST) -> bool:
        """Return True for a qualified name in one of OTHER_LIBRARIES, unless the project has a module of that name."""
        library = (self.names.qualified(node) or "").partition(".")[0]
        return library in OTHER_LIBRARIES and library not in self.project.own_module_names

    def assigned_value(self, node: ast.AST, depth: int = 0) -> ast.AST:
        """Return the value of a name that is assigned once; else the node itself."""
        if isinstance(node, ast.Name) and depth < 10:
            bound = self.names.lookup(node.id, self.names.scope_of(node))
            if bound and len(bound) == 1 and isinstance(bound[0], ast.expr):
                return self.assigned_value(bound[0], depth + 1)
        return node


def single_kind(kinds: set[Kind]) -> Kind:
    """Return the only decided kind; UNDECIDED if none is decided yet; None if they contradict or `kinds` is empty."""
    decided = kinds - {UNDECIDED}
    if not decided:
        return UNDECIDED if kinds else None
    return decided.pop() if len(decided) == 1 else None


def element_of(kind: str | None, index: int, count: int = 0) -> str | None:
    """Return the kind of one element, given a tuple's kind; None unless it has `count` elements (0: any number)."""
    if kind is None or not kind.startswith(TUPLE):
        return None
    kinds = kind.removeprefix(TUPLE).split("|")
    if (count and len(kinds) != count) or not -len(kinds) <= index < len(kinds):
        return None
    return kinds[index] or None


def starts_with_name(node: ast.AST, name: str) -> bool:
    """Return True if a chain of calls and attributes begins with the name."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == name


def starts_with_attribute(node: ast.AST, name: str) -> bool:
    """Return True if a chain of calls and attributes begins with `self.name`."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Attribute) and is_self(node.value):
            return node.attr == name
        node = node.func if isinstance(node, ast.Call) else node.value
    return False
