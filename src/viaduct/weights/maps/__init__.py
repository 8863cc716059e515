"""Name maps: which variables of a foreign checkpoint hold which tensors of a network.

The names in TensorFlow's checkpoints are part of each family's record (`models/family.py`). `mindspore` has the names
of MindSpore's networks, for all of ours.
"""

from __future__ import annotations

from torch import nn

from viaduct import models
from viaduct.errors import BadValue
from viaduct.models import sources
from viaduct.models.family import TensorflowNames
from viaduct.models.links import Link
from viaduct.weights.maps import mindspore

__all__ = ["Link", "find_names", "foreign_names", "layouts_of", "list_name_maps", "mindspore"]


def list_name_maps() -> list[TensorflowNames]:
    """Return the name maps of all families, each once."""
    maps = (family.tensorflow for family in models.families().values())
    return list({names.scope: names for names in maps if names is not None}.values())


def find_names(model: nn.Module) -> TensorflowNames | None:
    """Return the name map of a network; None where no TensorFlow reference has it."""
    return next((names for names in list_name_maps() if names.claims(model)), None)


def foreign_names(model: nn.Module) -> dict[str, str]:
    """Return TensorFlow's and MindSpore's names of a network's tensors, in every layout, with ours.

    The classifier of a network of another package is also called `head`.
    """
    names = find_names(model)
    layouts = [*(names.layouts(model).values() if names else ()), *mindspore.layouts(model).values()]
    found = {source: link.target for links in layouts for link in links for source in link.sources}
    classifier = sources.find_classifier(model)
    if classifier and not any(name.startswith("head.") for name in model.state_dict()):
        found |= {f"head.{leaf}": f"{classifier}.{leaf}" for leaf in ("weight", "bias")}
    return found


def layouts_of(model: nn.Module) -> dict[str, list[Link]]:
    """Return the links of each layout in which a checkpoint of this network may be."""
    names = find_names(model)
    if names is None:
        known = [name for family in models.families().values() if family.tensorflow for name in family.variants]
        raise BadValue(
            f"this network ({type(model).__name__}) has no TensorFlow reference, so the names of its variables "
            "are not known.",
            f"Networks with one: {', '.join(known)}.",
        )
    return names.layouts(model)
