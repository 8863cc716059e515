"""Peers: the same network from torchvision or timm, in a plain PyTorch training loop.

A network of torchvision or timm can run in several modes: eager, compiled, and compiled with captured graphs. All use
channels_last, autocast in the recipe's precision, torch's SGD (fused where torch has that), and one batch of noise that
stays on the device. The peer `plain` is viaduct's own network in that loop, in eager mode. Peers have no log lines, no
schedule and no averaged weights.
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
from viaduct.devices.base import summarise_error
from viaduct.errors import BadValue, UnknownName, find_closest
from viaduct.recipes import Recipe
from viaduct.training.networks import build_model, place_model

PACKAGES = {"torchvision": "torchvision.models", "timm": "timm"}
NAMES = (*PACKAGES, "plain")
# Mode of a peer (flag --way) -> options of torch.compile; None: not compiled.
MODES: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "compiled": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune"},
}


class PeerUnavailable(Exception):
    """Raised with the reason if a peer cannot be measured."""


@dataclass(frozen=True)
class Peer:
    """Peer in one of its modes, not yet built."""

    name: str  # one of NAMES
    network: str  # name of the network in torchvision and timm; for `plain` the recipe's
    mode: str  # one of MODES
    make: Callable[[], nn.Module]

    @property
    def title(self) -> str:
        return f"{self.name} {self.network}, {self.mode}"


def select_modes(text: str | None, device_type: str) -> tuple[str, ...]:
    """Return the modes named by --way, or the device's defaults."""
    if text is not None:
        return tuple(parse_names(text, tuple(MODES), "way"))
    return ("eager", "compiled") if device_type == "cpu" else ("eager", "compiled", "reduce-overhead")


def parse_names(text: str, known: tuple[str, ...], kind: str) -> list[str]:
    """Return the names in a comma-separated list; `all` means every name. Raise an error for an unknown name."""
    names = list(dict.fromkeys(name for name in text.replace(" ", "").split(",") if name))
    if names == ["all"]:
        return list(known)
    for name in names:
        if name not in known:
            raise make_unknown_name(kind, name, known)
    if not names:
        raise BadValue(f"no {kind} is named in {text!r}.", f"There are: {', '.join(known)}.")
    return names


def make_unknown_name(kind: str, name: str, known: tuple[str, ...]) -> UnknownName:
    """Return the error with the list of known names, which `UnknownName` adds only if no name is close."""
    listing = [f"There are: {', '.join(known)}."] if find_closest(name, known) else []
    return UnknownName(kind, name, known, *listing)


def find_peers(names: list[str], modes: tuple[str, ...], recipe: Recipe) -> tuple[list[Peer], dict[str, str]]:
    """Return the peers that can be built, one for each mode (plain: only eager), and why others cannot be built."""
    peers: list[Peer] = []
    unavailable: dict[str, str] = {}
    for name in names:
        try:
            network, make = find_network_factory(name, recipe)
        except PeerUnavailable as error:
            unavailable[name] = str(error)
            continue
        # Our own network is compiled by `--mode graph`; and a deep one takes minutes to compile as one graph.
        peer_modes = ("eager",) if name == "plain" else modes
        peers += [Peer(name, network, mode, make) for mode in peer_modes]
    return peers, unavailable


def find_network_factory(name: str, recipe: Recipe) -> tuple[str, Callable[[], nn.Module]]:
    """Return the peer's name for the recipe's network, and the function that builds the network.

    Raise PeerUnavailable if the peer's package is missing or has no such network.
    """
    classes = recipe.data.classes
    own_name = recipe.model if isinstance(recipe.model, str) else ""
    if name == "plain":
        return own_name or "own network", lambda: build_model(recipe)
    package = import_package(name)
    network = find_peer_network(recipe)
    if network is None:
        raise PeerUnavailable(f"it has no network like {own_name or 'this one'}")
    if name == "torchvision":
        build = getattr(package, network, None)
        if build is None:
            raise PeerUnavailable(f"it has no {network}")
        return network, lambda: build(weights=None, num_classes=classes)
    if not package.is_model(network):
        raise PeerUnavailable(f"it has no {network}")
    return network, lambda: package.create_model(network, pretrained=False, num_classes=classes)


def find_peer_network(recipe: Recipe) -> str | None:
    """Return the name of the same network in torchvision and timm; None if they do not have it."""
    if not isinstance(recipe.model, str) or recipe.model not in models.names():
        return None
    return models.find_family(recipe.model).peers.get(recipe.model)


def import_package(name: str) -> Any:
    """Import a peer's package or raise PeerUnavailable with the reason."""
    try:
        return importlib.import_module(PACKAGES[name])
    except Exception as error:
        is_absent = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == name
        reason = "it is not installed" if is_absent else f"it is installed but does not load: {summarise_error(error)}"
        raise PeerUnavailable(reason) from None


class PlainLoop:
    """Peer's network in a plain PyTorch training loop."""

    def __init__(self, peer: Peer, recipe: Recipe, device: torch.device, compute: torch.dtype) -> None:
        self.device, self.compute = device, compute
        network = place_model(peer.make().train(), device)
        options = MODES[peer.mode]
        self.network: Any = network if options is None else torch.compile(network, **options)
        fused = device.type in ("cpu", "cuda") or None  # None: torch decides, as other devices may lack fused SGD
        self.optimizer = torch.optim.SGD(  # with a larger learning rate, weights diverge on noise
            network.parameters(), lr=1e-6, momentum=0.9, weight_decay=1e-4, fused=fused
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=compute == torch.float16)
        batch, size = recipe.data.global_batch, recipe.data.size
        images = torch.randn(batch, 3, size, size, device=device)
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, recipe.data.classes, (batch,), device=device)

    def run_first_step(self) -> None:
        self(1)

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            with torch.autocast(self.device.type, self.compute, enabled=self.compute != torch.float32):
                loss = self.compute_loss()
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)

    def compute_loss(self) -> Tensor:
        output = self.network(self.images)
        logits, *auxiliary = output if isinstance(output, tuple) else (output,)
        loss = F.cross_entropy(logits, self.labels)
        for auxiliary_logits in auxiliary:
            loss = loss + F.cross_entropy(auxiliary_logits, self.labels)
        return loss

    def close(self) -> None: ...
