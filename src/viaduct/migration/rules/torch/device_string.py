"""Replace strings that name a CUDA device by the card.

     import torch
     import torch_npu
    -device = "cuda:0" if torch.npu.is_available() else "cpu"
    +device = "npu:0" if torch.npu.is_available() else "cpu"
     x = torch.zeros(3, device=device)
     print("cuda is", {"cuda": 1})

The rule edits a string that PyTorch takes for a device (`.to`, `device=`, `torch.device`, `map_location=` …), directly
or through variables, parameters, defaults, attributes and dictionaries, and a string that is assigned to a name with
"device". Messages, help texts, paths, keys of dictionaries and names of kernels stay. A string that may be a device
stays and is reported.

With `--to any` the helper module accelerator_device, which the migration adds to the project, names the available card.
`accelerator.name(1)` is "cuda:1" on CUDA, "npu:1" on an NPU, "cpu" without a card:

     import torch
    -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    +from accelerator_device import accelerator
    +device = torch.device(accelerator.name() if torch.cuda.is_available() else "cpu")
    -model.to(f"cuda:{rank}")
    +model.to(accelerator.name(rank))
"""

from __future__ import annotations

import ast

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.device_texts import device_number_text, is_cuda_device
from viaduct.migration.lookups import elements
from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._devices import (
    find_constructor_texts,
    find_devices,
    replace_device_text,
    report_possible_device,
)
from viaduct.migration.rules.torch._options import is_in_add_argument

rule = Rule(
    __name__,
    target_needs="device_strings",
    spec_rows=("P8", "P9", "P18", "P24", "P25", "6"),
    targets=ALL_TARGETS,
    former_names=("any_device_text",),
    after=("autocast",),
)


@rule.file(only_if_file_contains=('"cuda', "'cuda"))
def replace_devices(site: Site) -> None:
    """Replace every string that is used as a CUDA device, and report strings that may be one."""
    if not is_in_torch_program(site):
        return
    devices = find_devices(site)
    compared = set(find_constructor_texts(site))
    for literal in devices.cuda_literals:
        # The rule device_argparse edits texts in an add_argument, device_compare texts in a comparison.
        if is_in_add_argument(site, literal) or literal in compared:
            continue
        if not (site.target.is_any_card and extend_annotation(site, literal)):
            replace_device_text(site, literal)
    for node in site.source.nodes_of_type(ast.Constant):
        if is_cuda_device(node) and node not in devices.cuda_literals:
            number = device_number_text(site.source, node) or ""
            report_possible_device(site, node, site.target.describe_device(number), devices)


def extend_annotation(site: Site, literal: ast.expr) -> bool:
    """Add the other cards to `device: Literal["cuda", "cpu"]`; return False for a text outside such an annotation."""
    parent = site.source.parents[literal]
    annotation = site.source.parents[parent] if isinstance(parent, ast.Tuple) else parent
    qualified = site.qualified_name(annotation.value) if isinstance(annotation, ast.Subscript) else None
    if not isinstance(annotation, ast.Subscript) or not (qualified or "").endswith(".Literal"):
        return False
    if any(is_literal_in(element, "npu") for element in elements(annotation.slice)):
        return True
    if not is_literal_in(literal, "cuda"):
        site.request_review(
            "this annotation names a CUDA device: add the devices of the other cards",
            zh="该类型注解指定了 CUDA 设备:请同时列出其他加速卡",
            node=literal,
        )
        return True
    quote = site.text_of(literal)[-1]
    site.edit.replace_node(literal, ", ".join(f"{quote}{name}{quote}" for name in DEVICE_TYPES))
    site.report_change("the annotation names every card", zh="类型注解列出所有加速卡", node=literal)
    return True
