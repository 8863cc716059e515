"""Report options of Hugging Face's libraries that choose a package for NVIDIA cards.

    from transformers import TrainingArguments
    settings = TrainingArguments("out", tf32=True, optim="adamw_bnb_8bit")

The libraries (transformers, diffusers, peft, trl, accelerate) support the NPU and the MLU. But an option can load a
package for NVIDIA cards that the script does not import itself.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import method_name
from viaduct.migration.rule import ALL_TARGETS, Rule, Site

rule = Rule(__name__, target_needs="torch_functions", spec_rows=("P6", "6"), category="report", targets=ALL_TARGETS)

LIBRARY_PREFIXES = ("transformers.", "diffusers.", "peft.", "trl.", "accelerate.")
OPTION_TEXTS = ("tf32", "8bit", "4bit", "bnb", "_apex", "xformers", "flash_attention_2")
# Option that is switched on by True -> package, or format, for NVIDIA cards.
FLAG_PACKAGES = {"tf32": "TF32", "load_in_8bit": "bitsandbytes", "load_in_4bit": "bitsandbytes"}
# Part of the value of the option `optim` -> package.
OPTIMIZER_PACKAGES = {"bnb": "bitsandbytes", "8bit": "bitsandbytes", "_apex": "apex", "paged": "bitsandbytes"}


@rule.node(ast.Call, only_if_file_contains=OPTION_TEXTS)
def check_options(site: Site) -> None:
    """Report options in calls of Hugging Face's libraries and in every `from_pretrained`."""
    name = site.qualified_name(site.node.func) or ""
    method = method_name(site.node)
    if method == "enable_xformers_memory_efficient_attention":
        report_option(site, "xformers")
    elif name.startswith(LIBRARY_PREFIXES) or method == "from_pretrained":
        for keyword in site.node.keywords:
            package = get_package(site, keyword)
            if package:
                report_option(site, package, keyword)


def get_package(site: Site, keyword: ast.keyword) -> str:
    """Return the package or format for NVIDIA cards that an option switches on, or ""."""
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    if keyword.arg in FLAG_PACKAGES:
        return FLAG_PACKAGES[keyword.arg] if value is True else ""
    if keyword.arg == "optim" and isinstance(value, str):
        return next((package for part, package in OPTIMIZER_PACKAGES.items() if part in value), "")
    if keyword.arg == "attn_implementation" and value == "flash_attention_2":
        return "flash_attn" if site.options.to != "npu" else ""  # transformers has its own for the NPU
    return ""


def report_option(site: Site, package: str, node: ast.AST | None = None) -> None:
    names = " and ".join(card.title for card in site.cards)
    option = site.text_of(node if node is not None else site.node.func)
    site.request_review(
        f"`{option}` chooses {package}, which is for NVIDIA cards: remove it for the {names}, or use its counterpart",
        zh=f"`{option}` 选用仅支持 NVIDIA 设备的 {package}:在 {names} 上请去掉,或改用其对应实现",
        risk="high",
        node=node,
    )
