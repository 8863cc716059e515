"""Ascend cards, through Huawei's plug-in torch_npu and CANN under it."""

from __future__ import annotations

from viaduct.cards.npu import CARD
from viaduct.devices import hardware
from viaduct.devices.plugin import PluginDevice

# bf16: the 910 of 2019 has none, the 910B of 2023 has it. TF32: torch.npu.conv.allow_hf32 stays as the vendor sets it.
DEVICE: PluginDevice = PluginDevice(
    CARD,
    software={"cann": hardware.cann, "driver": hardware.ascend_driver},
    repair_hint="Source CANN's set_env.sh",
    device_files="/dev/davinci*",
    hidden_hint="Unset it, or list card numbers in ascending order: 0,1.",
)
