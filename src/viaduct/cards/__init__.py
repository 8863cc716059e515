"""Facts about the accelerators, each written once: names, environment variables, API tables and limits.

    from viaduct.cards import CARDS, NPU
    NPU.backend                  "hccl"
    CARDS["mlu"].visible_variable    "MLU_VISIBLE_DEVICES"

A card is the record of one kind of accelerator: NPU, MLU or CUDA. `npu.py`, `mlu.py` and `cuda.py` contain the cards.
`torch_api.py` and `tensorflow_api.py` list the names that the vendors' packages define. `operators.py`,
`environment.py`, `packages.py`, `limits.py` and `advice.py` state limits and what to do about them, in English and
Chinese. `shell.py` has the bash lines that set up a vendor's software. Nothing here imports torch.
"""

from __future__ import annotations

from viaduct.cards.card import Card
from viaduct.cards.cuda import CARD as CUDA
from viaduct.cards.mlu import CARD as MLU
from viaduct.cards.npu import CARD as NPU

CARDS: dict[str, Card] = {"npu": NPU, "mlu": MLU}  # the accelerators that a script can be migrated to
# Device types of all cards, which are also the names of their modules in torch: cuda, npu, mlu.
DEVICE_TYPES = (CUDA.device, *CARDS)
BACKENDS = {card.name: card.backend for card in (CUDA, NPU, MLU)}  # collective backend of each card, by the card's name
PLUGINS = tuple(card.plugin for card in CARDS.values())  # the vendors' plug-ins for PyTorch: torch_npu and torch_mlu

__all__ = ["BACKENDS", "CARDS", "CUDA", "DEVICE_TYPES", "MLU", "NPU", "PLUGINS", "Card"]
