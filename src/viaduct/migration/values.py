"""What kind of thing an expression is: a dataset, a session, a run configuration; as far as the text shows it.

A call of a known constructor has its kind; a method of a dataset that returns a dataset has; a name has the kind that
all its assignments in the scope agree on; a parameter has the kind of every argument passed for it in the project, or,
for datasets, shows by a use that nothing but a TensorFlow dataset allows. None: not shown, so method rules do not fire.
"""

from __future__ import annotations

import ast
from functools import cached_property

from viaduct.migration.classes import OBJECT, class_called, is_module, owner_of
from viaduct.migration.names import Function, Names, Scope, all_arguments
from viaduct.migration.project import Project, returns_of

DATASET_METHODS = {
    *(
        "apply",
        "batch",
        "cache",
        "concatenate",
        "enumerate",
        "filter",
        "flat_map",
        "interleave",
        "map",
        "map_and_batch",
    ),
    *("padded_batch", "prefetch", "reduce", "repeat", "shard", "shuffle", "skip", "take", "unbatch", "window", "zip"),
    *("with_options", "from_generator", "from_tensors", "from_tensor_slices", "list_files", "range"),
}
# What no other library's dataset has (those of Hugging Face and webdataset shuffle, map, repeat and batch as well): a
# parameter on which one of these is called, or that is given one of the keywords, and has nothing but dataset methods.
TELLING = {"interleave", "padded_batch", "make_one_shot_iterator", "make_initializable_iterator"}
TELLING_KEYWORDS = {"num_parallel_calls", "reshuffle_each_iteration", "drop_remainder", "padded_shapes"}
TELLING_ARGUMENTS = ("tensorflow.data.", "tensorflow.contrib.data.")
# Libraries whose objects have methods of the same names.
OTHERS = ("webdataset", "datasets", "torch", "torchdata", "torchtext", "ray", "mxnet", "paddle", "pandas", "numpy")
MOVES = {"to", "cuda", "npu", "mlu", "cpu", "half", "float", "double", "bfloat16", "requires_grad_", "type"}
RETURNS_ITSELF = {
    "dataset": DATASET_METHODS - {"reduce"},
    "module": MOVES | {"train", "eval", "apply"},
    "class_loss": MOVES,
    "tensor": MOVES | {"clone", "detach", "contiguous", "view", "reshape", "unsqueeze", "squeeze", "long", "int"},
}
TENSORS = {
    *("arange", "as_tensor", "cat", "empty", "empty_like", "eye", "from_numpy", "full", "full_like", "linspace"),
    *("ones", "ones_like", "rand", "rand_like", "randint", "randn", "randn_like", "randperm", "stack", "tensor"),
    *("zeros", "zeros_like", "Tensor", "FloatTensor", "LongTensor", "IntTensor", "nn.Parameter"),
}
CONSTRUCTORS = {
    "tensorflow.Session": "session",
    "tensorflow.InteractiveSession": "session",
    "tensorflow.python.client.session.Session": "session",
    "tensorflow.python.client.session.InteractiveSession": "session",
    "tensorflow.train.MonitoredTrainingSession": "monitored_session",
    "tensorflow.train.SingularMonitoredSession": "monitored_session",
    "tensorflow.train.MonitoredSession": "monitored_session",
    "tensorflow.train.Supervisor": "supervisor",
    "tensorflow.train.SessionManager": "session_manager",
    "tensorflow.ConfigProto": "config_proto",
    "tensorflow.core.protobuf.config_pb2.ConfigProto": "config_proto",
    "npu_bridge.npu_init.npu_config_proto": "npu_config_proto",
    "tensorflow.estimator.RunConfig": "run_config",
    "tensorflow.estimator.tpu.RunConfig": "tpu_run_config",
    "npu_bridge.estimator.npu.npu_config.NPURunConfig": "npu_run_config",
    "npu_bridge.npu_init.npu_run_config_init": "npu_run_config",
    "tensorflow.estimator.Estimator": "estimator",
    "tensorflow.estimator.tpu.TPUEstimator": "estimator",
    "npu_bridge.estimator.npu.npu_estimator.NPUEstimator": "npu_estimator",
    "npu_bridge.estimator.npu.npu_optimizer.NPUDistributedOptimizer": "npu_optimizer",
    "npu_bridge.estimator.npu.npu_optimizer.npu_distributed_optimizer_wrapper": "npu_optimizer",
    "npu_bridge.npu_init.npu_tf_optimizer": "npu_optimizer",
    "npu_bridge.estimator.npu.npu_loss_scale_optimizer.NPULossScaleOptimizer": "loss_scale_optimizer",
    "tensorflow.train.experimental.enable_mixed_precision_graph_rewrite": "optimizer",
    "tensorflow.train.experimental.MixedPrecisionLossScaleOptimizer": "loss_scale_optimizer",
    "tensorflow.contrib.mixed_precision.LossScaleOptimizer": "loss_scale_optimizer",
    "tensorflow.keras.models.Sequential": "keras_model",
    "tensorflow.keras.models.Model": "keras_model",
    "tensorflow.keras.Sequential": "keras_model",
    "tensorflow.keras.Model": "keras_model",
    "tensorflow.keras.models.load_model": "keras_model",
    "tensorflow.keras.models.clone_model": "keras_model",
    "tensorflow.keras.models.model_from_json": "keras_model",
    "keras.models.Sequential": "keras_model",
    "keras.models.Model": "keras_model",
    "keras.Sequential": "keras_model",
    "keras.Model": "keras_model",
    "keras.models.load_model": "keras_model",
    "tensorflow.train.get_global_step": "global_step",
    "tensorflow.train.get_or_create_global_step": "global_step",
}


def constructed(name: str) -> str | None:
    """The kind that a call of this gives."""
    if name in CONSTRUCTORS:
        return CONSTRUCTORS[name]
    if name.startswith("tensorflow.data.") and "Dataset" in name:
        return "dataset"
    if name.startswith("tensorflow.data.experimental.make_") and name.endswith("_dataset"):
        return "dataset"
    if (
        name.startswith(("tensorflow.keras.applications.", "keras.applications."))
        and name.rpartition(".")[2][:1].isupper()
    ):
        return "keras_model"
    last = name.rpartition(".")[2]
    if name.startswith("torch"):
        return made_by_torch(name, last)
    if name.startswith(("tensorflow.keras.optimizers.", "keras.optimizers.")):
        return "keras_optimizer"
    if name.startswith(("tensorflow.train.", "tensorflow.contrib.opt.")) and last.endswith("Optimizer"):
        return "optimizer"
    return None


def made_by_torch(name: str, last: str) -> str | None:
    """A tensor, a module, a loss that takes the numbers of classes, or a device."""
    if last in ("CrossEntropyLoss", "NLLLoss") and name.startswith("torch.nn."):
        return "class_loss"
    if name == "torch.device":
        return "torch_device"
    if name.removeprefix("torch.") in TENSORS:
        return "tensor"
    if name.startswith("torchvision.models.") or (name.startswith("torch.nn.") and last[:1].isupper()):
        return "module"
    return None


class Values:
    """Kinds of the expressions of one file."""

    def __init__(self, names: Names, project: Project) -> None:
        self.names, self.project = names, project
        self.known: dict[tuple[int, str], str | None] = {}  # (scope, name) -> kind
        self.attributes: dict[ast.ClassDef, dict[str, list[ast.expr]]] = {}  # see assigned_in
        self.asked: set[tuple[int, str]] = set()  # names that are being looked at: `ds = ds.map(f)` asks for itself

    def kind(self, node: ast.AST | None, depth: int = 0) -> str | None:
        if node is None or depth > 12:
            return None
        if isinstance(node, ast.Call):
            return self.kind_of_call(node, depth)
        if is_self(node):
            return self.kind_of_self(node)
        if isinstance(node, ast.Name):
            return self.kind_of_name(node, depth)
        if isinstance(node, ast.IfExp):
            kinds = {self.kind(node.body, depth + 1), self.kind(node.orelse, depth + 1)}
            return kinds.pop() if len(kinds) == 1 else None
        if isinstance(node, ast.NamedExpr | ast.Await):
            return self.kind(node.value, depth + 1)
        if isinstance(node, ast.Attribute):
            return self.kind_of_attribute(node, depth)
        return None

    def kind_of_call(self, node: ast.Call, depth: int) -> str | None:
        name = self.names.qualified(node.func)
        if name:
            found = constructed(name) or self.project.returns.get(name)
            if found:
                return found
            own = class_called(self.project, name) if self.project.classes else None
            if own is not None:
                return f"{OBJECT}{own}"
        if isinstance(node.func, ast.Attribute) and is_self(node.func.value):
            return self.kind_of_own_method(node.func, depth)
        if isinstance(node.func, ast.Attribute):
            receiver = self.kind(node.func.value, depth + 1)
            if receiver and node.func.attr in RETURNS_ITSELF.get(receiver, ()):
                return receiver
            if receiver and receiver.startswith(OBJECT):
                return self.kind_from_method(receiver, node.func.attr)
        return None

    def kind_from_method(self, receiver: str, method: str) -> str | None:
        """Of a call on an object of the project: what its own method returns; of nn.Module's methods, itself."""
        name = receiver.removeprefix(OBJECT)
        owner = owner_of(self.project, name, method)
        if owner is not None:
            return self.project.returns.get(f"{owner}.{method}")
        return receiver if method in RETURNS_ITSELF["module"] and is_module(self.project, name) else None

    def kind_of_self(self, node: ast.AST) -> str | None:
        """An object of the class in which it stands, where the survey has that class."""
        owner = next((one for one in self.names.source.ancestors(node) if isinstance(one, ast.ClassDef)), None)
        name = f"{self.names.own}.{owner.name}" if owner is not None else ""
        return f"{OBJECT}{name}" if name in self.project.classes else None

    def kind_of_own_method(self, called: ast.Attribute, depth: int) -> str | None:
        """`self.build()`: what all returns of the class's method are."""
        owner = next((p for p in self.names.source.ancestors(called) if isinstance(p, ast.ClassDef)), None)
        for method in owner.body if owner else ():
            if isinstance(method, ast.FunctionDef) and method.name == called.attr:
                kinds = {self.kind(one.value, depth + 2) for one in returns_of(self.names, method)}
                return kinds.pop() if len(kinds) == 1 else None
        return None

    def kind_of_name(self, node: ast.Name, depth: int) -> str | None:
        """Each name is looked at once: ten lines of `ds = ds.map(f)` would else be a million questions."""
        scope = self.names.scope_of(node)
        key = (id(scope), node.id)
        if key in self.known or key in self.asked:
            return self.known.get(key)
        self.asked.add(key)
        found = self.kind_of_bound(node, scope, depth)
        self.asked.discard(key)
        if found is not None or not self.asked:  # None may only mean that another name is still being looked at
            self.known[key] = found
        return found

    def kind_of_bound(self, node: ast.Name, scope: Scope, depth: int) -> str | None:
        bound = self.names.lookup(node.id, scope)
        if not bound:
            return None
        kinds = {self.kind(what, depth + 1) for what in bound if isinstance(what, ast.expr) and what is not node}
        kinds -= {None} if len(kinds) > 1 and self.own_chain(node.id, bound) else set()
        others = [what for what in bound if not isinstance(what, ast.expr)]
        if len(kinds) == 1 and (not others or None not in kinds) and not self.rebound(node, bound):
            return kinds.pop()
        return self.kind_of_parameter(node)

    def own_chain(self, name: str, bound: list[str | ast.expr | None]) -> bool:
        """Whether the assignments of unknown kind only go on with the name itself: `ds = ds.map(f)`."""
        return all(starts_with_name(what, name) or self.kind(what, 6) for what in bound if isinstance(what, ast.expr))

    def rebound(self, node: ast.Name, bound: list[str | ast.expr | None]) -> bool:
        """Also bound in some other way (a loop, a parameter, an import): then only a parameter may still show."""
        return any(not isinstance(what, ast.expr) for what in bound)

    def kind_of_attribute(self, node: ast.Attribute, depth: int) -> str | None:
        """self.x: the kind of all that the class assigns to it."""
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            return None
        owner = next((p for p in self.names.source.ancestors(node) if isinstance(p, ast.ClassDef)), None)
        if owner is None:
            return None
        kinds = {self.kind(value, depth + 1) for value in self.assigned_in(owner).get(node.attr, [])}
        return kinds.pop() if len(kinds) == 1 else None

    def assigned_in(self, owner: ast.ClassDef) -> dict[str, list[ast.expr]]:
        """Attribute -> all that a class assigns to `self.attribute`, None left out; looked for once."""
        if owner not in self.attributes:
            found: dict[str, list[ast.expr]] = {}
            for one in ast.walk(owner):
                if not isinstance(one, ast.Assign) or (isinstance(one.value, ast.Constant) and one.value.value is None):
                    continue
                for target in one.targets:
                    if isinstance(target, ast.Attribute) and is_self(target.value):
                        found.setdefault(target.attr, []).append(one.value)
            self.attributes[owner] = found
        return self.attributes[owner]

    def kind_of_parameter(self, node: ast.Name) -> str | None:
        scope = self.names.scope_of(node)
        function = scope.node
        if not isinstance(function, Function) or node.id not in {a.arg for a in all_arguments(function.args)}:
            return None
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            passed = self.project.parameters.get((f"{self.names.own}.{function.name}", node.id))
            if passed:
                return passed
        if self.speaks_of_datasets and (self.annotated(function, node.id) or self.used_as_dataset(function, node.id)):
            return "dataset"
        return None

    @cached_property
    def speaks_of_datasets(self) -> bool:
        """Whether the file holds a word without which no parameter is shown to be a dataset."""
        return any(word in self.names.source.text for word in ("tensorflow", *TELLING, *TELLING_KEYWORDS))

    def annotated(self, function: Function, name: str) -> bool:
        """`def f(ds: tf.data.Dataset)`."""
        told = next(one.annotation for one in all_arguments(function.args) if one.arg == name)
        return told is not None and self.names.qualified(told) == "tensorflow.data.Dataset"

    def used_as_dataset(self, function: Function, name: str) -> bool:
        """Used with dataset methods alone, and somewhere as only a TensorFlow dataset can be."""
        used, telling = set(), False
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
                used.add(node.attr)
                telling = telling or any(self.tells(call) for call in self.chained(node))
        return telling and used <= DATASET_METHODS | TELLING | {"output_shapes", "output_types"}

    def chained(self, node: ast.Attribute) -> list[ast.Call]:
        """The calls of `name.a().b()`, from `name.a` on."""
        found: list[ast.Call] = []
        at: ast.AST = node
        while (outer := self.names.source.parents.get(at)) is not None:
            if isinstance(outer, ast.Call) and outer.func is at:
                found.append(outer)
            elif not isinstance(outer, ast.Attribute):
                break
            at = outer
        return found

    def tells(self, call: ast.Call) -> bool:
        """Whether only a TensorFlow dataset has such a method, or takes such arguments."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in TELLING:
            return True
        if any(word.arg in TELLING_KEYWORDS for word in call.keywords):
            return True
        for value in [*call.args, *(word.value for word in call.keywords)]:
            made = value.func if isinstance(value, ast.Call) else value
            if (self.names.qualified(made) or "").startswith(TELLING_ARGUMENTS):
                return True
        return False

    def is_other(self, node: ast.AST, depth: int = 0) -> bool:
        """Something of another library, or a parameter for which every call in the project passes such a thing."""
        while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
            name = self.names.qualified(node) if not isinstance(node, ast.Call | ast.Subscript) else None
            if name and self.from_others(name):
                return True
            node = node.func if isinstance(node, ast.Call) else node.value
        if self.from_others(self.names.qualified(node) or ""):
            return True
        if not isinstance(node, ast.Name) or depth > 5:
            return False
        bound = self.names.lookup(node.id, self.names.scope_of(node)) or []
        made = [what for what in bound if isinstance(what, ast.expr) and not starts_with_name(what, node.id)]
        if made:
            return None not in bound and all(self.is_other(what, depth + 1) for what in made)
        function = self.names.scope_of(node).node
        name = getattr(function, "name", "")
        return (f"{self.names.own}.{name}", node.id) in self.project.others

    def from_others(self, name: str) -> bool:
        library = name.partition(".")[0]
        return library in OTHERS and library not in self.project.own_names

    def origin(self, node: ast.AST, depth: int = 0) -> ast.AST:
        """The expression that a name was assigned, if it was assigned once; else the node itself."""
        if isinstance(node, ast.Name) and depth < 10:
            bound = self.names.lookup(node.id, self.names.scope_of(node))
            if bound and len(bound) == 1 and isinstance(bound[0], ast.expr):
                return self.origin(bound[0], depth + 1)
        return node


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def starts_with_name(node: ast.AST, name: str) -> bool:
    """Whether a chain of calls and attributes begins with the name."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == name
