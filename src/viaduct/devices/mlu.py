"""Cambricon cards, through the vendor's plug-in torch_mlu and CNToolkit under it."""

from __future__ import annotations

from viaduct.cards.mlu import CARD
from viaduct.devices import hardware
from viaduct.devices.plugin import PluginDevice

DEVICE: PluginDevice = PluginDevice(
    CARD,
    software={"cntoolkit": hardware.find_cntoolkit, "driver": hardware.find_cambricon_driver},
    repair_hint="Put $NEUWARE_HOME/lib64 on LD_LIBRARY_PATH",
    container_files="/dev/cambricon*",
    hidden_hint="Unset it, or list card numbers: 0,1.",
)
