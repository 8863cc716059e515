"""Point out what depends on the compute capability of an NVIDIA card.

The call itself is renamed with the rest of torch.cuda. But `torch.npu.get_device_capability` gives None, so that
`capability[0] >= 8` fails; torch.mlu's gives the numbers of the MLU's own generation, which mean something else. Both
need manual review: ask for what was meant, such as
`is_bf16_supported()`.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import cards

rule = Rule(__name__, spec="P3 6", kind="report", targets=("npu", "mlu", "any"), last=True)

NAMES = tuple(f"torch.{module}.get_device_capability" for module in ("cuda", "npu", "mlu"))
ANSWERS = {
    "npu": ("torch.npu's answer is None, so comparing it fails", "torch.npu 的返回值为 None,比较会出错"),
    "mlu": (
        "torch.mlu's answer is the MLU's generation, not NVIDIA's",
        "torch.mlu 返回的是 MLU 的代次,与 NVIDIA 的含义不同",
    ),
}


@rule.call(*NAMES)
@rule.reference(*NAMES)
def report(site: Site) -> None:
    reported = [ANSWERS[target.name] for target in cards(site.options)]
    site.manual(
        f"{'; '.join(english for english, _ in reported)}: check the feature itself, for example is_bf16_supported()",
        zh=f"{';'.join(chinese for _, chinese in reported)}:请改为查询真正需要的能力,例如 is_bf16_supported()",
        risk="high" if site.options.to != "mlu" else "medium",
    )
