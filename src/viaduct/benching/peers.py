"""What a user would pick instead: the same network from somebody else, in the loop that they would write around it.

Each peer runs in every way that it knows: as it is written, compiled, and compiled with captured graphs; channels_last,
autocast in the same precision, torch's fused SGD, one batch of noise that lies on the device. `plain` is our own
network in that loop, as it is written. A peer is given nothing else to do: no log lines, no schedule, no averages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct import models
from viaduct.devices.base import first_line
from viaduct.errors import BadValue, UnknownName
from viaduct.recipes import Recipe
from viaduct.training.networks import build_model, place_model

PACKAGES = {"torchvision": "torchvision.models", "timm": "timm"}
NAMES = (*PACKAGES, "plain")
# Way -> what torch.compile is told; None: it is not compiled.
WAYS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "compiled": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune"},
}
USUAL_WAYS = {"cpu": ("eager", "compiled")}
USUAL_WAYS_ELSEWHERE = ("eager", "compiled", "reduce-overhead")


class Absent(Exception):
    """Why a peer does not take part."""


@dataclass(frozen=True)
class Peer:
    """A peer in one of its ways, not yet built."""

    name: str
    network: str
    way: str
    make: Callable[[], nn.Module]

    @property
    def title(self) -> str:
        return f"{self.name} {self.network}, {self.way}"


def ways_for(text: str | None, kind: str) -> tuple[str, ...]:
    """What was asked for, or what is usual on the device."""
    if text is not None:
        return tuple(names_in(text, tuple(WAYS), "way"))
    return USUAL_WAYS.get(kind, USUAL_WAYS_ELSEWHERE)


def names_in(text: str, known: tuple[str, ...], kind: str) -> list[str]:
    """The names in a list with commas; one that nobody knows is an error."""
    names = list(dict.fromkeys(word for word in text.replace(" ", "").split(",") if word))
    if names == ["all"]:
        return list(known)
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    if not names:
        raise BadValue(f"no {kind} is named in {text!r}.", f"There are: {', '.join(known)}.")
    return names


def unknown(kind: str, name: str, known: tuple[str, ...]) -> UnknownName:
    """With the list, once: it is there already where no name comes close."""
    error, listing = UnknownName(kind, name, known), f"There are: {', '.join(known)}."
    return error if listing in error.hints else UnknownName(kind, name, known, listing)


def find(names: list[str], ways: tuple[str, ...], recipe: Recipe) -> tuple[list[Peer], dict[str, str]]:
    """The peers that can take part, in all their ways, and why the others cannot."""
    found: list[Peer] = []
    absent: dict[str, str] = {}
    for name in names:
        try:
            network, make = maker(name, recipe)
        except Absent as why:
            absent[name] = str(why)
            continue
        # Our own network compiled is no peer but `--mode graph`; and a deep one takes minutes to compile as a whole.
        its_ways = ("eager",) if name == "plain" else ways
        found += [Peer(name, network, way, make) for way in its_ways]
    return found, absent


def maker(name: str, recipe: Recipe) -> tuple[str, Callable[[], nn.Module]]:
    """What a peer calls the recipe's network, and what makes it."""
    classes = recipe.data.classes
    if name == "plain":
        return str(recipe.model) if isinstance(recipe.model, str) else "own network", lambda: build_model(recipe)
    package = load(name)
    network = find_peer_network(recipe)
    if network is None:
        raise Absent(f"it has no network like {recipe.model if isinstance(recipe.model, str) else 'this one'}")
    if name == "torchvision":
        build = getattr(package, network, None)
        if build is None:
            raise Absent(f"it has no {network}")
        return network, lambda: build(weights=None, num_classes=classes)
    if not package.is_model(network):
        raise Absent(f"it has no {network}")
    return network, lambda: package.create_model(network, pretrained=False, num_classes=classes)


def find_peer_network(recipe: Recipe) -> str | None:
    """Return what torchvision and timm call the recipe's network; only networks that do the same work count."""
    if not isinstance(recipe.model, str) or recipe.model not in models.names():
        return None
    return models.record_of(recipe.model).peers.get(recipe.model)


def load(name: str) -> Any:
    try:
        return importlib.import_module(PACKAGES[name])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == name:
            raise Absent("it is not installed") from None
        raise Absent(f"it is installed but does not load: {first_line(error)}") from None
    except Exception as error:
        # Somebody else's package may fail in any way while it is imported; ours still wants measuring.
        raise Absent(f"it is installed but does not load: {first_line(error)}") from None


class Loop:
    """A network in the loop that a person would write for speed."""

    def __init__(self, peer: Peer, recipe: Recipe, device: torch.device, compute: torch.dtype) -> None:
        self.device, self.compute = device, compute
        network = place_model(peer.make().train(), device)
        options = WAYS[peer.way]
        self.network: Any = network if options is None else torch.compile(network, **options)
        fused = device.type in ("cpu", "cuda") or None
        self.optimizer = torch.optim.SGD(network.parameters(), 1e-6, momentum=0.9, weight_decay=1e-4, fused=fused)
        self.scaler = torch.amp.GradScaler(device.type, enabled=compute == torch.float16)
        batch, size = recipe.data.global_batch, recipe.data.size
        images = torch.randn(batch, 3, size, size, device=device)
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, recipe.data.classes, (batch,), device=device)

    def first(self) -> None:
        self(1)

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            with torch.autocast(self.device.type, self.compute, enabled=self.compute != torch.float32):
                loss = self.loss()
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)

    def loss(self) -> Tensor:
        made = self.network(self.images)
        first, *auxiliary = made if isinstance(made, tuple) else (made,)
        loss = F.cross_entropy(first, self.labels)
        for part in auxiliary:
            loss = loss + F.cross_entropy(part, self.labels)
        return loss

    def close(self) -> None: ...
