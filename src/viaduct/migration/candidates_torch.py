"""Candidates (candidates.py) of a PyTorch script for another card."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from viaduct.cards import CARDS, CUDA, PLUGINS
from viaduct.migration.candidates import Candidate, Mark, State, make_candidate, uses_any
from viaduct.migration.predicates import find_argument, is_in_annotation, is_none_or_absent
from viaduct.migration.rule import Rule, Site

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

ROOTS = ("torch", "torchvision", "torchaudio", *PLUGINS, "apex", "pytorch_lightning", "lightning")
RULE = Rule(__name__)  # no rule of the migration: functions of rules that take a Site are called with it
CHECKPOINT_LOADS = ("torch.load", "torch.jit.load")
DATA_PARALLEL = tuple(f"torch.nn.{home}DataParallel" for home in ("", "parallel.", "parallel.data_parallel."))
PRIVATE_CUDA_MODULES = ("torch._C._cuda", "torch._C._nvtx", "torch._C._cudart")
ON_THE_CARD = ("moves", "device_calls", "device_strings", "amp", "backend")
"""Requirements that are fulfilled by naming the card: a place of theirs in state "right" names it."""
NCCL_GROUP_CLASS = "torch.distributed.ProcessGroupNCCL"
# A command line in a text that chooses CUDA for the program it starts: `eval.py --device cuda:0 --backend=nccl`.
COMMAND = re.compile(r"(?:^|\s)--?[\w-]+[= ](?:cuda(?::\d+)?|nccl)(?![\w.-])|\bCUDA_VISIBLE_DEVICES=\S")
LOG_FUNCTIONS = {"print", "info", "debug", "warning", "warn", "error", "exception", "critical", "log"}


def find_candidates(work: Work) -> Iterator[Candidate]:
    """Yield every place of a PyTorch file that a requirement of the target concerns.

    Those on lines in `work.served` are right. Those on lines in `work.left` are omitted: a finding on
    another line covers them.
    """
    if not concerns_torch(work):
        return
    for search in (find_device_calls, find_moves, find_texts, find_loads):
        for found in search(work):
            line = work.lines[found.line - 1]
            if line not in work.left:
                yield replace(found, state="right") if line in work.served else found


def marks_of(work: Work) -> frozenset[Mark]:
    """Return the marks of a file; none with --to any."""
    card = CARDS.get(work.options.to)
    if card is None or not concerns_torch(work):
        return frozenset()
    names_card = any(found.requirement in ON_THE_CARD and found.state == "right" for found in find_candidates(work))
    marks: dict[Mark, bool] = {
        "torch": work.path in work.project.torch_files or uses_any(work, ("torch", "torchvision", "torchaudio")),
        "takes device": ".to(" in work.source.text or "device" in work.source.text,
        "names card": names_card,
        "imports plug-in": card.module in work.source.text,
    }
    return frozenset(mark for mark, is_set in marks.items() if is_set)


def concerns_torch(work: Work) -> bool:
    """Return True if the file imports PyTorch or a library on it, or any file of the project does."""
    return uses_any(work, ROOTS) or bool(work.project.torch_files)


def device_and_backend(work: Work) -> tuple[str, str]:
    """Return the target's device name and backend; with --to any, texts that no script contains."""
    card = CARDS.get(work.options.to)
    return (card.device, card.backend) if card else ("\0", "\0")


def find_device_calls(work: Work) -> Iterator[Candidate]:
    """Yield the uses of torch.cuda and of the card's own module, of DataParallel and of ProcessGroupNCCL."""
    own = f"torch.{device_and_backend(work)[0]}."  # prefix of names in the card's module
    for table in (work.index.calls, work.index.references):
        for name, nodes in table.items():
            if name.startswith(("torch.cuda.amp.", f"{own}amp.")):
                yield from (make_candidate(work, "amp", node, amp_state(work, node, name, own)) for node in nodes)
            elif name.startswith(("torch.cuda.", *PRIVATE_CUDA_MODULES)):
                yield from (make_candidate(work, "device_calls", node, "needed") for node in nodes)
            elif name.startswith((own, "torch.accelerator.")):
                yield from (make_candidate(work, "device_calls", node, "right") for node in nodes)
            elif name.startswith(NCCL_GROUP_CLASS):
                yield from (make_candidate(work, "backend", node, "needed") for node in nodes)
            elif name in DATA_PARALLEL:
                used = [node for node in nodes if not is_type_check(work, node)]
                yield from (make_candidate(work, "data_parallel", node, "needed") for node in used)


def is_type_check(work: Work, node: ast.expr) -> bool:
    """Return True for a class in isinstance, in a comparison of types or in an annotation: no object is made there."""
    parent = work.source.parents.get(node)
    if isinstance(parent, ast.Tuple | ast.List | ast.Set):
        parent = work.source.parents.get(parent)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func is not node and parent.func.id in ("isinstance", "issubclass")
    return isinstance(parent, ast.Compare) or is_in_annotation(work.source, node)


def amp_state(work: Work, node: ast.expr, name: str, own: str) -> State:
    """Return "right" for the card's own amp; with --to any also for an annotation, which needs no CUDA."""
    annotated = work.options.to == "any" and is_in_annotation(work.source, node)
    return "right" if annotated or name.startswith(own) else "needed"


def find_moves(work: Work) -> Iterator[Candidate]:
    """Yield the calls that move a tensor or module to the card."""
    from viaduct.migration.rules.torch._devices import is_of_other_library, qualified_root, receiver_class
    from viaduct.migration.rules.torch._is_cuda import is_own_field
    from viaduct.migration.rules.torch.cuda_method import is_bound_move

    own = device_and_backend(work)[0]
    states: dict[str, State] = {"cuda": "needed", own: "right"}
    for method, state in states.items():
        for call in work.index.methods.get(method, []):
            site = Site(RULE, work, call)
            receiver = call.func.value  # type: ignore[attr-defined]
            if (
                not is_of_other_library(qualified_root(site, receiver))
                and receiver_class(site, receiver, method) is None
            ):
                yield make_candidate(work, "moves", call, state)
    for node in work.source.of_kind(ast.Attribute):
        is_read = isinstance(node.ctx, ast.Load)
        asks_for_cuda = node.attr == "is_cuda" and is_read and not is_own_field(Site(RULE, work, node))
        if asks_for_cuda or (node.attr == "cuda" and is_bound_move(Site(RULE, work, node))):
            yield make_candidate(work, "moves", node, "needed")
        elif node.attr == f"is_{own}" and is_read:
            yield make_candidate(work, "moves", node, "right")


def find_texts(work: Work) -> Iterator[Candidate]:
    """Yield strings that name a device, a backend or CUDA_VISIBLE_DEVICES, and commands that contain such a name."""
    own, backend = device_and_backend(work)
    for node in work.source.of_kind(ast.Constant):
        if not isinstance(node.value, str):
            continue
        value, prefix = node.value, node.value.partition(":")[0]
        if names_module(work, node):
            yield make_candidate(work, "device_calls", node, "needed")
            continue
        if COMMAND.search(value) and not is_prose(work, node):
            yield make_candidate(work, "device_strings", node, "needed")
            continue
        if prefix not in ("cuda", own) and value not in ("nccl", backend, CUDA.visible):
            continue
        if chooses_nothing(work, node):
            continue
        if value in ("nccl", backend):
            yield make_candidate(work, "backend", node, "right" if value == backend else "needed")
        elif value == CUDA.visible:
            yield make_candidate(work, "visible_devices", node, "needed")
        elif is_device_text(value):
            right = prefix == own or stands_beside(work, node, own)
            yield make_candidate(work, "device_strings", node, "right" if right else "needed")


def is_prose(work: Work, node: ast.Constant) -> bool:
    """Return True for a docstring, and for a text or a part of an f-string that is a message."""
    parent = work.source.parents.get(node)
    text = parent if isinstance(parent, ast.JoinedStr) else node
    return isinstance(work.source.parents.get(text), ast.Expr) or is_message(work, text)


def names_module(work: Work, node: ast.Constant) -> bool:
    """Return True for the text in `sys.modules["torch.cuda"]`, `vars(torch)["cuda"]`, `import_module("torch.cuda")`."""
    value, parent = str(node.value), work.source.parents.get(node)
    if value != "cuda" and not value.startswith("torch.cuda"):
        return False
    if isinstance(parent, ast.Subscript):
        mapping = ast.unparse(parent.value)
        return mapping.endswith(("__dict__", "sys.modules")) or mapping.startswith("vars(")
    name = ast.unparse(parent.func) if isinstance(parent, ast.Call) else ""
    return name.endswith(("import_module", "__import__")) and parent.args[:1] == [node]  # type: ignore[union-attr]


def stands_beside(work: Work, node: ast.Constant, device: str) -> bool:
    """Return True for `"cuda"` in `device.type in ("cuda", "npu")`: the comparison is true for the card too."""
    parent = work.source.parents.get(node)
    if not isinstance(parent, ast.Tuple | ast.List | ast.Set):
        return False
    compared = isinstance(work.source.parents.get(parent), ast.Compare)
    return compared and any(isinstance(element, ast.Constant) and element.value == device for element in parent.elts)


def is_device_text(value: str) -> bool:
    """Return True for `cuda`, `cuda:0`, and the beginning of a text that is put together: `cuda:`, `cuda:%d`."""
    _, colon, number = value.partition(":")
    return not colon or not number or number.isdigit() or number[0] in "%{"


def chooses_nothing(work: Work, node: ast.Constant) -> bool:
    """Return True for a text that chooses no device: a key, an attribute's name, a message, a library's argument."""
    from viaduct.migration.rules.torch.device_left import is_explained

    parent = work.source.parents.get(node)
    if isinstance(parent, ast.Compare):
        return parent.left is node and isinstance(parent.ops[0], ast.In | ast.NotIn)  # `"cuda" in options`: a key
    if isinstance(parent, ast.JoinedStr):
        return parent.values[0] is not node  # a device string begins with the device's name
    return is_message(work, node) or is_explained(Site(RULE, work, node))


def is_message(work: Work, node: ast.AST) -> bool:
    """Return True for a help text, a message of an error or a line of a log."""
    parent = work.source.parents.get(node)
    if isinstance(parent, ast.keyword):
        return parent.arg in ("help", "description", "usage", "epilog", "message", "reason", "title", "label")
    callee = parent.func if isinstance(parent, ast.Call) else None
    name = getattr(callee, "attr", getattr(callee, "id", ""))
    return name in LOG_FUNCTIONS or name.endswith(("Error", "Warning"))


def find_loads(work: Work) -> Iterator[Candidate]:
    """Yield the loads of checkpoints; those with a map_location, or that need none, are right."""
    from viaduct.migration.rules.torch._loaded import load_destination

    for name in CHECKPOINT_LOADS:
        for call in work.index.calls.get(name, []):
            site = Site(RULE, work, call, name)
            right = not is_none_or_absent(site.argument("map_location", 1)) or load_destination(site) == "nothing"
            yield make_candidate(work, "checkpoints", call, "right" if right else "needed")
        for node in work.index.references.get(name, []):
            if not is_alias_or_signature(work, node):
                yield make_candidate(work, "checkpoints", node, state_of_reference(work, node))


def is_alias_or_signature(work: Work, node: ast.expr) -> bool:
    """Return True for `load = torch.load`, whose calls are followed, and for what inspects the function only."""
    parent = work.source.parents.get(node)
    if isinstance(parent, ast.Assign):
        return all(isinstance(target, ast.Name) for target in parent.targets)
    if isinstance(parent, ast.Compare | ast.Attribute):
        return True
    return isinstance(parent, ast.Call) and ast.unparse(parent.func).endswith(("wraps", "signature", "hasattr"))


def state_of_reference(work: Work, node: ast.expr) -> State:
    """Return "right" for `partial(torch.load, map_location="cpu")`; "unclear" for torch.load passed on otherwise."""
    parent = work.source.parents.get(node)
    partial = isinstance(parent, ast.Call) and (work.names.qualified(parent.func) or "").endswith("partial")
    location = find_argument(parent, "map_location") if isinstance(parent, ast.Call) and partial else None
    return "unclear" if is_none_or_absent(location) else "right"
