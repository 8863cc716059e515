"""Recognition of our networks in a file of weights, without building them: by a digest of names and shapes.

    recognise_exactly("TensorFlow checkpoint", shapes)      [("resnet50_v1", 1001)]

Only weights that fit completely are found here; `recognise` builds the networks and finds those that nearly fit. The
number of classes is left out of the digests. fingerprints.json is generated: `python -m viaduct.weights.fingerprints`
writes it (part of `make results`), and a test builds every network and compares.
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
MINDSPORE_HEADS = ("end_point.bias", "classifier.bias", "head.bias")


def recognise_exactly(kind: str, shapes: Mapping[str, Shape]) -> list[tuple[str, int]]:
    """Return the networks, with their number of classes, that have exactly these weights; usually one or none."""
    if kind == "MindSpore checkpoint":
        return []  # networks are built and compared: names are MindSpore's
    tensorflow = kind == "TensorFlow checkpoint"
    weights = without_slots(shapes) if tensorflow else without_counters(shapes)
    axis = -1 if tensorflow else 0  # TensorFlow has classes on the last axis
    table = stored_fingerprints()[TENSORFLOW if tensorflow else TORCH]
    for row in table:
        if bias := weights.get(row["bias"]):
            matching = row["digests"].get(digest(weights, row["heads"], axis))
            if matching:
                return [(name, bias[axis]) for name in matching]
    return []


def may_be_ours(kind: str, shapes: Mapping[str, Shape]) -> bool:
    """Return False if no network of ours has names like these, so that there is nothing to compare with."""
    if kind == "TensorFlow checkpoint":
        return any(name.startswith(tuple(stored_fingerprints()["scopes"])) for name in shapes)
    if kind == "MindSpore checkpoint":
        return any(name.endswith(MINDSPORE_HEADS) for name in shapes)
    return any(row["bias"] in shapes for row in stored_fingerprints()[TORCH])


def without_slots(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Leave out what is no weight in a TensorFlow checkpoint: VARIABLE/Momentum and the like, and global_step."""
    return {name: shape for name, shape in shapes.items() if "/" in name and name.rsplit("/", 1)[0] not in shapes}


def without_counters(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Leave out the batch counters of batch norms, which are no weights."""
    return {name: shape for name, shape in shapes.items() if not name.endswith("num_batches_tracked")}


def digest(shapes: Mapping[str, Shape], heads: Iterable[str], axis: int) -> str:
    """Return a digest of names and shapes, without the class axis of `heads`."""
    without_classes = dict(shapes)
    for name in heads:
        if shape := shapes.get(name):
            extents = list(shape)
            extents[axis] = 0
            without_classes[name] = tuple(extents)
    lines = (f"{name} {tuple(shape)}\n" for name, shape in sorted(without_classes.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "backslashreplace")).hexdigest()[:32]


@cache
def stored_fingerprints() -> dict[str, Any]:
    """Read the table: rows of the bias that tells the classes, the tensors that have them, and digests to names."""
    table: dict[str, Any] = json.loads(FILE.read_text())
    return table


def compute_fingerprints() -> dict[str, Any]:
    """Build every network and digest its tensors, as PyTorch and as TensorFlow call them."""
    from viaduct.weights.maps import list_name_maps

    # (framework, bias, heads) -> digest -> networks
    digests_of_heads: dict[tuple[str, str, tuple[str, ...]], dict[str, list[str]]] = {}
    for framework, network, shapes, heads in list_tensors():
        (bias,) = (head for head in heads if "aux" not in head and len(shapes[head]) == 1)
        without_auxiliary = {name: shape for name, shape in shapes.items() if not name.startswith(("aux.", "aux_"))}
        for tensors in (shapes, without_auxiliary):
            digests = digests_of_heads.setdefault((framework, bias, tuple(sorted(heads))), {})
            networks = digests.setdefault(digest(tensors, heads, -1 if framework == TENSORFLOW else 0), [])
            if network not in networks:
                networks.append(network)
    table: dict[str, Any] = {"scopes": [names.scope for names in list_name_maps()], TENSORFLOW: [], TORCH: []}
    for (framework, bias, heads_of_row), digests in digests_of_heads.items():
        table[framework].append({"bias": bias, "heads": list(heads_of_row), "digests": digests})
    return table


def list_tensors() -> Iterator[tuple[str, str, dict[str, Shape], list[str]]]:
    """Yield framework, network, names with shapes, and those names whose tensors have an axis for the classes."""
    from viaduct import models
    from viaduct.weights import recognise
    from viaduct.weights.maps import find_names, layouts_of

    for name in models.names():
        network = recognise.sketch(name, 1)
        shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
        shapes = without_counters(shapes)
        yield TORCH, name, shapes, [key for key in shapes if recognise.is_head(key)]
        if find_names(network) is not None:
            for layout, links in layouts_of(network).items():
                heads = [source for link in links if recognise.is_head(link.target) for source in link.sources]
                yield TENSORFLOW, name, recognise.expected_variables(network, layout), heads


def main() -> None:
    FILE.write_text(json.dumps(compute_fingerprints(), indent=1) + "\n")


if __name__ == "__main__":
    main()
