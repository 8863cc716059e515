"""Point out channels_last.

The NPU chooses formats of its own for convolutions; a tensor that is held as channels_last is copied there and back.
Leave it out, or call `contiguous()`. The MLU's convolutions like the format, so there it stays.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="P22", kind="advice", targets=("npu",), everywhere=True, last=True)


@rule.reference("torch.channels_last", "torch.channels_last_3d")
def report(site: Site) -> None:
    """Advise against channels_last."""
    site.advice(
        f"{site.name} gains nothing on the NPU: leave it out, or call contiguous()",
        zh=f"{site.name} 在 NPU 上没有收益:请去掉,或调用 contiguous()",
    )
