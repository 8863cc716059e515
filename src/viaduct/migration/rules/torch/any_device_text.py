"""Name whatever card there is where the script names a CUDA device.

     import torch
    -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    +from accelerator_device import accelerator
    +device = torch.device(accelerator.name() if torch.cuda.is_available() else "cpu")
    -model.to(f"cuda:{rank}")
    +model.to(accelerator.name(rank))

A text stays a text: `accelerator.name(1)` is "cuda:1" on CUDA, "npu:1" on an NPU, "cpu" without a card. Only strings
that reach a device are changed, where they are written; `torch.device("cuda:0")` becomes `accelerator.device(0)`.
The defaults and choices of a command line option for a device go along. Words in messages, keys, paths stay.
What looks like a device but is not seen to be used as one is left, and named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _any as neutral
from viaduct.migration.rules.torch._device_texts import device_like, head, is_exact, is_text
from viaduct.migration.rules.torch._devices import Devices, find_devices
from viaduct.migration.rules.torch.device_argparse import FLAGS, VALUES, calls, option_names
from viaduct.migration.rules.torch.device_string import imports_torch, name_the_rest

rule = Rule(__name__, spec="P8 P9 P18 P25", kind="mandatory", targets=("any",), order=16)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.file(words=("cuda",))
def texts(site: Site) -> None:
    if not imports_torch(site):
        return
    devices = find_devices(site)
    held = dict.fromkeys(devices.found)
    held |= dict.fromkeys([*offered(site, devices), *values_of_maps(site)])
    keys = set(keys_of_maps(site))
    for literal in held:
        if ("any", literal) not in site.work.seen and literal not in keys and not compared(site, literal):
            site.work.seen[("any", literal)] = None
            change(site, literal)
    for each in maps(site):
        add_keys(site, each)
    for node in site.source.of_kind(ast.Constant):
        if isinstance(node, ast.Constant) and is_exact(node) and node not in held and node not in keys:
            name_the_rest(site, node, f"accelerator.name({neutral.number(site, node)})", devices)


def offered(site: Site, devices: Devices) -> Iterator[ast.expr]:
    """Of `add_argument("--device", default="cuda", choices=["cuda", "cpu"])`, and of click and absl."""
    for call in calls(site):
        if any(device_like(name) or name in devices.attributes for name in option_names(site, call)):
            values = [word.value for word in call.keywords if word.arg in VALUES]
            values += call.args[1 : FLAGS.get(site.qualified(call.func) or "", 0)]
            yield from filter(None, (head(one) for value in values for one in ast.walk(value)))


def maps(site: Site) -> list[ast.Dict]:
    """`torch.load(f, map_location={"cuda:0": "cuda:1"})`: both sides are devices."""
    calls = [*site.work.index.calls.get("torch.load", []), *site.work.index.calls.get("torch.jit.load", [])]
    given = [word.value for call in calls for word in call.keywords if word.arg == "map_location"]
    given += [call.args[1] for call in calls if len(call.args) > 1]
    return [one for one in map(site.values.origin, given) if isinstance(one, ast.Dict)]


def values_of_maps(site: Site) -> list[ast.expr]:
    return [one for each in maps(site) for one in map(head, each.values) if one is not None]


def keys_of_maps(site: Site) -> list[ast.expr]:
    """They say where a checkpoint was saved: CUDA's stay, and those of the card there is stand beside them."""
    return [one for each in maps(site) for one in map(head, each.keys) if one is not None]


def compared(site: Site, literal: ast.expr) -> bool:
    """Comparisons are another rule's."""
    around: ast.AST | None = neutral.whole(site, literal)
    while isinstance(around, ast.expr) and not isinstance(around, ast.Compare):
        around = site.source.parents.get(around)
        if isinstance(around, ast.Call) and not is_plain(site, around):
            return False
    return isinstance(around, ast.Compare)


def is_plain(site: Site, call: ast.Call) -> bool:
    return site.qualified(call.func) == "torch.device" or (isinstance(call.func, ast.Name) and call.func.id == "str")


def add_keys(site: Site, each: ast.Dict) -> None:
    if ("any map", each) in site.work.seen or any(key is not None and ".name(" in site.text(key) for key in each.keys):
        return
    site.work.seen[("any map", each)] = None
    for key, value in zip(each.keys, each.values, strict=True):
        literal = head(key)
        given = neutral.number(site, key) if key is not None and literal is not None else None
        if key is None or given is None or site.source.in_f_string(key):
            continue
        name = neutral.helper(site, each)
        to = neutral.number(site, value) if head(value) is not None else None
        said = f"{name}.name({to})" if to is not None else site.text(value)
        site.edit.insert(site.source.span(key)[0], f"{name}.name({given}): {said}, ")
        site.changed("and what was saved on whatever card there is", zh="并包括在现有加速卡上保存的张量", node=key)


def change(site: Site, literal: ast.expr) -> None:
    node = neutral.whole(site, literal)
    if site.work.is_served(node) or list_all_cards(site, literal):
        return
    given = neutral.number(site, node)
    if given is None or site.source.in_f_string(node):
        site.manual(
            "this names a CUDA device and cannot be edited safely here: write accelerator.name(NUMBER)",
            zh="此处指定了 CUDA 设备但无法安全改写:请改为 accelerator.name(编号)",
            node=literal,
        )
        return
    if neutral.scripted(site, node):
        return
    call = site.source.parents.get(node)
    if isinstance(call, ast.Call) and site.qualified(call.func) == "torch.device" and call.args[:1] == [node]:
        made = device(site, call, given)
    else:
        made = f"{neutral.helper(site, node)}.name({given})"
        site.edit.node(node, made)
    if made:
        site.changed(f"the device is whatever card there is: {made}", zh=f"设备改为现有的加速卡:{made}", node=node)


def list_all_cards(site: Site, literal: ast.expr) -> bool:
    """`device: Literal["cuda", "cpu"]` holds texts alone: it names every card then."""
    parent = site.source.parents[literal]
    held = site.source.parents[parent] if isinstance(parent, ast.Tuple) else parent
    if not isinstance(held, ast.Subscript) or not (site.qualified(held.value) or "").endswith(".Literal"):
        return False
    if any(isinstance(one, ast.Constant) and one.value == "npu" for one in ast.walk(held.slice)):
        return True
    if not is_text(literal, "cuda"):
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
    """`torch.device("cuda", rank)` as a whole."""
    rest = [*call.args[1:], *(word.value for word in call.keywords)]
    if len(rest) > 1 or (rest and given):
        return ""
    made = f"{neutral.helper(site, call)}.device({site.text(rest[0]) if rest else given})"
    site.edit.node(call, made)
    return made
