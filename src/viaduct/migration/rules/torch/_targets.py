"""What each accelerator calls the things that CUDA has a name for; one row a card, so that one rule serves them all."""

from __future__ import annotations

from dataclasses import dataclass

from viaduct.migration.options import Options, Target


@dataclass(frozen=True)
class Card:
    """The words of one accelerator, where torch says cuda."""

    name: Target  # what --to says
    title: str  # what a person says: "NPU"
    module: str  # the plug-in, imported behind torch
    device: str  # "npu:0"
    method: str  # tensor.npu(), module.npu()
    is_attr: str  # tensor.is_npu
    backend: str  # of collectives
    activity: str  # torch.profiler.ProfilerActivity.NPU
    visible: str  # the environment variable that names the devices to be seen
    graph: str  # torch.npu.NPUGraph
    marks: str  # torch.npu.mstx: ranges for the profiler

    @property
    def root(self) -> str:
        """Where torch keeps it: torch.npu for torch.cuda."""
        return f"torch.{self.device}"

    @property
    def package(self) -> str:
        """The same as a package of the plug-in's own: what import statements name, since it needs no import before."""
        return f"{self.module}.{self.device}"


CARDS = {
    "npu": Card(
        name="npu",
        title="NPU",
        module="torch_npu",
        device="npu",
        method="npu",
        is_attr="is_npu",
        backend="hccl",
        activity="NPU",
        visible="ASCEND_RT_VISIBLE_DEVICES",
        graph="NPUGraph",
        marks="mstx",
    ),
    "mlu": Card(
        name="mlu",
        title="MLU",
        module="torch_mlu",
        device="mlu",
        method="mlu",
        is_attr="is_mlu",
        backend="cncl",
        activity="MLU",
        visible="MLU_VISIBLE_DEVICES",
        graph="MLUGraph",
        marks="cnpx",
    ),
}


def card(options: Options) -> Card:
    """The card that a migration is for; rules for `any` do not ask."""
    return CARDS[options.to]


def cards(options: Options) -> tuple[Card, ...]:
    """All that the result is to run on: for reports, which speak of each."""
    return tuple(CARDS.values()) if options.to == "any" else (card(options),)
