"""Rules that report uses of a name of PyTorch with a fixed message."""

from __future__ import annotations

import ast

from viaduct.cards import DEVICE_TYPES, MLU
from viaduct.cards.advice import DEVICE_CAPABILITY, TORCH_COMPILE, TORCHSCRIPT
from viaduct.migration.frameworks import TENSORFLOW
from viaduct.migration.lookups import mark_once
from viaduct.migration.notices import Notice, make_notice_rule
from viaduct.migration.rule import ALL_CARDS, ALL_MODES, ALL_TARGETS, Site

GRAPH_NAMES = ("graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables", "graphs.*")
MLU_CAPTURES = tuple(f"{MLU.torch_module}.{name}" for name in (MLU.graph_class, "graph", "make_graphed_callables"))


def lacks_backend_for_card(site: Site) -> bool:
    """Return False for a torch.compile whose backend is "npugraphs", or a call, a lambda or an imported object.

    Such an object is probably a backend for the card.
    """
    backend = site.argument("backend") if isinstance(site.node, ast.Call) else None
    value = site.values.assigned_value(backend) if backend is not None else ast.Constant(None)
    if isinstance(value, ast.Constant):
        return value.value != "npugraphs"
    return not isinstance(value, ast.Call | ast.Lambda) and site.qualified_name(value) is None


def is_first_in_torch_file(site: Site) -> bool:
    """Return True for the first session of a file to which the rules of TensorFlow do not apply."""
    return not site.file.project.uses_rules_of(TENSORFLOW, site.file.path) and mark_once(site, "session")


rules = (
    make_notice_rule(
        __name__,
        "capability",
        """Report code that depends on the compute capability of an NVIDIA card.

        `cuda_api` renames the call. But `torch.npu.get_device_capability` returns None, so that `capability[0] >= 8`
        fails, and torch.mlu's function returns the numbers of the MLU's generation. Test for the feature instead, as
        with `is_bf16_supported()`.
        """,
        Notice(
            tuple(f"torch.{module}.get_device_capability" for module in DEVICE_TYPES),
            "{cards}: check the feature itself, for example is_bf16_supported()",
            "{cards}:请改为查询真正需要的能力,例如 is_bf16_supported()",
            remarks=DEVICE_CAPABILITY,
            uses=("call", "reference"),
        ),
        category="report",
        targets=ALL_TARGETS,
        target_needs="device_calls",
        spec_rows=("P3", "6"),
    ),
    make_notice_rule(
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
        spec_rows=("P22",),
    ),
    make_notice_rule(
        __name__,
        "compile",
        """Advise on torch.compile without a backend for the card.

        On the NPU it needs a special backend: `npugraphs` from torch 2.6 on, or `torchair.get_npu_backend()`. The
        script also runs without torch.compile.
        """,
        Notice(
            ("torch.compile",),
            "{name}: {cards}; the script also runs without it",
            "{name}:{cards};不编译也可运行",
            status="advice",
            remarks=TORCH_COMPILE,
            uses=("call", "reference"),
            condition=lacks_backend_for_card,
        ),
        category="advice",
        targets=ALL_TARGETS,
        modes=ALL_MODES,
        spec_rows=("P21", "6"),
    ),
    make_notice_rule(
        __name__,
        "cuda_graphs",
        """Report captured CUDA graphs.

        For the MLU `cuda_api` replaces the names: CUDAGraph becomes MLUGraph, `torch.cuda.graph` becomes
        `torch.mlu.graph`. For the NPU they stay and need manual review, since only new releases of torch_npu have
        `torch.npu.NPUGraph` and `torch.npu.graph`. The operations that may be captured differ from card to card.
        """,
        Notice(
            tuple(f"torch.cuda.{name}" for name in GRAPH_NAMES),
            "{name} is for CUDA graphs; the nearest is {card.torch_module}.{last}, in new {card.plugin} releases",
            "{name} 用于 CUDA 图;最接近的是 {card.torch_module}.{last},仅新版 {card.plugin} 提供",
            risk="high",
            uses=("call", "reference"),
            condition=lambda site: not site.name.endswith(".CUDAGraph"),  # which the next notice reports
        ),
        Notice(
            ("torch.cuda.CUDAGraph", "torch.cuda.graphs.CUDAGraph"),
            "{name}: the nearest is {card.torch_module}.{card.graph_class}, in new {card.plugin} releases",
            "{name}:最接近的是 {card.torch_module}.{card.graph_class},仅新版 {card.plugin} 提供",
            risk="high",
            uses=("call", "reference"),
        ),
        Notice(
            MLU_CAPTURES,
            "operations that may be captured differ from card to card: compare a step with and without the capture",
            "不同设备可捕获的操作不同:请对比捕获与不捕获的单步结果",
            status="advice",
            condition=lambda site: site.options.to == "mlu",
        ),
        category="report",
        targets=ALL_CARDS,
        target_needs="device_calls",
        spec_rows=("P6", "6"),
    ),
    make_notice_rule(
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
        spec_rows=("P21", "6"),
    ),
    make_notice_rule(
        __name__,
        "tensorflow_beside",
        """Advise on TensorFlow sessions in a PyTorch file.

             import tensorflow as tf
             import torch
             session = tf.compat.v1.Session()

        TensorFlow code in a PyTorch script, such as the export of a network, stays and runs on the host. The rules of
        TensorFlow 1 edit only files in which TensorFlow trains.
        """,
        Notice(
            ("tensorflow.Session", "tensorflow.InteractiveSession", "tensorflow.python.client.session.Session"),
            "TensorFlow in a PyTorch file: this code stays as it is and runs on the host",
            "PyTorch 文件中的 TensorFlow 代码:保持不变,在主机上运行",
            status="advice",
            condition=is_first_in_torch_file,
        ),
        category="advice",
        targets=ALL_TARGETS,
        visits_lines_left_alone=True,
        spec_rows=("6",),
    ),
)
