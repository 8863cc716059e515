"""Replace strings that name a CUDA device by the available card.

     import torch
    -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    +from accelerator_device import accelerator
    +device = torch.device(accelerator.name() if torch.cuda.is_available() else "cpu")
    -model.to(f"cuda:{rank}")
    +model.to(accelerator.name(rank))

The migration adds the helper module accelerator_device to the project. `accelerator.name(1)` is "cuda:1" on CUDA,
"npu:1" on an NPU, "cpu" without a card. The rule edits strings that are used as a device, and defaults and choices of a
command line option for a device; `torch.device("cuda:0")` becomes `accelerator.device(0)`. Words in messages, keys and
paths stay. A string that may be a device stays and is reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import calls_to, elements, mark_once, plain_name
from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_literal, is_cuda_device, is_device_name
from viaduct.migration.rules.torch._devices import Devices, find_devices, report_possible_device
from viaduct.migration.rules.torch._helper import device_expression, device_number_text, report_if_in_torchscript
from viaduct.migration.rules.torch._options import option_names, option_values
from viaduct.migration.targets import import_helper

rule = Rule(
    __name__,
    requirement="device_strings",
    rows=("P8", "P9", "P18", "P25"),
    targets=("any",),
    after=("rng_state", "any_amp"),
)


@rule.file(only_if_file_contains=("cuda",))
def replace_texts(site: Site) -> None:
    """Replace every string that is used as a CUDA device, and report those that may be one.

    Keys of a map_location name the device of a saved tensor: they stay, and keys of the available card are added.
    """
    if not is_in_torch_program(site):
        return
    devices, tables = find_devices(site), map_location_tables(site)
    in_tables = [device_literal(value) for table in tables for value in table.values]
    found = [*devices.cuda_literals, *option_devices(site, devices), *filter(None, in_tables)]
    literals = dict.fromkeys(found)  # an ordered set
    keys = {device_literal(key) for table in tables for key in table.keys}
    for literal in literals:
        if literal not in keys and not is_in_comparison(site, literal) and mark_once(site, "any", literal):
            replace_text(site, literal)
    for table in tables:
        add_keys(site, table)
    for node in site.source.nodes_of_type(ast.Constant):
        if is_cuda_device(node) and node not in literals and node not in keys:
            report_possible_device(site, node, f"accelerator.name({device_number_text(site, node)})", devices)


def option_devices(site: Site, devices: Devices) -> Iterator[ast.expr]:
    """Yield the devices in `add_argument("--device", default="cuda", choices=["cuda"])`, also of click and absl."""
    for call in site.source.nodes_of_type(ast.Call):
        if any(is_device_name(name) or name in devices.device_keys for name in option_names(site, call)):
            nodes = (node for value in option_values(site, call) for node in ast.walk(value))
            yield from filter(None, map(device_literal, nodes))


def map_location_tables(site: Site) -> list[ast.Dict]:
    """Return the dicts in `torch.load(f, map_location={"cuda:0": "cuda:1"})`."""
    calls = calls_to(site, ("torch.load", "torch.jit.load"))
    values = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "map_location"]
    values += [call.args[1] for call in calls if len(call.args) > 1]
    return [table for table in map(site.values.assigned_value, values) if isinstance(table, ast.Dict)]


def is_in_comparison(site: Site, literal: ast.expr) -> bool:
    """Return True for a text in a comparison, also within str() or torch.device(); any_device_compare edits it."""
    for parent in site.source.ancestors(device_expression(site, literal)):
        if isinstance(parent, ast.Call):
            if site.qualified_name(parent.func) != "torch.device" and plain_name(parent.func) != "str":
                return False
        elif isinstance(parent, ast.Compare) or not isinstance(parent, ast.expr):
            return isinstance(parent, ast.Compare)
    return False


def add_keys(site: Site, table: ast.Dict) -> None:
    """Add to a map_location, before each key for CUDA, the same key for the available card."""
    has_keys = any(key is not None and ".name(" in site.text_of(key) for key in table.keys)
    if has_keys or not mark_once(site, "any map", table):
        return
    for key, value in zip(table.keys, table.values, strict=True):
        number = device_number_text(site, key) if key is not None and device_literal(key) is not None else None
        if key is None or number is None or site.source.is_in_f_string(key):
            continue
        helper = import_helper(site, table)
        new_number = device_number_text(site, value) if device_literal(value) is not None else None
        new_value = f"{helper}.name({new_number})" if new_number is not None else site.text_of(value)
        site.edit.insert(site.source.span(key)[0], f"{helper}.name({number}): {new_value}, ")
        site.report_change(
            "tensors that were saved on the available card have an entry too",
            zh="在现有加速卡上保存的张量也有对应条目",
            node=key,
        )


def replace_text(site: Site, literal: ast.expr) -> None:
    """Replace a text that begins with a literal by accelerator.name(…), torch.device(text) by accelerator.device(…)."""
    node = device_expression(site, literal)
    if site.file.is_left_alone(node) or extend_annotation(site, literal):
        return
    number = device_number_text(site, node)
    if number is None or site.source.is_in_f_string(node):
        site.request_review(
            "this names a CUDA device and cannot be edited safely: write accelerator.name(NUMBER)",
            zh="此处指定了 CUDA 设备但无法安全改写:请改为 accelerator.name(编号)",
            node=literal,
        )
        return
    if report_if_in_torchscript(site, node):
        return
    replaced: ast.AST = node
    call = site.source.parents.get(node)
    if isinstance(call, ast.Call) and site.qualified_name(call.func) == "torch.device" and call.args[:1] == [node]:
        indices = [*call.args[1:], *(keyword.value for keyword in call.keywords)]  # torch.device("cuda", rank)
        if len(indices) > 1 or (indices and number):
            return  # not a valid call
        new, replaced = f"{import_helper(site, call)}.device({site.text_of(indices[0]) if indices else number})", call
    else:
        new = f"{import_helper(site, node)}.name({number})"
    site.edit.replace_node(replaced, new)
    site.report_change(f"the device is the available card: {new}", zh=f"设备改为现有的加速卡:{new}", node=node)


def extend_annotation(site: Site, literal: ast.expr) -> bool:
    """Add the other cards to `device: Literal["cuda", "cpu"]`; return False for a text outside such an annotation."""
    parent = site.source.parents[literal]
    annotation = site.source.parents[parent] if isinstance(parent, ast.Tuple) else parent
    if not isinstance(annotation, ast.Subscript) or not (site.qualified_name(annotation.value) or "").endswith(
        ".Literal"
    ):
        return False
    if any(is_literal_in(element, "npu") for element in elements(annotation.slice)):
        return True
    if not is_literal_in(literal, "cuda"):
        site.request_review(
            "this annotation names a CUDA device: add those of the other cards",
            zh="该类型注解指定了 CUDA 设备:请同时列出其他加速卡",
            node=literal,
        )
        return True
    quote = site.text_of(literal)[-1]
    site.edit.replace_node(literal, ", ".join(f"{quote}{name}{quote}" for name in ("cuda", "npu", "mlu")))
    site.report_change("the annotation names every card", zh="类型注解列出所有加速卡", node=literal)
    return True
