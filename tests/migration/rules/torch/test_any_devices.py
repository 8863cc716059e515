"""Devices by text, by number, by method; and questions for them."""

from __future__ import annotations

from migration.checking import migrated

# ---- texts


# ---- methods


# ---- numbers


# ---- questions


def test_both_halves_of_a_choice_go_together() -> None:
    source = "import torch\ndevice = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
    after = migrated(source, "", to="any").after.decode()
    assert "torch.device(accelerator.name(0) if accelerator.is_available() else 'cpu')" in after
