"""Networks of timm (PyTorch Image Models)."""

from __future__ import annotations

from typing import Any

from viaduct.errors import UnknownName
from viaduct.models.sources import InputSettings, import_package


def build(name: str, classes: int, **options: Any) -> Any:
    timm = import_package("timm")
    refuse_unknown(timm, name)
    return timm.create_model(name, pretrained=False, num_classes=classes, **options)


def list_names() -> list[str]:
    return list(import_package("timm").list_models())


def read_input(name: str) -> InputSettings:
    """Return the settings of the network's pretrained configuration, or ImageNet's usual ones if it has none.

    An interpolation that `InputSettings` does not have (timm's "random") becomes bicubic.
    """
    timm = import_package("timm")
    refuse_unknown(timm, name)
    settings, defaults = timm.get_pretrained_cfg(name), InputSettings()
    if settings is None:
        return defaults
    interpolation = settings.interpolation if settings.interpolation in ("bilinear", "bicubic") else "bicubic"
    crop_share = float(settings.crop_pct or defaults.crop_share)
    return InputSettings(
        size=int(settings.input_size[-1]),
        interpolation=interpolation,
        crop_share=crop_share if 0 < crop_share <= 1 else defaults.crop_share,
        mean=tuple(map(float, settings.mean)),  # type: ignore[arg-type]
        deviation=tuple(map(float, settings.std)),  # type: ignore[arg-type]
    )


def refuse_unknown(timm: Any, name: str) -> None:
    """Raise UnknownName for a network, or pretrained weights (`network.tag`), that timm does not have."""
    if not timm.is_model(name):
        hint = "`viaduct models --source timm 'PATTERN*'` shows them."
        raise UnknownName("network of timm", name, timm.list_models(), hint)
    base, _, tag = name.partition(".")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{base}.*")] if tag else []
    if tag and tag not in tags:
        raise UnknownName(f"weights of timm's {base}", tag, tags, f"The network alone is timm:{base}.")
