"""Name the available card where the script names a CUDA device.

     import torch
    -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    +from accelerator_device import accelerator
    +device = torch.device(accelerator.name() if torch.cuda.is_available() else "cpu")
    -model.to(f"cuda:{rank}")
    +model.to(accelerator.name(rank))

A text stays a text: `accelerator.name(1)` is "cuda:1" on CUDA, "npu:1" on an NPU, "cpu" without a card. Only strings
that reach a device are changed, where they are written; `torch.device("cuda:0")` becomes `accelerator.device(0)`. The
defaults and choices of a command line option for a device change too. Words in messages, keys and paths stay. A text
that looks like a device but is not seen to be used as one is left and reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _helper as neutral
from viaduct.migration.rules.torch._device_texts import device_like, head, is_exact
from viaduct.migration.rules.torch._devices import Devices, find_devices, report_possible_device
from viaduct.migration.rules.torch._options import FLAGS, VALUES, calls, option_names
from viaduct.migration.targets import helper

rule = Rule(__name__, spec="P8 P9 P18 P25", kind="mandatory", targets=("any",), after=("rng_state", "any_amp"))
EXAMPLE_OPTIONS = {"to": "any"}


@rule.file(words=("cuda",))
def replace_texts(site: Site) -> None:
    if not is_in_torch_program(site):
        return
    devices = find_devices(site)
    held = dict.fromkeys(devices.found)
    held |= dict.fromkeys([*option_values(site, devices), *values_of_maps(site)])
    keys = set(keys_of_maps(site))
    for literal in held:
        if ("any", literal) not in site.work.seen and literal not in keys and not is_compared(site, literal):
            site.work.seen[("any", literal)] = None
            change(site, literal)
    for table in maps(site):
        add_keys(site, table)
    for node in site.source.of_kind(ast.Constant):
        if isinstance(node, ast.Constant) and is_exact(node) and node not in held and node not in keys:
            report_possible_device(site, node, f"accelerator.name({neutral.device_number(site, node)})", devices)


def option_values(site: Site, devices: Devices) -> Iterator[ast.expr]:
    """Yield the devices of `add_argument("--device", default="cuda", choices=["cuda", "cpu"])`, click and absl."""
    for call in calls(site):
        if any(device_like(name) or name in devices.attributes for name in option_names(site, call)):
            values = [keyword.value for keyword in call.keywords if keyword.arg in VALUES]
            values += call.args[1 : FLAGS.get(site.qualified(call.func) or "", 0)]
            yield from filter(None, (head(node) for value in values for node in ast.walk(value)))


def maps(site: Site) -> list[ast.Dict]:
    """Return the dicts of `torch.load(f, map_location={"cuda:0": "cuda:1"})`: both sides are devices."""
    calls = [*site.work.index.calls.get("torch.load", []), *site.work.index.calls.get("torch.jit.load", [])]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "map_location"]
    given += [call.args[1] for call in calls if len(call.args) > 1]
    return [item for item in map(site.values.origin, given) if isinstance(item, ast.Dict)]


def values_of_maps(site: Site) -> list[ast.expr]:
    return [item for table in maps(site) for item in map(head, table.values) if item is not None]


def keys_of_maps(site: Site) -> list[ast.expr]:
    """Return the keys, which say where a checkpoint was saved: they stay, and keys of the available card are added."""
    return [item for table in maps(site) for item in map(head, table.keys) if item is not None]


def is_compared(site: Site, literal: ast.expr) -> bool:
    """Return True for a text in a comparison, which any_device_compare deals with."""
    around: ast.AST | None = neutral.full_expression(site, literal)
    while isinstance(around, ast.expr) and not isinstance(around, ast.Compare):
        around = site.source.parents.get(around)
        if isinstance(around, ast.Call) and not is_plain(site, around):
            return False
    return isinstance(around, ast.Compare)


def is_plain(site: Site, call: ast.Call) -> bool:
    return site.qualified(call.func) == "torch.device" or (isinstance(call.func, ast.Name) and call.func.id == "str")


def add_keys(site: Site, table: ast.Dict) -> None:
    if ("any map", table) in site.work.seen or any(
        key is not None and ".name(" in site.text(key) for key in table.keys
    ):
        return
    site.work.seen[("any map", table)] = None
    for key, value in zip(table.keys, table.values, strict=True):
        literal = head(key)
        given = neutral.device_number(site, key) if key is not None and literal is not None else None
        if key is None or given is None or site.source.in_f_string(key):
            continue
        name = helper(site, table)
        to = neutral.device_number(site, value) if head(value) is not None else None
        said = f"{name}.name({to})" if to is not None else site.text(value)
        site.edit.insert(site.source.span(key)[0], f"{name}.name({given}): {said}, ")
        site.changed(
            "tensors that were saved on the available card have an entry too",
            zh="在现有加速卡上保存的张量也有对应条目",
            node=key,
        )


def change(site: Site, literal: ast.expr) -> None:
    node = neutral.full_expression(site, literal)
    if site.work.is_served(node) or list_all_cards(site, literal):
        return
    given = neutral.device_number(site, node)
    if given is None or site.source.in_f_string(node):
        site.manual(
            "this names a CUDA device and cannot be edited safely here: write accelerator.name(NUMBER)",
            zh="此处指定了 CUDA 设备但无法安全改写:请改为 accelerator.name(编号)",
            node=literal,
        )
        return
    if neutral.is_scripted(site, node):
        return
    call = site.source.parents.get(node)
    if isinstance(call, ast.Call) and site.qualified(call.func) == "torch.device" and call.args[:1] == [node]:
        made = device(site, call, given)
    else:
        made = f"{helper(site, node)}.name({given})"
        site.edit.node(node, made)
    if made:
        site.changed(f"the device is the available card: {made}", zh=f"设备改为现有的加速卡:{made}", node=node)


def list_all_cards(site: Site, literal: ast.expr) -> bool:
    """Name every card in `device: Literal["cuda", "cpu"]`, which can hold texts only; return True if that is done."""
    parent = site.source.parents[literal]
    held = site.source.parents[parent] if isinstance(parent, ast.Tuple) else parent
    if not isinstance(held, ast.Subscript) or not (site.qualified(held.value) or "").endswith(".Literal"):
        return False
    if any(isinstance(node, ast.Constant) and node.value == "npu" for node in ast.walk(held.slice)):
        return True
    if not is_literal_in(literal, "cuda"):
        site.manual(
            "this annotation names a CUDA device: name those of the other cards beside it",
            zh="该类型注解指定了 CUDA 设备:请同时列出其他加速卡",
            node=literal,
        )
        return True
    quote = site.text(literal)[-1]
    cards = ", ".join(f"{quote}{name}{quote}" for name in ("cuda", "npu", "mlu"))
    site.edit.node(literal, cards)
    site.changed("the annotation names every card", zh="类型注解列出所有加速卡", node=literal)
    return True


def device(site: Site, call: ast.Call, given: str) -> str:
    """Replace the whole of `torch.device("cuda", rank)`; return "" where it cannot be."""
    remainder = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    if len(remainder) > 1 or (remainder and given):
        return ""
    made = f"{helper(site, call)}.device({site.text(remainder[0]) if remainder else given})"
    site.edit.node(call, made)
    return made
