"""Call the card's functions where the script calls those of torch.cuda.

     import torch
    +import torch_npu
    -torch.cuda.set_device(0)
    +torch.npu.set_device(0)
    -stream = torch.cuda.Stream()
    +stream = torch.npu.Stream()

torch_npu and torch_mlu give torch a module of their own with the names of torch.cuda: devices, streams, events, memory,
random numbers, the old tensor types. Which of them exist was read from the plug-ins; what they do not have is left as
written and named by `cuda_unknown`.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._chains import rename_to
from viaduct.migration.rules.torch._surface import counterpart
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.rules.torch.default_tensor_type import is_default_type

rule = Rule(__name__, spec="P2 P11 6", kind="mandatory", targets=("npu", "mlu"), order=20)


@rule.node(ast.Attribute, words=("cuda",))
def replaced(site: Site) -> None:
    """`torch.cuda.is_available = lambda: False`, as tests do."""
    name = site.qualified(site.node) if not isinstance(site.node.ctx, ast.Load) else None
    if name is not None and name.startswith("torch.cuda."):
        rename(Site(site.rule, site.work, site.node, name))


@rule.call("torch.cuda.*")
@rule.reference("torch.cuda.*")
def rename(site: Site) -> None:
    target = card(site.options)
    known = counterpart(site.name[len("torch.cuda.") :], target)
    if known is None or (known.endswith("Tensor") and is_default_type(site, site.node)):
        return
    new = f"{target.root}.{known}"
    node = site.node.func if hasattr(site.node, "func") else site.node
    done = rename_to(site, node, site.name, new)
    if done:
        site.changed(f"{site.name} becomes {new}", zh=f"{site.name} 替换为 {new}")
    elif done is False:
        site.manual(
            f"write {new} for {site.name}; this place cannot be edited safely", zh=f"请改为 {new};此处无法安全改写"
        )
