"""viaduct bench"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.terminal import print_note
from viaduct.verbs.train import merge_changes

if TYPE_CHECKING:
    from viaduct.benching.peers import Peer
    from viaduct.benching.starts import StartResults
    from viaduct.recipes import Loaded, Recipe

CPU_BATCH = 8
FLAGS = {"data.global_batch": "batch", "data.size": "size", "precision.compute": "precision"}  # field -> its flag


def main(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (`viaduct train --list`) or your own recipe file.")],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, npu, mlu; or one card: cuda:1.")] = "auto",
    batch: Annotated[
        int | None,
        typer.Option(help="Batch size.", min=1, show_default=f"the recipe's; on the CPU {CPU_BATCH} at most"),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Side of the images.", min=1, show_default="the recipe's")] = None,
    precision: Annotated[
        str | None, typer.Option(help="auto, fp32, bf16, fp16, or a level O0 to O3.", show_default="the recipe's")
    ] = None,
    mode: Annotated[
        Literal["eager", "graph"] | None, typer.Option(help="Graph: compiled.", show_default="the recipe's")
    ] = None,
    compile: Annotated[
        Literal["auto", "regional", "whole", "off"] | None,
        typer.Option(help="In graph mode: what is compiled.", show_default="the recipe's"),
    ] = None,
    kernels: Annotated[
        Literal["auto", "on", "off"] | None, typer.Option(help="Kernels of our own.", show_default="the recipe's")
    ] = None,
    sink: Annotated[
        int | None,
        typer.Option(
            help="So many steps at a time without returning to the host.", min=0, show_default="20 on a card, else 0"
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change any field of the recipe; may be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="synthetic: noise on the device, no files; or where the recipe's data lie.")
    ] = Path("synthetic"),
    steps: Annotated[
        int | None, typer.Option(help="Steps in a window.", min=1, show_default="20; 2 on the CPU")
    ] = None,
    windows: Annotated[int | None, typer.Option(help="Timed windows.", min=1, show_default="7; 3 on the CPU")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Steps before the first window.", min=0, show_default="20; 1 on the CPU")
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            help="Whom to measure too: torchvision, timm, plain (our network in a plain loop), or all.",
            show_default="nobody",
        ),
    ] = None,
    way: Annotated[
        str | None,
        typer.Option(
            help="How torchvision and timm run: eager, compiled, reduce-overhead, max-autotune.",
            show_default="the first three; two on the CPU",
        ),
    ] = None,
    starts: Annotated[
        bool, typer.Option("--starts", help="Also from the start of a process to its first step, each in its own.")
    ] = False,
    profile: Annotated[bool, typer.Option(help="Look where the time goes, after the timed windows.")] = True,
    repeat: Annotated[int, typer.Option(help="Do the whole measurement so many times.", min=1)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the figures here, too.", metavar="FILE")] = None,
) -> None:
    """Measure a recipe's training step: images/s, where the time goes, and what others need for the same work.

    All that is compared runs in this process, in turns of short windows; the figures are medians. A peer that is not
    installed, or has no such network, is named and left out.
    """
    given = dict(locals())
    try:
        run_bench(given)
    except KeyboardInterrupt:
        print_note("Interrupted: nothing was written.")
        raise typer.Exit(130) from None


def run_bench(given: dict[str, Any]) -> None:
    """Load the recipe with its changes and measure it."""
    from viaduct.recipes import load

    loaded = load(given["recipe"])
    loaded = replace(loaded, recipe=change_recipe(loaded.recipe, given))
    # torch is imported from here on: mistakes above are answered at once.
    from viaduct.benching.record import check_json_path

    if given["json"]:
        check_json_path(given["json"])
    measure(loaded, given)


def measure(loaded: Loaded, given: dict[str, Any]) -> None:
    """Measure the recipe and its peers, print and store the figures."""
    import tempfile

    from viaduct import devices
    from viaduct.benching import peers
    from viaduct.benching.measure import Lengths, fixed_length
    from viaduct.benching.measure import measure as measure_once
    from viaduct.benching.ours import Setting, fix_sink
    from viaduct.benching.record import make_record, write_record
    from viaduct.benching.table import print_record
    from viaduct.training.networks import apply_source_settings

    names = peers.parse_names(given["peer"], peers.NAMES, "peer") if given["peer"] is not None else []
    device, torch_device = devices.pick(given["device"])
    modes = peers.select_modes(given["way"], torch_device.type)
    if given["way"] is not None and not names:
        print_note(f"--way {given['way']} has no say without --peer: it is how peers run.")
    recipe = apply_source_settings(loaded.recipe, keep_size=given["size"] is not None or loaded.file is not None)
    recipe = fix_sink(shrink_batch_on_cpu(recipe, torch_device.type, given["batch"]), device)
    lengths = Lengths.of(
        torch_device.type, fixed_length(recipe), given["steps"], given["windows"], given["warmup"], given["profile"]
    )
    with tempfile.TemporaryDirectory() as scratch:
        setting = Setting(recipe, given["data"], device, torch_device, Path(scratch))
        setting.check_supported()
        found, unavailable = peers.find(names, modes, recipe)
        started = (
            measure_separate_starts(str(loaded.file or loaded.name), recipe, given, found) if given["starts"] else None
        )
        outcomes = [measure_once(setting, found, unavailable, lengths, print_note) for _ in range(given["repeat"])]
    record = make_record(loaded.name, setting, lengths, outcomes, build_command(), started)
    written = None
    try:
        if given["json"]:  # before the table is printed: stdout may be closed
            write_record(given["json"], record)
            written = given["json"]
    finally:
        print_record(record, written)


def measure_separate_starts(recipe_name: str, recipe: Recipe, given: dict[str, Any], found: list[Peer]) -> StartResults:
    """Measure the start of ours and of each peer in separate processes, with the same recipe and changes."""
    from viaduct.benching.starts import StartRequest, measure_starts

    small = [("accumulate", str(recipe.accumulate)), ("data.global_batch", str(recipe.data.global_batch))]
    request = StartRequest(recipe_name, collect_changes(given) + small, given["device"], str(given["data"]))
    requests = [
        ("viaduct", request),
        *((peer.title, replace(request, peer=peer.name, mode=peer.mode)) for peer in found),
    ]
    return measure_starts(requests, print_note)


def change_recipe(recipe: Recipe, given: dict[str, Any]) -> Recipe:
    """Return the recipe with the flags applied, each checked as `viaduct train` checks it."""
    from viaduct.recipes._fields import override

    for path, text in collect_changes(given):
        recipe = override(recipe, path, text)
    return recipe


def collect_changes(given: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the recipe fields that flags change, with the flags' values."""
    fields = {
        "data.global_batch": given["batch"],
        "data.size": given["size"],
        "precision.compute": given["precision"],
        "mode": given["mode"],
        "compile": given["compile"],
        "kernels": given["kernels"],
        "sink": given["sink"],
    }
    flags = {FLAGS.get(path, path): (path, str(value)) for path, value in fields.items() if value is not None}
    return merge_changes(flags, given["settings"])


def shrink_batch_on_cpu(recipe: Recipe, kind: str, batch: int | None) -> Recipe:
    """Return the recipe with a batch that a CPU processes in seconds, unless --batch was given."""
    if kind != "cpu" or batch is not None or recipe.data.global_batch <= CPU_BATCH:
        return recipe
    return replace(recipe, data=replace(recipe.data, global_batch=CPU_BATCH), accumulate=1)


def build_command() -> str:
    """Return the command that repeats the measurement, without the file that gets the figures."""
    arguments = sys.argv[1:]
    repeated = [
        argument
        for index, argument in enumerate(arguments)
        if not argument.startswith("--json") and (index == 0 or arguments[index - 1] != "--json")
    ]
    return shlex.join(["viaduct", *repeated])
