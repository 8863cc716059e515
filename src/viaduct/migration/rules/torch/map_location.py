"""Load checkpoints without the device on which they were written.

     import torch
    -state = torch.load("best.pt")
    +state = torch.load("best.pt", map_location="cpu")

A tensor that was saved on a GPU is put back there unless torch.load is told otherwise, and without CUDA that is an
error. On the host it can be copied into a network on any device. Dictionaries keep the entry for a checkpoint of the
old machine and get one for the new; strings and lambdas are those of `device_string` and `cuda_method`.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import OPENING, head, is_text
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P18", kind="mandatory", targets=("npu", "mlu"), order=50)

LOADS = ("torch.load", "torch.jit.load")


@rule.call(*LOADS)
def load(site: Site) -> None:
    where = site.argument("map_location", 1)
    if where is None or (isinstance(where, ast.Constant) and where.value is None):
        load_on_host(site, where)
        return
    table = site.values.origin(where)
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            carry_entry(site, table, key, value)


def load_on_host(site: Site, where: ast.expr | None) -> None:
    if site.unpacked or not site.editable:
        site.manual(
            "see that map_location is given: a checkpoint from a GPU cannot be loaded without one",
            zh="请确认已传入 map_location:否则无法加载在 GPU 上保存的检查点",
        )
        return
    if where is not None:
        site.edit.node(where, '"cpu"')
    else:
        site.set_argument("map_location", '"cpu"')
    site.changed("the checkpoint is loaded on the host first", zh="检查点先加载到主机内存", risk="low")


def carry_entry(site: Site, table: ast.Dict, key: ast.expr | None, value: ast.expr) -> None:
    """`{"cuda:0": "cuda:1"}`: the key says where a tensor was, the value where it shall go."""
    literal = head(key)
    if literal is None or key is None or ("entry", key) in site.work.seen or site.source.in_f_string(key):
        return
    site.work.seen[("entry", key)] = None
    word = card(site.options).device
    new_key, new_value = renamed(site, key, word), renamed(site, value, word)
    start, end = site.source.span(value)
    known = any(is_same(site, other, new_key) for other in table.keys)
    more = "" if known else f", {new_key}: {new_value}"
    if more or new_value != site.text(value):
        site.edit.replace(start, end, f"{new_value}{more}")
        site.changed(
            f"what was on CUDA goes to {word}, and so does what {word} itself has saved",
            zh=f"在 CUDA 上保存的张量加载到 {word};在 {word} 上保存的同样处理",
            node=key,
        )


def is_same(site: Site, key: ast.expr | None, text: str) -> bool:
    return key is not None and (site.text(key) == text or is_text(key, text.strip("\"'")))


def renamed(site: Site, node: ast.expr, word: str) -> str:
    """The text of a device expression with its first word changed."""
    literal, text = head(node), site.text(node)
    if literal is None:
        return text
    begin = site.source.span(literal)[0] - site.source.span(node)[0]
    opening = OPENING.match(text, begin)
    if opening is None:
        return text
    return text[: opening.end()] + word + text[opening.end() + len("cuda") :]
