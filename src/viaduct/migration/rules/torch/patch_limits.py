"""Report code that the vendor's run-time patch cannot fix (`--mode patch`).

A patch replaces functions of PyTorch. It does not see what the script does with strings of its own: comparisons with
"cuda", the keys of a map_location dict, environment variables. It switches torch.jit.script off, since
scripted code cannot be patched; and some of torch.cuda has no counterpart to be replaced by. Each such place needs
manual review, or a migration without `--mode patch`.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import card

rule = Rule(
    __name__,
    spec="P9 P18 P20 P21",
    kind="report",
    targets=("npu", "mlu"),
    on=lambda options: options.mode == "patch",
    patch=True,
    last=True,
)
WITHOUT_COUNTERPART = {  # the card that lacks it; "" if both do
    "torch.cuda.get_device_capability": "",
    "torch.cuda.CUDAGraph": "npu",
    "torch.cuda.graph": "npu",
    "torch.cuda.make_graphed_callables": "npu",
    "torch.cuda.nccl.*": "npu",
    "torch.cuda.comm.*": "",
    "torch.cuda.cudart": "",
    "torch.cuda.nvtx.*": "npu",
    "torch.cuda.default_generators": "npu",
}


@rule.node(ast.Compare, words=("cuda",))
def report_comparison(site: Site) -> None:
    """Report a comparison with CUDA that the patch cannot change."""
    sides = [site.node.left, *site.node.comparators]
    named = any(is_cuda(element) for side in sides for element in getattr(side, "elts", [side]))
    if named and any(tells_device(site, side) for side in sides):
        report_string(site)


@rule.method("startswith")
def report_startswith(site: Site) -> None:
    """Report `startswith("cuda")` on a device."""
    if site.node.args and is_cuda(site.node.args[0]) and tells_device(site, site.node.func.value):
        report_string(site)


def tells_device(site: Site, side: ast.expr) -> bool:
    """Return True for an attribute `type`, as in `x.device.type`, and for `str(…)`; not for any other string."""
    made = site.values.origin(side)
    if isinstance(made, ast.Call) and getattr(made.func, "id", "") == "str":
        return True
    return isinstance(made, ast.Attribute) and made.attr == "type"


def is_cuda(node: ast.AST) -> bool:
    """Return True for a text that names a CUDA device."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and (text == "cuda" or text.startswith("cuda:"))


def report_string(site: Site) -> None:
    """Report a comparison with a device name, which differs under the patch and which the patch cannot change."""
    device = card(site.options).device
    site.manual(
        f"devices are called {device} under the patch, and a comparison cannot be patched: write {device} here",
        zh=f"使用补丁后设备名为 {device},比较无法被替换:请在此处改为 {device}",
        risk="high",
    )


@rule.call("torch.load")
def report_map_location(site: Site) -> None:
    """Report a map_location dict, into which the patch does not look."""
    value = site.argument("map_location", 1)
    if value is not None and isinstance(site.values.origin(value), ast.Dict):
        site.manual(
            "the patch does not look into a dict: if the keys of this map_location name CUDA devices, use "
            "map_location='cpu'",
            zh="补丁不会处理字典:若此 map_location 的键为 CUDA 设备,请改用 map_location='cpu'",
            risk="high",
        )


@rule.node(ast.Constant, words=("CUDA_VISIBLE_DEVICES",))
def report_variable(site: Site) -> None:
    """Report the variable of visible devices, which the patch does not rename."""
    if site.node.value == "CUDA_VISIBLE_DEVICES":
        visible = card(site.options).visible
        site.manual(
            f"the accelerator does not read CUDA_VISIBLE_DEVICES: set {visible}",
            zh=f"加速卡不读取 CUDA_VISIBLE_DEVICES:请设置 {visible}",
        )


@rule.call("torch.jit.script")
@rule.reference("torch.jit.script")
def report_scripted(site: Site) -> None:
    site.manual(
        "the patch switches torch.jit.script off: this runs as plain Python; if it must be scripted, migrate without "
        "--mode patch",
        zh="补丁会屏蔽 torch.jit.script,此处按普通 Python 运行;如必须使用,请不要用 --mode patch",
    )


@rule.reference("torch.channels_last")
def report_layout(site: Site) -> None:
    if site.options.to == "npu":
        site.manual(
            "the patch does not support channels_last: use contiguous()",
            zh="补丁暂不支持 channels_last:请使用 contiguous()",
        )


@rule.call(*WITHOUT_COUNTERPART)
@rule.reference(*WITHOUT_COUNTERPART)
def report_missing(site: Site) -> None:
    found = next(
        name for name in WITHOUT_COUNTERPART if site.name == name or site.name.startswith(name.removesuffix("*"))
    )
    if WITHOUT_COUNTERPART[found] in ("", site.options.to):
        module = card(site.options).module
        site.manual(
            f"{site.name} has no counterpart that the patch could put in its place: see {module}'s own functions",
            zh=f"{site.name} 没有可替换的对应接口:请参考 {module} 自有接口",
            risk="high",
        )
