"""Classifiers of torchvision.models."""

from __future__ import annotations

from typing import Any

from viaduct.errors import BadValue, UnknownName
from viaduct.models.sources import InputSettings, import_package

WITH_AUXILIARY_HEAD = ("googlenet", "inception_v3")  # built without this head, which would add a second output


def build(name: str, classes: int, **options: Any) -> Any:
    refuse_unknown(name)
    if name in WITH_AUXILIARY_HEAD:
        options = {"aux_logits": False, "init_weights": True, **options}
    return import_package("torchvision").models.get_model(name, weights=None, num_classes=classes, **options)


def list_names() -> list[str]:
    """Return the names of all classifiers of images."""
    models = import_package("torchvision").models
    return list(models.list_models(module=models))


def read_input(name: str) -> InputSettings:
    """Return the settings of the default weights, or ImageNet's usual ones."""
    refuse_unknown(name)
    weights = getattr(import_package("torchvision").models.get_model_weights(name), "DEFAULT", None)
    if weights is None:
        return InputSettings()
    settings = weights.transforms()
    size, resized = int(settings.crop_size[0]), int(settings.resize_size[0])
    return InputSettings(
        size=size,
        interpolation=str(getattr(settings.interpolation, "value", settings.interpolation)),
        crop_share=size / resized,
        mean=tuple(map(float, settings.mean)),  # type: ignore[arg-type]
        deviation=tuple(map(float, settings.std)),  # type: ignore[arg-type]
    )


def refuse_unknown(name: str) -> None:
    """Raise an error for a name that torchvision does not know, or a network that is no classifier of images."""
    names = list_names()
    if name in names:
        return
    if name in import_package("torchvision").models.list_models():
        raise BadValue(f"torchvision:{name} is no classifier of images.", f"Classifiers: {', '.join(names[:4])} …")
    hint = "`viaduct models --source torchvision 'PATTERN*'` shows them."
    raise UnknownName("network of torchvision", name, names, hint)
