"""Recognition of viaduct's networks in a file of weights by a digest of names and shapes, without building networks.

    recognise_exactly("TensorFlow checkpoint", shapes)      [("resnet50_v1", 1001)]

Only exact matches are found here; recognise.py builds the networks and also finds similar ones. Digests do not depend
on the number of classes: they leave out the class axis of the classifiers ("heads"). `python -m
viaduct.weights.fingerprints` (part of `make results`) writes fingerprints.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Shape = tuple[int, ...]
FILE = Path(__file__).with_suffix(".json")
TENSORFLOW, TORCH = "tensorflow", "torch"
MINDSPORE_HEADS = ("end_point.bias", "classifier.bias", "head.bias")  # in the layouts of mindspore_names.py


def recognise_exactly(kind: str, shapes: Mapping[str, Shape]) -> list[tuple[str, int]]:
    """Return the networks that match exactly, with their number of classes; for MindSpore's names always none.

    `kind` is that of `StoredWeights`; of all kinds that are not checkpoints, tensors have PyTorch's names.
    """
    if kind == "MindSpore checkpoint":
        return []
    tensorflow = kind == "TensorFlow checkpoint"
    weights = drop_slots(shapes) if tensorflow else drop_counters(shapes)
    axis = -1 if tensorflow else 0  # TensorFlow has classes on the last axis
    table = load_fingerprints()[TENSORFLOW if tensorflow else TORCH]
    for row in table:
        if bias := weights.get(row["bias"]):
            matching = row["digests"].get(compute_digest(weights, row["heads"], axis))
            if matching:
                return [(name, bias[axis]) for name in matching]
    return []


def has_known_names(kind: str, shapes: Mapping[str, Shape]) -> bool:
    """Return True if a name is one that viaduct's networks have, so that a comparison with all of them may find one."""
    if kind == "TensorFlow checkpoint":
        return any(name.startswith(tuple(load_fingerprints()["scopes"])) for name in shapes)
    if kind == "MindSpore checkpoint":
        return any(name.endswith(MINDSPORE_HEADS) for name in shapes)
    return any(row["bias"] in shapes for row in load_fingerprints()[TORCH])


def drop_slots(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Remove optimizer slots (VARIABLE/Momentum …) and global_step from the shapes in a TensorFlow checkpoint."""
    return {name: shape for name, shape in shapes.items() if "/" in name and name.rsplit("/", 1)[0] not in shapes}


def drop_counters(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Remove the batch counters of batch norms."""
    return {name: shape for name, shape in shapes.items() if not name.endswith("num_batches_tracked")}


def compute_digest(shapes: Mapping[str, Shape], heads: Iterable[str], axis: int) -> str:
    """Return a digest of names and shapes, except for the class axis of `heads`."""
    without_classes = {**shapes, **{name: replace_axis(shapes[name], axis, 0) for name in heads if shapes.get(name)}}
    lines = (f"{name} {tuple(shape)}\n" for name, shape in sorted(without_classes.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def replace_axis(shape: Shape, axis: int, extent: int) -> Shape:
    """Return the shape with another extent of one axis."""
    extents = list(shape)
    extents[axis] = extent
    return tuple(extents)


@cache
def load_fingerprints() -> dict[str, Any]:
    """Read fingerprints.json, which has the scopes of TensorFlow's names, and rows for TENSORFLOW and TORCH.

    A row has the name of a classifier's bias, the tensors with a class axis, and networks by digest.
    """
    table: dict[str, Any] = json.loads(FILE.read_text())
    return table


def compute_fingerprints() -> dict[str, Any]:
    """Build every network and compute the digests of its tensors under PyTorch's and TensorFlow's names."""
    from viaduct.weights.names import list_name_maps

    # (framework, bias, heads) -> digest -> networks
    digests_of_heads: dict[tuple[str, str, tuple[str, ...]], dict[str, list[str]]] = {}
    for framework, network, shapes, heads in list_tensors():
        (bias,) = (head for head in heads if "aux" not in head and len(shapes[head]) == 1)
        without_auxiliary = {name: shape for name, shape in shapes.items() if not name.startswith(("aux.", "aux_"))}
        for tensors in (shapes, without_auxiliary):
            digests = digests_of_heads.setdefault((framework, bias, tuple(sorted(heads))), {})
            networks = digests.setdefault(compute_digest(tensors, heads, -1 if framework == TENSORFLOW else 0), [])
            if network not in networks:
                networks.append(network)
    table: dict[str, Any] = {"scopes": [names.scope for names in list_name_maps()], TENSORFLOW: [], TORCH: []}
    for (framework, bias, heads_of_row), digests in digests_of_heads.items():
        table[framework].append({"bias": bias, "heads": list(heads_of_row), "digests": digests})
    return table


def list_tensors() -> Iterator[tuple[str, str, dict[str, Shape], list[str]]]:
    """Yield framework, network, names with shapes, and the names of the tensors with a class axis."""
    from viaduct import models
    from viaduct.weights import recognise
    from viaduct.weights.names import find_names, list_tf_layouts

    for name in models.names():
        network = recognise.build_on_meta(name, 1)
        shapes = drop_counters({key: tuple(value.shape) for key, value in network.state_dict().items()})
        yield TORCH, name, shapes, [key for key in shapes if recognise.is_head(key)]
        if find_names(network) is not None:
            for links in list_tf_layouts(network).values():
                heads = [source for link in links if recognise.is_head(link.tensor) for source in link.variables]
                yield TENSORFLOW, name, recognise.list_variables(network, links), heads


def main() -> None:
    FILE.write_text(json.dumps(compute_fingerprints(), indent=1) + "\n")


if __name__ == "__main__":
    main()
