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
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _any as neutral
from viaduct.migration.rules.torch._device_texts import device_like, head
from viaduct.migration.rules.torch._devices import Devices
from viaduct.migration.rules.torch.device_argparse import FLAGS, VALUES, calls, option_names
from viaduct.migration.rules.torch.device_string import imports_torch

rule = Rule(__name__, spec="P8 P9 P18 P25", kind="mandatory", targets=("any",), order=16)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.file(words=("cuda",))
def texts(site: Site) -> None:
    if not imports_torch(site):
        return
    devices = Devices(site)
    held = dict.fromkeys(devices.found)
    held |= dict.fromkeys([*offered(site, devices), *keys_of_maps(site)])
    for literal in held:
        if ("any", literal) not in site.work.seen and not compared(site, literal):
            site.work.seen[("any", literal)] = None
            change(site, literal)


def offered(site: Site, devices: Devices) -> Iterator[ast.expr]:
    """Of `add_argument("--device", default="cuda", choices=["cuda", "cpu"])`, and of click and absl."""
    for call in calls(site):
        if any(device_like(name) or name in devices.attributes for name in option_names(site, call)):
            values = [word.value for word in call.keywords if word.arg in VALUES]
            values += call.args[1 : FLAGS.get(site.qualified(call.func) or "", 0)]
            yield from filter(None, (head(one) for value in values for one in ast.walk(value)))


def keys_of_maps(site: Site) -> list[ast.expr]:
    """`torch.load(f, map_location={"cuda:0": "cuda:1"})`: both sides are devices."""
    calls = [*site.work.index.calls.get("torch.load", []), *site.work.index.calls.get("torch.jit.load", [])]
    given = [word.value for call in calls for word in call.keywords if word.arg == "map_location"]
    given += [call.args[1] for call in calls if len(call.args) > 1]
    maps = [one for one in map(site.values.origin, given) if isinstance(one, ast.Dict)]
    found = [head(one) for each in maps for one in (*each.keys, *each.values)]
    return [one for one in found if one is not None]


def compared(site: Site, literal: ast.expr) -> bool:
    """Comparisons are another rule's."""
    parent = site.source.parents.get(literal)
    holder = site.source.parents.get(parent) if isinstance(parent, ast.Tuple | ast.List | ast.Set) else parent
    return isinstance(holder, ast.Compare)


def change(site: Site, literal: ast.expr) -> None:
    node = neutral.whole(site, literal)
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


def device(site: Site, call: ast.Call, given: str) -> str:
    """`torch.device("cuda", rank)` as a whole."""
    rest = [*call.args[1:], *(word.value for word in call.keywords)]
    if len(rest) > 1 or (rest and given):
        return ""
    made = f"{neutral.helper(site, call)}.device({site.text(rest[0]) if rest else given})"
    site.edit.node(call, made)
    return made
