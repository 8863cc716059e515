"""viaduct predict"""

from __future__ import annotations

import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viaduct.errors import BadData, BadValue
from viaduct.terminal import print_note
from viaduct.verbs._option_flags import with_option_flags
from viaduct.verbs._recipe_changes import DeviceOption
from viaduct.verbs._weights import (
    PrecisionOption,
    WeightsArgument,
    WeightsOptions,
    find_run,
    open_classifier,
)

if TYPE_CHECKING:
    from viaduct.handover.classifier import Classifier
    from viaduct.handover.engine import Engine
    from viaduct.handover.image_files import FoundFiles
    from viaduct.handover.predicting import Run

STDIN = STDOUT = Path("-")
GIVE_IMAGES = "Give image files or folders that hold some."


@with_option_flags
def main(
    weights: WeightsArgument,
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Image files or folders; - reads paths from stdin, one a line.",
            readable=False,  # unreadable files are skipped and named, so typer must not refuse them
        ),
    ],
    top: Annotated[int, typer.Option(help="Number of classes shown for each image.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
    csv: Annotated[
        Path | None,
        typer.Option(help="Write a CSV file instead of the table; - is stdout.", metavar="FILE", show_default=False),
    ] = None,
    sheet: Annotated[
        Path | None,
        typer.Option(
            help="Also draw a contact sheet as PNG: the first 96 images with label and percent.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = None,
    batch: Annotated[
        int | None, typer.Option(help="Batch size.", min=1, max=4096, show_default="32 on a CPU, else 128")
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast", help="Fold batch norms into convolutions: faster, but no longer bit-equal to `viaduct evaluate`."
        ),
    ] = False,
    *,
    options: WeightsOptions,
) -> int:
    """Predict the most probable classes of images, with their probabilities.

    viaduct predict runs/try1 photo.jpg folder/ --top 3

    Images are preprocessed as for the recipe's evaluation. Folders are searched recursively for images. A file that
    cannot be read is named on stderr and left out. Weights that viaduct did not train need a recipe:
    viaduct predict model.safetensors photo.jpg --recipe resnet50_imagenet

    Exit code 0: every image was predicted. 1: some could not be read. 2: no image was predicted, or a flag is wrong.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")  # viaduct reports files that Pillow cannot decode
    check_flags(weights, images, as_json, csv, sheet)
    files = list_images(images, sheet)
    classifier = open_classifier(weights, options)
    from viaduct.handover.predicting import Reader
    from viaduct.handover.prediction_run import Tally, open_outputs, write_predictions

    engine = start_engine(classifier, device, precision, fast, batch)
    forward = choose_forward(classifier, engine, device, precision)
    quiet = csv in (None, STDOUT) and sys.stdout.isatty()  # results on a terminal already show the progress
    tally = Tally(files, quiet)
    try:
        with open_outputs(classifier, engine, as_json, csv, top) as outputs:
            sheet_output, reader = None, Reader(classifier.prepare)
            if sheet is not None:
                from viaduct.handover.prediction_sheet import MAX_IMAGES, SheetOutput, draw_thumbnail

                sheet_output = SheetOutput(sheet)
                outputs.append(sheet_output)
                reader = Reader(classifier.prepare, draw_thumbnail, MAX_IMAGES)
            write_predictions(
                classifier, engine, files, outputs, tally, top=top, batch=batch, reader=reader, run=forward
            )
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would only add a traceback
        effect = "what was printed is not complete" if csv in (None, STDOUT) else f"{csv} was not written"
        print_note(f"viaduct predict: interrupted after {tally.done:,} of {tally.total:,} files; {effect}.")
        raise typer.Exit(130) from None
    except BrokenPipeError:  # `viaduct predict … | head` is no error
        from viaduct.training.output_streams import redirect_to_null

        redirect_to_null(sys.stdout)
        return 0
    tally.report()
    if csv not in (None, STDOUT):
        print_note(f"wrote {csv}")
    if sheet_output:
        print_note(sheet_output.describe())
    return 1 if tally.errors else 0  # if no image was predicted, write_predictions has raised BadData: exit code 2


def check_flags(weights: Path, images: list[Path], as_json: bool, csv: Path | None, sheet: Path | None) -> None:
    """Raise BadValue for contradictory flags and for output files that may not be replaced."""
    from viaduct.data.output_files import check_output

    if as_json and csv == STDOUT:
        raise BadValue("--json and --csv - would both write to stdout.", "Leave out one, or name a CSV file.")
    if csv is not None and csv != STDOUT:
        check_output(csv, ".csv", b"file,label_1", "a table of predictions", "--csv")
    if sheet is not None:
        check_sheet(sheet)
    if find_run(weights, None) is None and (runs := [path for path in images if find_run(path, None)]):
        raise BadValue(f"{runs[0]} is a run; the weights come first.", f"Try: viaduct predict {runs[0]} {weights}")


def check_sheet(sheet: Path) -> None:
    """Raise an error unless --sheet is a new file or an earlier contact sheet."""
    from viaduct.data.output_files import check_output
    from viaduct.data.png import SIGNATURE
    from viaduct.extras import require

    require("torch")  # prediction_sheet imports it
    check_output(sheet, ".png", SIGNATURE, "a contact sheet", "--sheet")
    if sheet.exists():
        from viaduct.handover.prediction_sheet import is_sheet

        if not is_sheet(sheet):
            raise BadValue(
                f"{sheet} is there already and is not a contact sheet; it stays as it is.",
                "Name another file with --sheet.",
            )


def list_images(paths: list[Path], sheet: Path | None) -> FoundFiles:
    """Return the given files, and all files in given folders but an earlier contact sheet; raise BadData if none."""
    from viaduct.handover.image_files import find_images, read_path_list

    names: list[str] = []
    for path in paths:
        if path == STDIN and sys.stdin is None:
            raise BadValue("- reads paths from stdin, which is closed.")
        names += read_path_list(sys.stdin.buffer.read()) if path == STDIN else [str(path)]
    search = find_images(names, leave_out=sheet)
    if search.files:
        return search
    if search.errors:
        first = search.errors[0]
        others = f" ({len(search.errors) - 1:,} more paths cannot be read either)" if len(search.errors) > 1 else ""
        is_url = first.path.startswith(("http:", "https:"))
        advice = "Download it first; addresses are not read." if is_url else GIVE_IMAGES
        raise BadData(f"{first.path}: {first.reason}.{others}", advice)
    places = ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "") or "the list on stdin"
    hidden = f" ({search.hidden:,} hidden ones are skipped)" if search.hidden else ""
    raise BadData(f"there are no files in {places}{hidden}.", GIVE_IMAGES)


def start_engine(classifier: Classifier, device: str, precision: str | None, fast: bool, batch: int | None) -> Engine:
    """Return the network on its device, with batch norms folded if `fast`."""
    from viaduct.devices import pick
    from viaduct.handover.engine import build_engine
    from viaduct.handover.predicting import choose_batch

    engine = build_engine(classifier, device, precision, fold=fast, batch=batch or choose_batch(pick(device)[1]))
    if engine.note:
        print_note(engine.note)
    return engine


def choose_forward(classifier: Classifier, engine: Engine, device: str, precision: str | None) -> Run:
    """Return the function that computes the logits of a batch.

    If batch norms are folded, it also prints how much this changes the outputs of the first batch.
    """
    from viaduct.handover.engine import build_engine
    from viaduct.handover.folding_effect import ComparedRun

    if not engine.folded:
        return engine.run
    reference = build_engine(classifier, device, precision, fold=False)
    return ComparedRun(engine, reference, lambda effect: print_note(str(effect)))
