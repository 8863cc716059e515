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
"""

from __future__ import annotations

import ast

from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import is_cuda_device, rename_device
from viaduct.migration.rules.torch._devices import find_devices, report_possible_device
from viaduct.migration.rules.torch._options import is_in_add_argument

rule = Rule(
    __name__,
    requirement="device_strings",
    rows=("P8", "P9", "P18", "P24", "P25", "6"),
    targets=("npu", "mlu"),
    after=("cuda_api", "autocast", "profiler"),
)


@rule.file(only_if_file_contains=('"cuda', "'cuda"))
def replace_devices(site: Site) -> None:
    """Replace every string that is used as a CUDA device, and report those that may be one."""
    if not is_in_torch_program(site):
        return
    devices = find_devices(site)
    device = site.target.card.device
    for literal in devices.cuda_literals:
        # The rule device_argparse edits those in an add_argument.
        if not is_in_add_argument(site, literal) and rename_device(site, literal, device):
            site.report_change(f"the device is {device}", zh=f"设备改为 {device}", node=literal)
    for node in site.source.nodes_of_type(ast.Constant):
        if is_cuda_device(node) and node not in devices.cuda_literals:
            report_possible_device(site, node, device, devices)
