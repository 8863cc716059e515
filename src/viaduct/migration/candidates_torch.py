"""Find the lines of a PyTorch script that a requirement of the target concerns (candidates.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from viaduct.cards import CARDS, CUDA, PLUGINS
from viaduct.cards.torch_api import NAMES_MISSING_ON_A_CARD, NPU_AND_MLU_NAMES, SUBMODULES
from viaduct.migration.candidates import Candidate, Mark, State, make_candidate, uses_any
from viaduct.migration.lookups import last_name, literal_text
from viaduct.migration.predicates import (
    find_argument,
    imported_modules,
    is_in_annotation,
    is_in_instance_check,
    is_none_or_absent,
)
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._devices import (
    get_qualified_root,
    is_bound_cuda_method,
    is_method_of_project,
    is_no_device_or_reported,
    is_of_other_library,
)
from viaduct.migration.rules.torch._is_cuda import is_own_field
from viaduct.migration.rules.torch._loaded import find_load_destination
from viaduct.migration.rules.torch._messages import is_message, is_prose

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile

ROOTS = ("torch", "torchvision", "torchaudio", *PLUGINS, "apex", "pytorch_lightning", "lightning")
RULE = Rule(__name__)  # only for calling functions that take a Site
CHECKPOINT_LOADS = ("torch.load", "torch.jit.load")
DATA_PARALLEL = tuple(f"torch.nn.{home}DataParallel" for home in ("", "parallel.", "parallel.data_parallel."))
PRIVATE_CUDA_MODULES = ("torch._C._cuda", "torch._C._nvtx", "torch._C._cudart")
REQUIREMENTS_NAMING_CARD = ("moves", "device_calls", "device_strings", "amp", "backend")
"""A candidate of one of these with state "right" counts as a use of the card, also torch.accelerator."""
NCCL_GROUP_CLASS = "torch.distributed.ProcessGroupNCCL"
# A command line in a text that chooses CUDA for the program it starts: `eval.py --device cuda:0 --backend=nccl`.
COMMAND = re.compile(r"(?:^|\s)--?[\w-]+[= ](?:cuda(?::\d+)?|nccl)(?![\w.-])|\bCUDA_VISIBLE_DEVICES=\S")
CUDA_NAMES = NPU_AND_MLU_NAMES | NAMES_MISSING_ON_A_CARD | SUBMODULES.keys()


def find_candidates(file: MigratedFile) -> Iterator[Candidate]:
    """Yield the candidates of a PyTorch file. On lines that already have code for the target, their state is "right".

    Lines that are explained by a finding at another statement (`MigratedFile.explained_lines`) have none.
    """
    if not concerns_torch(file):
        return
    for search in (find_device_calls, find_moves, find_texts, find_loads):
        for candidate in search(file):
            line = file.original_lines[candidate.line - 1]
            if line not in file.explained_lines:
                yield replace(candidate, state="right") if line in file.target_code_lines else candidate


def find_marks(file: MigratedFile) -> frozenset[Mark]:
    """Return the marks of a file; none with --to any."""
    card = CARDS.get(file.options.to)
    if card is None or not concerns_torch(file):
        return frozenset()
    names_card = any(
        candidate.requirement in REQUIREMENTS_NAMING_CARD and candidate.state == "right"
        for candidate in find_candidates(file)
    )
    marks: dict[Mark, bool] = {
        "torch": file.path in file.project.torch_files or uses_any(file, ("torch", "torchvision", "torchaudio")),
        "takes device": ".to(" in file.source.text or "device" in file.source.text,
        "names card": names_card,
        "imports plug-in": names_plugin_in_import(file, card.plugin),
    }
    return frozenset(mark for mark, is_set in marks.items() if is_set)


def names_plugin_in_import(file: MigratedFile, plugin: str) -> bool:
    """Return True if an import, `import_module("torch_npu")` or `exec("import torch_npu")` names the plug-in."""
    if plugin not in file.source.text:
        return False
    for statement in file.source.imports:
        modules = [*imported_modules(statement), *(alias.name for alias in statement.names)]
        if any(plugin in module.split(".") for module in modules):
            return True
    return any(
        literal_text(node).startswith(plugin) or f"import {plugin}" in literal_text(node)
        for call in file.source.nodes_of_type(ast.Call)
        if last_name(call.func) in ("import_module", "__import__", "exec")
        for node in call.args
    )


def concerns_torch(file: MigratedFile) -> bool:
    """Return True if the file uses PyTorch or a library based on it, or any file of the project does."""
    return uses_any(file, ROOTS) or bool(file.project.torch_files)


def find_device_and_backend(file: MigratedFile) -> tuple[str, str]:
    """Return the target's device name and backend; with --to any, which has neither, a text that no script has."""
    card = CARDS.get(file.options.to)
    return (card.device, card.backend) if card else ("\0", "\0")


def find_device_calls(file: MigratedFile) -> Iterator[Candidate]:
    """Yield the uses of torch.cuda and of the card's own module, of DataParallel and of ProcessGroupNCCL."""
    card_prefix = f"torch.{find_device_and_backend(file)[0]}."  # prefix of names in the card's module
    for table in (file.index.calls, file.index.references):
        for name, nodes in table.items():
            if name.startswith(("torch.cuda.amp.", f"{card_prefix}amp.")):
                yield from (
                    make_candidate(file, "amp", node, judge_amp(file, node, name, card_prefix)) for node in nodes
                )
            elif name.startswith(("torch.cuda.", *PRIVATE_CUDA_MODULES)):
                yield from (make_candidate(file, "device_calls", node, "needed") for node in nodes)
            elif name.startswith((card_prefix, "torch.accelerator.")):
                yield from (make_candidate(file, "device_calls", node, "right") for node in nodes)
            elif name.startswith(NCCL_GROUP_CLASS):
                yield from (make_candidate(file, "backend", node, "needed") for node in nodes)
            elif name in DATA_PARALLEL:
                constructed = [node for node in nodes if not is_type_check(file, node)]
                yield from (make_candidate(file, "data_parallel", node, "needed") for node in constructed)
    for node in file.source.nodes_of_type(ast.Attribute):
        if is_unresolved_device_call(file, node):
            yield make_candidate(file, "device_calls", node, "needed")


def is_unresolved_device_call(file: MigratedFile, node: ast.Attribute) -> bool:
    """Return True for a name of torch.cuda behind an object that may be torch: `self.lib.cuda.synchronize`."""
    if node.attr not in CUDA_NAMES or not isinstance(node.value, ast.Attribute) or node.value.attr != "cuda":
        return False
    root = get_qualified_root(Site(RULE, file, node), node)
    return file.names.qualified(node) is None and not is_of_other_library(root)


def is_type_check(file: MigratedFile, node: ast.expr) -> bool:
    """Return True for a class in isinstance, in a comparison of types or in an annotation."""
    parent = file.source.parents[node]
    parent = file.source.parents[parent] if isinstance(parent, ast.Tuple | ast.List | ast.Set) else parent
    is_compared = isinstance(parent, ast.Compare)
    return is_compared or is_in_instance_check(file.source, node) or is_in_annotation(file.source, node)


def judge_amp(file: MigratedFile, node: ast.expr, name: str, card_prefix: str) -> State:
    """Return "right" for the card's amp, and with --to any for an annotation; else "needed"."""
    is_annotation = file.options.to == "any" and is_in_annotation(file.source, node)
    return "right" if is_annotation or name.startswith(card_prefix) else "needed"


def find_moves(file: MigratedFile) -> Iterator[Candidate]:
    """Yield calls and bound methods that move a tensor or module to a card, and reads of `is_cuda`."""
    device = find_device_and_backend(file)[0]
    states: dict[str, State] = {"cuda": "needed", device: "right"}
    for method, state in states.items():
        for call in file.index.methods.get(method, []):
            site = Site(RULE, file, call)
            receiver = call.func.value  # type: ignore[attr-defined]
            if not is_of_other_library(get_qualified_root(site, receiver)) and not is_method_of_project(
                site, receiver, method
            ):
                yield make_candidate(file, "moves", call, state)
    for node in file.source.nodes_of_type(ast.Attribute):
        is_read = isinstance(node.ctx, ast.Load)
        reads_is_cuda = node.attr == "is_cuda" and is_read and not is_own_field(Site(RULE, file, node))
        if reads_is_cuda or (node.attr == "cuda" and is_bound_cuda_method(Site(RULE, file, node))):
            yield make_candidate(file, "moves", node, "needed")
        elif node.attr == f"is_{device}" and is_read:
            yield make_candidate(file, "moves", node, "right")


def find_texts(file: MigratedFile) -> Iterator[Candidate]:
    """Yield strings that name a device, a backend or CUDA_VISIBLE_DEVICES, and commands that contain such a name."""
    device, backend = find_device_and_backend(file)
    for node in file.source.nodes_of_type(ast.Constant):
        if not isinstance(node.value, str):
            continue
        value, prefix = node.value, node.value.partition(":")[0]
        if names_module(file, node):
            yield make_candidate(file, "device_calls", node, "needed")
            continue
        if COMMAND.search(value) and not is_prose(file.source, node):
            yield make_candidate(file, "device_strings", node, "needed")
            continue
        if value == CUDA.visible_variable and is_dict_key(file, node):
            yield make_candidate(file, "visible_devices", node, judge_variable(file, node))
            continue
        if prefix not in ("cuda", device) and value not in ("nccl", backend, CUDA.visible_variable):
            continue
        if not selects_device(file, node):
            continue
        if value in ("nccl", backend):
            yield make_candidate(file, "backend", node, "right" if value == backend else "needed")
        elif value == CUDA.visible_variable:
            yield make_candidate(file, "visible_devices", node, "needed")
        elif is_device_text(value):
            is_right = prefix == device or is_compared_with(file, node, device)
            yield make_candidate(file, "device_strings", node, "right" if is_right else "needed")
    for keyword in file.source.nodes_of_type(ast.keyword):
        if keyword.arg == CUDA.visible_variable:
            yield make_candidate(file, "visible_devices", keyword, judge_variable(file, keyword))


def judge_variable(file: MigratedFile, node: ast.expr | ast.keyword) -> State:
    """Return "right" for CUDA_VISIBLE_DEVICES in a dict or call that sets another card's variable too."""
    text = file.source.text_of(file.source.parents[node])
    is_right = any(card.visible_variable in text for card in CARDS.values() if card is not CUDA)
    return "right" if is_right else "needed"


def is_dict_key(file: MigratedFile, node: ast.Constant) -> bool:
    parent = file.source.parents.get(node)
    return isinstance(parent, ast.Dict) and node in parent.keys


def names_module(file: MigratedFile, node: ast.Constant) -> bool:
    """Return True for the text in `sys.modules["torch.cuda"]`, `vars(torch)["cuda"]`, `import_module("torch.cuda")`."""
    value, parent = str(node.value), file.source.parents.get(node)
    if value != "cuda" and not value.startswith("torch.cuda"):
        return False
    if isinstance(parent, ast.Subscript):
        mapping = ast.unparse(parent.value)
        return mapping.endswith(("__dict__", "sys.modules")) or mapping.startswith("vars(")
    name = ast.unparse(parent.func) if isinstance(parent, ast.Call) else ""
    return name.endswith(("import_module", "__import__")) and parent.args[:1] == [node]  # type: ignore[union-attr]


def is_compared_with(file: MigratedFile, node: ast.Constant, device: str) -> bool:
    """Return True for `"cuda"` in `device.type in ("cuda", "npu")`: the comparison is true for the card too."""
    parent = file.source.parents.get(node)
    if not isinstance(parent, ast.Tuple | ast.List | ast.Set):
        return False
    is_compared = isinstance(file.source.parents.get(parent), ast.Compare)
    return is_compared and any(isinstance(item, ast.Constant) and item.value == device for item in parent.elts)


def is_device_text(value: str) -> bool:
    """Return True for `cuda`, `cuda:0`, and the beginning of a composed device string: `cuda:`, `cuda:%d`."""
    _, colon, number = value.partition(":")
    return not colon or not number or number.isdigit() or number[0] in "%{"


def selects_device(file: MigratedFile, node: ast.Constant) -> bool:
    """Return False for a key, an attribute's name, a message, a library's argument, and a string that rules report."""
    parent = file.source.parents.get(node)
    if isinstance(parent, ast.Compare):
        return parent.left is not node or not isinstance(parent.ops[0], ast.In | ast.NotIn)  # `"cuda" in options`
    if isinstance(parent, ast.JoinedStr):
        return parent.values[0] is node  # a device string begins with the device's name
    return not is_message(file.source, node) and not is_no_device_or_reported(Site(RULE, file, node))


def find_loads(file: MigratedFile) -> Iterator[Candidate]:
    """Yield the loads of checkpoints; those that have or do not need a map_location are right."""
    for name in CHECKPOINT_LOADS:
        for call in file.index.calls.get(name, []):
            site = Site(RULE, file, call, name)
            is_right = (
                not is_none_or_absent(site.argument("map_location", 1)) or find_load_destination(site) == "unneeded"
            )
            yield make_candidate(file, "checkpoints", call, "right" if is_right else "needed")
        for node in file.index.references.get(name, []):
            if not is_alias_or_signature(file, node):
                yield make_candidate(file, "checkpoints", node, judge_load_reference(file, node))


def is_alias_or_signature(file: MigratedFile, node: ast.expr) -> bool:
    """Return True for `load = torch.load`, whose calls are followed, and for code that only inspects the function."""
    parent = file.source.parents.get(node)
    if isinstance(parent, ast.Assign):
        return all(isinstance(target, ast.Name) for target in parent.targets)
    if isinstance(parent, ast.Compare | ast.Attribute):
        return True
    return isinstance(parent, ast.Call) and ast.unparse(parent.func).endswith(("wraps", "signature", "hasattr"))


def judge_load_reference(file: MigratedFile, node: ast.expr) -> State:
    """Return "right" for `partial(torch.load, map_location="cpu")`; "unclear" for torch.load passed on otherwise."""
    parent = file.source.parents.get(node)
    is_partial = isinstance(parent, ast.Call) and (file.names.qualified(parent.func) or "").endswith("partial")
    location = find_argument(parent, "map_location") if isinstance(parent, ast.Call) and is_partial else None
    return "unclear" if is_none_or_absent(location) else "right"
