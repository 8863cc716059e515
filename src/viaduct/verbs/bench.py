"""viaduct bench"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.terminal import print_note
from viaduct.verbs._recipe_changes import DeviceOption, PrecisionOption, RecipeArgument, SettingsOption, merge_changes

if TYPE_CHECKING:
    from viaduct.benching.peers import Peer
    from viaduct.benching.starts import StartResults
    from viaduct.recipes import LoadedRecipe, Recipe

CPU_BATCH = 8  # largest batch on the CPU, unless --batch is given
# Field of the recipe -> parameter of `main` whose value changes it.
PARAMETERS = {
    "data.global_batch": "batch",
    "data.size": "size",
    "precision.compute": "precision",
    **{name: name for name in ("mode", "compile", "kernels", "sink")},
}


def main(
    recipe: RecipeArgument,
    device: DeviceOption = "auto",
    batch: Annotated[
        int | None,
        typer.Option(help="Batch size.", min=1, show_default=f"the recipe's; on the CPU {CPU_BATCH} at most"),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Side of the images.", min=1, show_default="the recipe's")] = None,
    precision: PrecisionOption = None,
    mode: Annotated[
        Literal["eager", "graph"] | None, typer.Option(help="eager, or graph: compiled.", show_default="the recipe's")
    ] = None,
    compile: Annotated[
        Literal["auto", "regional", "whole", "off"] | None,
        typer.Option(help="In graph mode: the parts to compile.", show_default="the recipe's"),
    ] = None,
    kernels: Annotated[
        Literal["auto", "on", "off"] | None,
        typer.Option(help="Use viaduct's own kernels.", show_default="the recipe's"),
    ] = None,
    sink: Annotated[
        int | None,
        typer.Option(
            help="Steps executed on the device at a time; 0: return to the host after each.",
            min=0,
            show_default="20 on a card, else 0",
        ),
    ] = None,
    settings: SettingsOption = None,
    data: Annotated[
        Path, typer.Option(help="synthetic: noise on the device, no files; or the folder of the recipe's data.")
    ] = Path("synthetic"),
    steps: Annotated[
        int | None, typer.Option(help="Steps of each timed window.", min=1, show_default="20; 2 on the CPU")
    ] = None,
    windows: Annotated[int | None, typer.Option(help="Timed windows.", min=1, show_default="7; 3 on the CPU")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Steps before the first window.", min=0, show_default="20; 1 on the CPU")
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            help="Also measure: torchvision, timm, plain (our network in a plain loop), or all.", show_default="none"
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
        bool, typer.Option("--starts", help="Also measure the time from process start to first step, in new processes.")
    ] = False,
    profile: Annotated[bool, typer.Option(help="Profile some steps after the timed windows.")] = True,
    repeat: Annotated[int, typer.Option(help="Repeat the whole measurement this many times.", min=1)] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.", metavar="FILE")] = None,
) -> None:
    """Measure a recipe's training step: images/s, the parts of its time, and the same step in other libraries.

    All variants run in this process, alternating in short windows; the times are medians of these. --starts uses new
    processes. A peer that is not installed, or does not have the network, is named and left out.
    """
    run_bench(dict(locals()))


def run_bench(options: dict[str, Any]) -> None:
    """Measure the recipe and its peers, then write the figures to --json and print them."""
    try:
        record = measure(load_changed(options), options)
    except KeyboardInterrupt:
        print_note("Interrupted: nothing was written.")
        raise typer.Exit(130) from None
    from viaduct.benching.record import write_record
    from viaduct.benching.table import print_record

    written_to = None
    try:
        if options["json"]:  # before the table is printed: stdout may be closed
            write_record(options["json"], record)
            written_to = options["json"]
    finally:
        print_record(record, written_to)


def load_changed(options: dict[str, Any]) -> LoadedRecipe:
    """Return the recipe with the changes of the flags; raise an error if the file of --json cannot be written."""
    from viaduct.recipes import load
    from viaduct.recipes._fields import override_fields

    loaded = load(options["recipe"])
    loaded = replace(loaded, recipe=override_fields(loaded.recipe, collect_changes(options)))
    # torch is imported from here on, after the flags have been checked.
    from viaduct.benching.record import check_json_path

    if options["json"]:
        check_json_path(options["json"])
    return loaded


def measure(loaded: LoadedRecipe, options: dict[str, Any]) -> dict[str, Any]:
    """Measure the recipe and its peers; return the record of the figures."""
    import tempfile

    from viaduct import devices
    from viaduct.benching import peers
    from viaduct.benching.measure import Lengths, find_sink_length
    from viaduct.benching.measure import measure as measure_once
    from viaduct.benching.ours import Setting, fix_sink
    from viaduct.benching.record import make_record
    from viaduct.training.networks import apply_source_settings

    names = peers.parse_names(options["peer"], peers.NAMES, "peer") if options["peer"] is not None else []
    device, torch_device = devices.pick(options["device"])
    modes = peers.select_modes(options["way"], torch_device.type)
    if options["way"] is not None and not names:
        print_note(f"--way {options['way']} has no effect without --peer: it is how peers run.")
    recipe = apply_source_settings(loaded.recipe, keep_size=options["size"] is not None or loaded.file is not None)
    recipe = fix_sink(shrink_batch_on_cpu(recipe, torch_device.type, options["batch"]), device)
    given_lengths = (options[name] for name in ("steps", "windows", "warmup", "profile"))
    lengths = Lengths.of(torch_device.type, find_sink_length(recipe), *given_lengths)
    with tempfile.TemporaryDirectory() as scratch:
        setting = Setting(recipe, options["data"], device, torch_device, Path(scratch))
        setting.check_supported()
        available, unavailable = peers.find_peers(names, modes, recipe)
        starts = None
        if options["starts"]:
            starts = measure_separate_starts(str(loaded.file or loaded.name), recipe, options, available)
        outcomes = [
            measure_once(setting, available, unavailable, lengths, print_note) for _ in range(options["repeat"])
        ]
    return make_record(loaded.name, setting, lengths, outcomes, build_command(), starts)


def measure_separate_starts(
    recipe_name: str, recipe: Recipe, options: dict[str, Any], peers: list[Peer]
) -> StartResults:
    """Measure the start of viaduct and of each peer in separate processes, with the same recipe and changes."""
    from viaduct.benching.starts import StartRequest, measure_starts

    batch_changes = [("accumulate", str(recipe.accumulate)), ("data.global_batch", str(recipe.data.global_batch))]
    changes = collect_changes(options) + batch_changes
    request = StartRequest(recipe_name, changes, options["device"], str(options["data"]))
    requests = [
        ("viaduct", request),
        *((peer.title, replace(request, peer=peer.name, peer_mode=peer.mode)) for peer in peers),
    ]
    return measure_starts(requests, print_note)


def collect_changes(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (field, value) of the recipe fields that flags change."""
    return merge_changes({name: (path, options[name]) for path, name in PARAMETERS.items()}, options["settings"])


def shrink_batch_on_cpu(recipe: Recipe, kind: str, batch: int | None) -> Recipe:
    """Return the recipe with a batch that a CPU processes in seconds, unless --batch was given."""
    if kind != "cpu" or batch is not None or recipe.data.global_batch <= CPU_BATCH:
        return recipe
    return replace(recipe, data=replace(recipe.data, global_batch=CPU_BATCH), accumulate=1)


def build_command() -> str:
    """Return the command line without --json."""
    arguments = [
        argument
        for previous, argument in pairwise(sys.argv)
        if not argument.startswith("--json") and previous != "--json"
    ]
    return shlex.join(["viaduct", *arguments])
