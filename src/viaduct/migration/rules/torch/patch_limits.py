"""Report code that the vendor's run-time patch cannot fix (`--mode patch`).

The patch replaces functions of PyTorch. It does not change comparisons with "cuda" and environment variables, and not
every release changes the keys of a map_location dict. It disables torch.jit.script, and some functions of torch.cuda
have no counterpart. Such code needs manual review, or a migration without `--mode patch`.
"""

from __future__ import annotations

import ast

from viaduct.cards.advice import DEVICE_CAPABILITY
from viaduct.cards.environment import describe_own_variable
from viaduct.cards.limits import Bilingual
from viaduct.migration.lookups import literal_text, plain_name
from viaduct.migration.notices import Notice, add_notices
from viaduct.migration.rule import ALL_CARDS, Rule, Site

rule = Rule(
    __name__,
    target_needs="torch_functions",
    spec_rows=("P9", "P18", "P20", "P21"),
    category="report",
    targets=ALL_CARDS,
    modes=("patch",),
    runs_last=True,
)
# Names that no patch replaces, and those that only the MLU's patch does.
UNPATCHED_NAMES = ("torch.cuda.comm.*", "torch.cuda.cudart")
UNPATCHED_ON_NPU = (
    *(f"torch.cuda.{name}" for name in ("CUDAGraph", "graph", "make_graphed_callables", "default_generators")),
    *("torch.cuda.nccl.*", "torch.cuda.nvtx.*"),
)
UNPATCHED_MESSAGE: Bilingual = (
    "the patch does not replace {name}: see {card.plugin}'s own functions",
    "补丁不会替换 {name}:请参考 {card.plugin} 自有接口",
)


def is_for_npu(site: Site) -> bool:
    return site.options.to == "npu"


@rule.node(ast.Compare, only_if_file_contains=("cuda",))
def report_comparison(site: Site) -> None:
    """Report a comparison with CUDA that the patch cannot change."""
    sides = [site.node.left, *site.node.comparators]
    names_cuda = any(is_cuda(element) for side in sides for element in getattr(side, "elts", [side]))
    if names_cuda and any(is_device_text(site, side) for side in sides):
        report_cuda_text(site)


@rule.method("startswith")
def report_startswith(site: Site) -> None:
    if site.node.args and is_cuda(site.node.args[0]) and is_device_text(site, site.node.func.value):
        report_cuda_text(site)


def is_device_text(site: Site, side: ast.expr) -> bool:
    """Return True for an attribute `type`, as in `x.device.type`, and for `str(…)`."""
    origin = site.values.assigned_value(side)
    is_str_call = isinstance(origin, ast.Call) and plain_name(origin.func) == "str"
    return is_str_call or (isinstance(origin, ast.Attribute) and origin.attr == "type")


def is_cuda(node: ast.AST) -> bool:
    """Return True for a text that names a CUDA device."""
    return literal_text(node).partition(":")[0] == "cuda"


def report_cuda_text(site: Site) -> None:
    """Report a comparison with "cuda", which is not the device's name under the patch."""
    device = site.target.card.device
    site.request_review(
        f"devices are called {device} under the patch, and a comparison cannot be patched: write {device} here",
        zh=f"使用补丁后设备名为 {device},比较无法被替换:请在此处改为 {device}",
        risk="high",
    )


@rule.call("torch.load")
def report_map_location(site: Site) -> None:
    """Report a map_location that is a dict, whose keys the patch may leave unchanged."""
    value = site.argument("map_location", 1)
    if value is not None and isinstance(site.values.assigned_value(value), ast.Dict):
        site.request_review(
            "not every release of the patch changes the keys of a dict: if the keys of this map_location name CUDA "
            "devices, use map_location='cpu'",
            zh="并非所有版本的补丁都会处理字典的键:若此 map_location 的键为 CUDA 设备,请改用 map_location='cpu'",
            risk="high",
        )


@rule.node(ast.Constant, only_if_file_contains=("CUDA_VISIBLE_DEVICES",))
def report_variable(site: Site) -> None:
    if site.node.value == "CUDA_VISIBLE_DEVICES":
        site.request_review(*describe_own_variable(site.target.card))


add_notices(
    rule,
    Notice(UNPATCHED_NAMES, *UNPATCHED_MESSAGE, risk="high", uses=("call", "reference")),
    Notice(UNPATCHED_ON_NPU, *UNPATCHED_MESSAGE, risk="high", uses=("call", "reference"), condition=is_for_npu),
    Notice(
        ("torch.channels_last",),
        "the patch does not support channels_last: use contiguous()",
        "补丁暂不支持 channels_last:请使用 contiguous()",
        uses=("reference",),
        condition=is_for_npu,
    ),
    Notice(
        ("torch.cuda.get_device_capability",),
        "{cards}",
        "{cards}",
        remarks=DEVICE_CAPABILITY,
        uses=("call", "reference"),
    ),
    Notice(
        ("torch.jit.script",),
        "the patch disables torch.jit.script: this runs as plain Python; if it must be scripted, migrate without "
        "--mode patch",
        "补丁会屏蔽 torch.jit.script,此处按普通 Python 运行;如必须使用,请不要用 --mode patch",
        uses=("call", "reference"),
    ),
)
