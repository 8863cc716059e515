"""viaduct tune"""

from __future__ import annotations

import json as json_format
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viaduct.errors import BadValue
from viaduct.extras import require
from viaduct.file_urls import resolve_file_url
from viaduct.terminal import print_note
from viaduct.verbs._durations import parse_duration
from viaduct.verbs._grouped_help import AsJson, Subcommands
from viaduct.verbs._recipe_changes import DeviceOption, PrecisionOption, RecipeArgument, SettingsOption, merge_changes

if TYPE_CHECKING:
    from viaduct.tuning.bank import BankContents
    from viaduct.tuning.table import TuneReport

app = Subcommands("Search faster variants of a recipe's operators, and store them in a bank.")


@app.command("run")
def run(
    recipe: RecipeArgument,
    mode: Annotated[
        str, typer.Option(help="Search method: GA, RL, RL,GA, random or exhaustive.", metavar="MODE")
    ] = "RL,GA",
    budget: Annotated[str, typer.Option(help="Time to spend: 90s, 10m, 1h.", metavar="TIME")] = "10m",
    device: DeviceOption = "auto",
    bank: Annotated[
        Path | None,
        typer.Option(help="Folder of the bank; created if missing.", show_default="TUNE_BANK_PATH, else the user's"),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="Folder of data; synthetic: noise, no files.", callback=resolve_file_url)
    ] = Path("synthetic"),
    batch: Annotated[int | None, typer.Option(help="Batch size.", min=1, show_default="the recipe's")] = None,
    precision: PrecisionOption = None,
    settings: SettingsOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Search faster variants of a recipe's operators on this device and store them in a bank.

    Operators in the bank are not searched again unless REPEAT_TUNE=True. Ctrl-C keeps all results; the same command
    continues, also after a kill. Training uses the choices only if the whole step became faster.
    """
    from viaduct.tuning.location import is_repeat_wanted, locate_bank

    seconds = parse_duration(budget, "--budget")
    repeat, location = is_repeat_wanted(), locate_bank(bank)
    require("torch")
    from viaduct.recipes import load
    from viaduct.recipes._fields import override_fields
    from viaduct.training.tuned import TuneRequest, tune_recipe

    loaded = load(recipe)
    flags = {"batch": ("data.global_batch", batch), "precision": ("precision.compute", precision)}
    changes = merge_changes(flags, settings)
    override_fields(loaded.recipe, changes)  # raises BadValue for a wrong value, before any work
    request = TuneRequest(loaded, location, mode, seconds, device, data, changes, seed, repeat)
    report = tune_recipe(request, print_note)
    print_report(report, as_json)
    if report.signal:
        raise typer.Exit(128 + report.signal)


@app.command("show")
def show(
    bank: Annotated[
        Path | None, typer.Argument(help="A bank's folder or file.", show_default="TUNE_BANK_PATH, else the user's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a bank's operators, their times without and with the choice, and whether training uses the choices."""
    from viaduct.tuning.location import locate_bank
    from viaduct.tuning.table import encode_banks, list_verdicts, make_bank_table

    path = bank if bank is not None else locate_bank(None).path
    banks = open_banks(path)
    if as_json:
        print(json_format.dumps(encode_banks(banks), indent=1))
        return
    from viaduct.terminal import print_table

    if not banks:
        print(f"{path} has no entries.")
    for number, stored in enumerate(banks):
        print(("\n" if number else "") + stored.fingerprint.describe())
        print_table(make_bank_table(stored))
        for line in list_verdicts(stored):
            print(line)


@app.command("merge")
def merge(
    banks: Annotated[list[Path], typer.Argument(help="Two banks or more: folders or files.", metavar="BANK…")],
    out: Annotated[Path, typer.Option(help="The bank that gets the entries of all of them.", metavar="DIR")],
) -> None:
    """Merge banks. If several have an entry for an operator and device, the one with the largest gain is kept."""
    from viaduct.tuning.bank import Bank, BankContents
    from viaduct.tuning.location import Location, prepare_writing

    if len(banks) < 2:
        raise BadValue(f"there is one bank, {str(banks[0])!r}, and nothing to merge it with.", "Name two or more.")
    sources = [stored for path in banks for stored in open_banks(path)]
    target = Bank(out)
    if out.is_dir():
        open_banks(out)  # raises BadBank if it is damaged, before anything is written
    prepare_writing(Location(target, "--bank"), flag="--out")
    fingerprints = list(dict.fromkeys(stored.fingerprint for stored in sources))
    for fingerprint in fingerprints:
        files = [stored for stored in sources if stored.fingerprint == fingerprint]
        # Merge the target's own contents with those of each file.
        merged = target.update(fingerprint, partial(reduce, BankContents.merge, files))
        print(f"{fingerprint.describe()}: {len(merged.entries)} entries")
    print(f"{out}: {len(fingerprints)} device{'s' * (len(fingerprints) != 1)}")


def open_banks(path: Path) -> list[BankContents]:
    """Return the contents of a bank's files, or of one file."""
    from viaduct.tuning.bank import BadBank, Bank, read_bank_file

    if path.is_dir():
        return [read_bank_file(file) for file in Bank(path).list_files()]
    if not path.exists():
        raise BadBank(f"there is no bank {str(path)!r}.", "`viaduct tune run RECIPE --bank DIR` makes one.")
    return [read_bank_file(path)]


def print_report(report: TuneReport, as_json: bool) -> None:
    from viaduct.terminal import print_table
    from viaduct.tuning.table import encode_outcomes, list_conclusions, make_outcome_table

    lines = list_conclusions(report)
    if as_json:
        record: dict[str, Any] = {**encode_outcomes(report), "conclusions": lines}
        print(json_format.dumps(record, indent=1))
        return
    if report.outcomes:
        print_table(make_outcome_table(report.outcomes, report.step_us))
    for line in lines:
        print(line)
