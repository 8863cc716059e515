"""Set map_location, so that checkpoints that were saved on CUDA can be loaded.

     import torch
    +import torch_npu
    -model.load_state_dict(torch.load("best.pt"))
    +model.load_state_dict(torch.load("best.pt", map_location="cpu"))
    -network = torch.load("whole.pt")
    +network = torch.load("whole.pt", map_location="npu")
     network.eval()(batch.to(device))

torch.load puts a tensor on the device on which it was saved, which fails without CUDA. Weights for load_state_dict are
loaded on the host; load_state_dict copies them to the network's device. Complete networks, and tensors that are used on
the card, are loaded on the card. Content that is used on the host, such as the samples of a dataset, needs no
map_location. If the script does not show how the content is used, the load is reported. A map_location that is a
dictionary gets an entry for checkpoints that were saved on the card. The rules `device_string` and `cuda_method` edit
strings and lambdas.

With `--to any` the helper module accelerator_device decides; on CUDA its map_location() is None, the default:

     import torch
    +from accelerator_device import accelerator
    -model.load_state_dict(torch.load(path))
    +model.load_state_dict(torch.load(path, map_location=accelerator.map_location()))
    -network = torch.load(other)
    +network = torch.load(other, map_location=accelerator.device())
     network.eval()(batch.to(device))
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Bilingual
from viaduct.migration.device_texts import device_literal
from viaduct.migration.flow_survey import CHECKPOINT_LOADS
from viaduct.migration.lookups import mark_once
from viaduct.migration.predicates import is_literal_in, is_none
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._loaded import find_device_variable, find_load_destination

rule = Rule(
    __name__,
    target_needs="checkpoints",
    spec_rows=("P18",),
    targets=ALL_TARGETS,
    former_names=("any_map_location", "any_device_text"),
)

LOADED_ON_HOST: tuple[Bilingual, Bilingual] = (
    ("the checkpoint is loaded on the host first", "检查点先加载到主机内存"),
    ("a checkpoint from another kind of card is loaded on the host first", "其他加速卡保存的检查点先载入主机内存"),
)
UNKNOWN_USE: tuple[Bilingual, Bilingual] = (
    (
        'check where the content of this file is used: weights for load_state_dict need map_location="cpu", a network '
        'or tensors for the card map_location="{card.device}"; content that was saved on the CPU needs nothing',
        '请确认此文件内容的用途:供 load_state_dict 使用的权重应传入 map_location="cpu",在加速卡上使用的网络或张量'
        '应传入 map_location="{card.device}";在 CPU 上保存的内容无需改动',
    ),
    (
        "check where the content of this file is used: weights for load_state_dict need "
        "map_location=accelerator.map_location(), a network or tensors for the card map_location=accelerator.device()",
        "请确认此文件内容的用途:供 load_state_dict 使用的权重应传入 map_location=accelerator.map_location(),"
        "在加速卡上使用的网络或张量应传入 map_location=accelerator.device()",
    ),
)
# The new location is inserted last, at {}:
ENTRY_ADDED: tuple[Bilingual, Bilingual] = (
    (
        "tensors that were saved on CUDA or on {card.device} are loaded on {{}}",
        "在 CUDA 或 {card.device} 上保存的张量都加载到 {{}}",
    ),
    ("tensors that were saved on the available card have an entry too", "在现有加速卡上保存的张量也有对应条目"),
)


@rule.call(*CHECKPOINT_LOADS)
def set_location(site: Site) -> None:
    """Add map_location to a load without one; add the card to a map_location that is a dictionary."""
    location = site.argument("map_location", 1)
    if location is None or is_none(location):
        add_location(site, location)
        return
    table = site.values.assigned_value(location)
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if key is not None and device_literal(key) is not None and mark_once(site, "entry", key):
                add_entry(site, table, key, value)


def add_location(site: Site, given: ast.expr | None) -> None:
    """Set `map_location`, which is absent or given as None, to the device on which the loaded content is used."""
    destination = find_load_destination(site)
    if destination == "unneeded" or not (site.node.args or site.node.keywords):
        return
    if destination == "unknown" or not site.is_editable or (site.has_unpacked_arguments and given is None):
        site.report_unresolved(*site.target.select_message(*UNKNOWN_USE))
    elif destination == "host":
        site.set_argument("map_location", site.target.render_host_location(site), 1)
        site.report_change(*site.target.select_message(*LOADED_ON_HOST))
    else:
        load_on_card(site)


def load_on_card(site: Site) -> None:
    """Load on the script's device variable, else on the card."""
    if site.target.is_any_card:
        site.set_argument("map_location", site.target.render_device(site), 1)
        site.report_change(
            "content that was saved on another card is loaded on this one", zh="其他加速卡保存的内容加载到当前加速卡"
        )
        return
    variable, device = find_device_variable(site), site.target.card.device
    site.set_argument("map_location", variable or site.target.render_device(site), 1)
    site.target.require_plugin(site)
    location = variable or device
    site.report_change(f"the content of the file is loaded on {location}", zh=f"文件内容加载到 {location}")


def add_entry(site: Site, table: ast.Dict, key: ast.expr, value: ast.expr) -> None:
    """Change the value of `"cuda:0": "cuda:1"` to the card, and add an entry for tensors saved on the card."""
    new_key = site.target.render_device_text(site, key)
    if new_key is None:
        return
    new_value = site.target.render_device_text(site, value) if device_literal(value) is not None else None
    new_value = site.text_of(value) if new_value is None else new_value
    has_entry = any(is_same(site, other, new_key) for other in table.keys)
    added = "" if has_entry else f", {new_key}: {new_value}"
    if added or new_value != site.text_of(value):
        site.edit.replace(*site.source.span(value), f"{new_value}{added}")
        english, chinese = site.target.select_message(*ENTRY_ADDED)
        site.report_change(english.format(new_value), zh=chinese.format(new_value), node=key)


def is_same(site: Site, key: ast.expr | None, text: str) -> bool:
    """Return True if a key is this text, with any quotes."""
    return key is not None and (site.text_of(key) == text or is_literal_in(key, text.strip("\"'")))
