"""Say which device a number means.

     import torch
     import torch_npu
     def work(rank: int, model: torch.nn.Module) -> None:
    -    model = model.to(rank)
    -    x = torch.zeros(3, device=0)
    +    model = model.to(f"npu:{rank}")
    +    x = torch.zeros(3, device="npu:0")

A bare number means CUDA in stock PyTorch, so `.to(0)`, `device=rank` and `torch.device(args.gpu)` become `npu:` texts.
Only what is a number is wrapped: a literal, an int(), a rank of torch.distributed, an option of type int, the worker's
number of mp.spawn, a name that is only ever one of these, and by habit `local_rank`, `rank`, `gpu`, `gpu_id`. What is
shown to be a device, a text, a dtype or a tensor is not. `.npu(…)` and `set_device(…)` take numbers as they are. The
MLU's PyTorch takes them everywhere, once torch_mlu is imported: there nothing but that import is asked for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _numbers as numbers
from viaduct.migration.rules.torch._devices import FOREIGN, is_foreign, receiver_class
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.rules.torch.plugin import imported_elsewhere

rule = Rule(__name__, spec="P8 6", kind="mandatory", targets=("npu", "mlu"), order=40)

FAMILY = ("torch", "torchvision", "torchaudio", "torchtext", "timm", "transformers", "diffusers", "monai", "lightning")


@rule.node(ast.Call, words=(".to(", "device"))
def name_the_device(site: Site) -> None:
    if site.work.path not in site.work.project.torch_files:
        return
    for value in taken(site, site.node):
        for one in branches(value):
            if site.options.to == "mlu":
                ask_for_import(site, one)
            elif numbers.is_number(site, one):
                wrap(site, one)
            elif isinstance(one, ast.Name) and numbers.is_partly_number(site, one):
                mixed(site, one)


def ask_for_import(site: Site, value: ast.expr) -> None:
    """torch_mlu takes the number as it is; without its import, here or elsewhere, the number would still mean CUDA."""
    target = card(site.options)
    number = numbers.is_number(site, value) or (isinstance(value, ast.Name) and numbers.is_partly_number(site, value))
    if number and not imported_elsewhere(site, target):
        site.work.effects.add(target.module)


def taken(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments in which PyTorch itself takes a device."""
    name = site.qualified(call.func) or ""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name == "torch.device":
        yield from call.args[:1] if len(call.args) == 1 else []
    elif method == "to" and not name.startswith("torch."):
        yield from taken_by_to(site, call)
    elif not (name.startswith("torch.") or method.startswith("new_") or method == "to_empty"):
        return
    yield from (word.value for word in call.keywords if word.arg == "device")


def taken_by_to(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """`Thing().to(0)`, and nobody knows what a Thing is, is left to a person; `Thing().to(rank)` tells itself."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if not call.args or receiver_class(site, receiver, "to") is not None:
        return
    if is_torchs(site, receiver) or numbers.is_habit(call.args[0]):
        yield call.args[0]
    elif site.options.to != "mlu" and numbers.is_number(site, call.args[0]):
        say_by_hand(site, call.args[0], card(site.options).device)


def is_torchs(site: Site, receiver: ast.expr) -> bool:
    """Not what another library made."""
    made = site.values.origin(receiver)
    if isinstance(made, ast.Call) and site.values.kind(made) is None and isinstance(made.func, ast.Name):
        name = site.qualified(made.func) or made.func.id
        return name.partition(".")[0] in FAMILY or not made.func.id[:1].isupper()
    return not is_foreign(site.qualified(receiver)) and not (isinstance(receiver, ast.Name) and receiver.id in FOREIGN)


def branches(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.IfExp):
        yield from branches(value.body)
        yield from branches(value.orelse)
    else:
        yield value


def wrap(site: Site, value: ast.expr) -> None:
    word, text = card(site.options).device, site.text(value)
    if site.source.in_f_string(value):
        say_by_hand(site, value, word)
        return
    if isinstance(value, ast.Constant):
        site.edit.node(value, f'"{word}:{text}"')
    elif numbers.may_be_none(site, value):
        site.edit.node(value, f"None if {text} is None else {as_text(word, text)}")
    else:
        site.edit.node(value, as_text(word, text))
    site.changed(
        f"a bare number means CUDA: the device is {word}:{text}",
        zh=f"整数设备号默认指 CUDA:改为 {word}:{text}",
        node=value,
    )


def as_text(word: str, text: str) -> str:
    """An f-string; where quotes of the expression would end it before Python 3.12, str.format."""
    plain = "\\" not in text and "\n" not in text and "#" not in text and "{" not in text
    if plain and '"' not in text:
        return f'f"{word}:{{{text}}}"'
    if plain and "'" not in text:
        return f"f'{word}:{{{text}}}'"
    return f'"{word}:{{}}".format({text})'


def mixed(site: Site, value: ast.Name) -> None:
    """`device = rank if spread else "cpu"`: the number is wrapped where it is assigned, if the name is for devices."""
    if not numbers.only_for_devices(site, value):
        say_by_hand(site, value, card(site.options).device)
        return
    for assigned in numbers.assigned(site, value):
        for one in branches(assigned):
            if numbers.is_number(site, one) and ("number", one) not in site.work.seen:
                site.work.seen[("number", one)] = None
                wrap(site, one)


def say_by_hand(site: Site, value: ast.expr, word: str) -> None:
    text = site.text(value)
    site.manual(
        f"{text} can be a number, which means CUDA here: give PyTorch a text such as '{word}:0'",
        zh=f"{text} 可能是整数,此处会被当作 CUDA 设备:请传入 '{word}:0' 形式的字符串",
        node=value,
    )
