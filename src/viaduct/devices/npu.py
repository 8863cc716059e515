"""Ascend cards, through Huawei's plug-in torch_npu and CANN under it."""

from __future__ import annotations

from viaduct.cards.npu import CARD
from viaduct.devices import hardware
from viaduct.devices.plugin import PluginDevice

DEVICE: PluginDevice = PluginDevice(
    CARD,
    software={"cann": hardware.find_cann, "driver": hardware.find_ascend_driver},
    repair_hint="Source CANN's set_env.sh",
    container_files="/dev/davinci*",
    hidden_hint="Unset it, or list card numbers in ascending order: 0,1.",
)
