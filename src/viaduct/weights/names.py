"""Name maps: which variables of a TensorFlow or MindSpore checkpoint hold the values of each tensor of a network.

A `Link` (models/links.py) says this for one tensor; a layout (naming scheme) is a list of links. TensorFlow's names are
part of each family (models/family.py); MindSpore's are in mindspore_names.py.
"""

from __future__ import annotations

from torch import nn

from viaduct import models
from viaduct.errors import BadValue
from viaduct.models import sources
from viaduct.models.family import TensorflowNames
from viaduct.models.links import Link
from viaduct.weights import mindspore_names


def list_name_maps() -> list[TensorflowNames]:
    """Return the TensorFlow name maps of all families, each once."""
    maps = (family.tensorflow for family in models.families().values())
    return list({names.scope: names for names in maps if names is not None}.values())


def find_names(model: nn.Module) -> TensorflowNames | None:
    """Return the TensorFlow name map of a network; None if it has no reference in TensorFlow."""
    return next((names for names in list_name_maps() if names.apply_to(model)), None)


def list_framework_names(model: nn.Module) -> dict[str, str]:
    """Return the network's own tensor name for each TensorFlow and MindSpore name, in every naming scheme.

    In a network of torchvision or timm, the classifier may also be called `head`, as in viaduct's networks.
    """
    names = find_names(model)
    layouts = [*(names.layouts(model).values() if names else ()), *mindspore_names.list_layouts(model).values()]
    own_names = {source: link.tensor for links in layouts for link in links for source in link.variables}
    classifier = sources.find_classifier(model)
    if classifier and not any(name.startswith("head.") for name in model.state_dict()):
        own_names |= {f"head.{leaf}": f"{classifier}.{leaf}" for leaf in ("weight", "bias")}
    return own_names


def list_tf_layouts(model: nn.Module) -> dict[str, list[Link]]:
    """Return the links of each layout that a TensorFlow checkpoint of this network may have."""
    names = find_names(model)
    if names is None:
        known = [name for family in models.families().values() if family.tensorflow for name in family.variants]
        raise BadValue(
            f"this network ({type(model).__name__}) has no TensorFlow reference, so its variables' names are unknown.",
            f"Networks with one: {', '.join(known)}.",
        )
    return names.layouts(model)
