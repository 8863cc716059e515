"""Cambricon cards, through the vendor's plug-in torch_mlu and CNToolkit under it."""

from __future__ import annotations

from viaduct.cards.mlu import CARD
from viaduct.devices import hardware
from viaduct.devices.plugin import PluginDevice

# bf16: the MLU370 has none, the MLU590 has it. TF32: torch.backends.cnnl.allow_tf32 stays as the vendor sets it.
DEVICE: PluginDevice = PluginDevice(
    CARD,
    software={"cntoolkit": hardware.cntoolkit, "driver": hardware.cambricon_driver},
    repair_hint="Put $NEUWARE_HOME/lib64 on LD_LIBRARY_PATH",
    device_files="/dev/cambricon*",
    hidden_hint="Unset it, or list card numbers: 0,1.",
)
