"""Replace functions and classes of torch.cuda by the card's.

     import torch
    +import torch_npu
    -torch.cuda.set_device(0)
    +torch.npu.set_device(0)
    -stream = torch.cuda.Stream()
    +stream = torch.npu.Stream()

torch_npu and torch_mlu add a module to torch with the names of torch.cuda: devices, streams, events, memory, random
numbers, the old tensor types. A name that they do not have stays and is reported by `cuda_unknown`.

With `--to any` the helper module accelerator_device, which the migration adds to the project, forwards every name to
torch.cuda, torch.npu or torch.mlu, or without a card to a substitute. A name that only CUDA has stays and is reported.
A type that is only compared, as in `isinstance(x, torch.cuda.FloatTensor)`, becomes `accelerator.types.FloatTensor`:
on a machine without a card no tensor is an instance of that type.

     import torch
    -torch.cuda.set_device(0)
    +from accelerator_device import accelerator
    +accelerator.set_device(0)
    -start = torch.cuda.Event(enable_timing=True)
    +start = accelerator.Event(enable_timing=True)
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Risk
from viaduct.cards.torch_api import NPU_AND_MLU_NAMES, SUBMODULES, find_counterpart
from viaduct.migration.predicates import is_in_annotation, is_in_instance_check
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import rename_or_report
from viaduct.migration.rules.torch._helper import replace_by_helper, runs_only_with_card
from viaduct.migration.rules.torch._type_uses import is_compared, is_in_set_default_tensor_type

rule = Rule(
    __name__,
    target_needs="device_calls",
    spec_rows=("P2", "P11", "6"),
    targets=ALL_TARGETS,
    former_names=("any_cuda_api", "any_amp"),
    after=("rng_state", "amp", "device_string", "device_argparse", "device_compare", "device_integer"),
)

# Name in torch.cuda -> name in the helper, if they differ.
HELPER_NAMES = {
    "device": "device_index",  # a context manager for one card, as in torch.accelerator; `device` is a torch.device
    **{f"amp.{name}": name for name in ("autocast", "GradScaler")},
    **{"amp.autocast_mode.autocast": "autocast", "amp.grad_scaler.GradScaler": "GradScaler"},
    **{f"amp.autocast_mode.{name}": f"amp.{name}" for name in ("custom_fwd", "custom_bwd")},
    **{name: name for name in ("amp.custom_fwd", "amp.custom_bwd")},
}
REPORTED_ELSEWHERE = {"get_device_capability", "DoubleTensor", "DoubleStorage"}  # by `capability` and `double`
# Submodules whose names torch.cuda has too: torch.cuda.memory.empty_cache is torch.cuda.empty_cache.
REEXPORTED_MODULES = ("memory", "random", "streams")


@rule.node(ast.Attribute, only_if_file_contains=("cuda",))
def rename_assigned(site: Site) -> None:
    """Rename a name of torch.cuda that is assigned: `torch.cuda.is_available = lambda: False`.

    With `--to any` it stays, since the script still uses torch.cuda on a machine with CUDA.
    """
    is_renamed = not site.target.is_any_card and not isinstance(site.node.ctx, ast.Load)
    name = site.qualified_name(site.node) if is_renamed else None
    if name is not None and name.startswith("torch.cuda."):
        replace_cuda_name(Site(site.rule, site.file, site.node, name))


@rule.use("torch.cuda.*")
def replace_cuda_name(site: Site) -> None:
    """Replace a name of torch.cuda by the card's, or by the helper's."""
    if site.target.is_any_card:
        replace_by_helper_or_report(site, site.name_node)
        return
    card = site.target.card
    card_name = find_counterpart(site.name[len("torch.cuda.") :], card)
    if card_name is None or (card_name.endswith("Tensor") and is_in_set_default_tensor_type(site, site.node)):
        return
    rename_or_report(site, site.name_node, f"{card.torch_module}.{card_name}")


def replace_by_helper_or_report(site: Site, node: ast.expr) -> None:
    """Replace a name that all cards have by the helper's; report a name that only CUDA has."""
    name = site.name.removeprefix("torch.cuda.")
    module, _, inner = name.partition(".")
    if module in REEXPORTED_MODULES and inner in SUBMODULES[module]:
        name = inner
    root_name = name.partition(".")[0]
    if is_in_set_default_tensor_type(site, node):  # the rule default_tensor_type reports it
        return
    if root_name == "amp":
        replace_amp_name(site, node, name)
    elif root_name.endswith(("Tensor", "Storage")) and root_name in NPU_AND_MLU_NAMES and is_compared(site, node):
        replace_by_helper(site, node, f"types.{name}")
    elif root_name in NPU_AND_MLU_NAMES:
        replace_by_helper(site, node, HELPER_NAMES.get(root_name, root_name) + name[len(root_name) :])
    elif root_name not in REPORTED_ELSEWHERE:
        report_cuda_only(site, name)


def replace_amp_name(site: Site, node: ast.expr, name: str) -> None:
    """Replace a name of torch.cuda.amp; report a class in isinstance, and leave one in an annotation.

    torch.cuda.amp itself, as a value, stays.
    """
    is_called = isinstance(site.node, ast.Call)
    if name == "amp" or (not is_called and is_in_annotation(site.source, node)):
        return
    if not is_called and is_in_instance_check(site.source, node):
        site.request_review(
            "each card has its own class: check for the common base class, torch.amp.GradScaler or torch.autocast",
            zh="各加速卡有各自的类:请改为判断公共基类 torch.amp.GradScaler 或 torch.autocast",
        )
    elif name in HELPER_NAMES:
        replace_by_helper(site, node, HELPER_NAMES[name])
    else:
        report_cuda_only(site, name)


def report_cuda_only(site: Site, name: str) -> None:
    """Report a name that only CUDA is known to have; the risk is lower under a test for a card or for CUDA."""
    if name == "OutOfMemoryError":
        site.advise(
            "newer plug-ins raise torch.OutOfMemoryError too, which torch has since 2.5; this one may stay",
            zh="较新的插件同样抛出 torch.OutOfMemoryError(torch 2.5 起提供);此处可以保留",
        )
        return
    tests = [node.test for node in site.source.ancestors(site.node) if isinstance(node, ast.If | ast.IfExp)]
    risk: Risk = "medium" if runs_only_with_card(site, site.node) else "high"
    if any('.name() == "cuda"' in ast.unparse(test).replace("'", '"') for test in tests):
        risk = "low"
    site.request_review(
        f"torch.cuda.{name} is available on CUDA only, or not known to exist on the other cards: put it under "
        '`if accelerator.name() == "cuda":`',
        zh=f'torch.cuda.{name} 仅 CUDA 可用,或不确定其他卡是否支持:请置于 if accelerator.name() == "cuda": 之下',
        risk=risk,
    )


@rule.reference("torch.cuda")
def report_module_value(site: Site) -> None:
    """Report torch.cuda as a value, except in `cuda = torch.cuda`: there the uses of the variable are replaced.

    For one card the rule cuda_module replaces it.
    """
    parent = site.source.parents.get(site.node)
    is_assigned = isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name)
    if site.target.is_any_card and not is_assigned:
        site.request_review(
            "torch.cuda is passed on as a module: pass the helper's accelerator, which has the same functions",
            zh="torch.cuda 作为模块被传递:请改为传递辅助模块的 accelerator,其名称相同",
        )
