"""Rules that report every use of a name of PyTorch with a fixed message."""

from viaduct.cards.advice import DEVICE_CAPABILITY, TORCHSCRIPT
from viaduct.migration.notices import Notice, report_rule
from viaduct.migration.rule import ALL_TARGETS

rules = (
    report_rule(
        __name__,
        "capability",
        """Report code that depends on the compute capability of an NVIDIA card.

        `cuda_api` renames the call. But `torch.npu.get_device_capability` returns None, so that `capability[0] >= 8`
        fails, and torch.mlu's function returns the numbers of the MLU's generation. Test for the feature instead, as
        with `is_bf16_supported()`.
        """,
        Notice(
            tuple(f"torch.{module}.get_device_capability" for module in ("cuda", "npu", "mlu")),
            "{cards}: check the feature itself, for example is_bf16_supported()",
            "{cards}:请改为查询真正需要的能力,例如 is_bf16_supported()",
            remarks=DEVICE_CAPABILITY,
            uses=("call", "reference"),
        ),
        category="report",
        targets=ALL_TARGETS,
        requirement="device_calls",
        rows=("P3", "6"),
    ),
    report_rule(
        __name__,
        "channels_last",
        """Advise on channels_last.

        The NPU has its own formats for convolutions, to which a tensor in channels_last is copied. The MLU's
        convolutions are fast with channels_last.
        """,
        Notice(
            ("torch.channels_last", "torch.channels_last_3d"),
            "{name} is of no use on the NPU: remove it, or call contiguous()",
            "{name} 在 NPU 上没有收益:请去掉,或调用 contiguous()",
            status="advice",
            uses=("reference",),
        ),
        category="advice",
        targets=("npu",),
        visits_lines_left_alone=True,
        rows=("P22",),
    ),
    report_rule(
        __name__,
        "jit_script",
        """Advise on torch.jit.script.

        Scripting of device code is limited on the NPU, and the vendor's run-time patch for the MLU disables it. Without
        it the code runs as plain Python, with the same results.
        """,
        Notice(
            ("torch.jit.script", "torch.jit.script_method"),
            "{name}: {cards}; without it the results are the same",
            "{name}:{cards};不使用时结果相同",
            status="advice",
            remarks=TORCHSCRIPT,
            uses=("call", "reference"),
        ),
        category="advice",
        targets=ALL_TARGETS,
        rows=("P21", "6"),
    ),
)
