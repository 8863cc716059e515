"""viaduct export"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from viaduct.handover.exporting.request import (
    ExportRequest,
    FormatName,
    Input,
    Precision,
    check_request,
    choose_input,
    parse_batch,
)
from viaduct.verbs._option_flags import with_option_flags
from viaduct.verbs._weights import WeightsArgument, WeightsOptions, open_classifier


@with_option_flags
def main(
    weights: WeightsArgument,
    form: Annotated[FormatName, typer.Option("--to", help="Format to write.")],
    out: Annotated[Path, typer.Option(help="File to write; for a SavedModel, the folder.")],
    input_form: Annotated[
        Input | None,
        typer.Option(
            "--input",
            help="Input of the graph: decoded pixels, the prepared tensor, or encoded images.",
            show_default="pixels; tensor for TensorFlow's formats",
        ),
    ] = None,
    batch: Annotated[str, typer.Option(help="`dynamic`, or a fixed number of images.", metavar="N")] = "dynamic",
    precision: Annotated[
        Precision, typer.Option(help="Precision of the computation; inputs and outputs keep theirs.")
    ] = "fp32",
    fold: Annotated[bool, typer.Option("--fold-bn", help="Fold batch norms into convolutions.")] = False,
    opset: Annotated[
        int | None, typer.Option(help="ONNX opset.", show_default="the newest that exporter and runtime share")
    ] = None,
    check_images: Annotated[
        Path | None,
        typer.Option(
            help="A folder of images to check the export with.",
            show_default="the run's validation images; without them the built-in shapes",
            metavar="FOLDER",
        ),
    ] = None,
    check_count: Annotated[int, typer.Option(help="Number of images to check with.", min=1)] = 64,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare the file in its own runtime with PyTorch first.")
    ] = True,
    license_: Annotated[
        str, typer.Option("--license", help="License in the model card.", metavar="TEXT", show_default="not stated")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    *,
    options: WeightsOptions,
) -> None:
    """Write a trained network for another runtime: ONNX, torch.export, SavedModel, frozen graph, or weights alone.

    The recipe's evaluation preprocessing is part of the graph, unless --input is tensor. The file is first compared in
    its own runtime with PyTorch; if they differ by more than is allowed, no file is written. A model card is written
    beside it: FILE.json and FILE.md.

    ONNX needs the extra `onnx`, SavedModel and frozen graphs the extra `tf`; these need separate environments.
    """
    request = ExportRequest(
        form=form,
        out=out,
        input=choose_input(form, input_form),
        batch=parse_batch(batch),
        precision=precision,
        fold=fold,
        opset=opset,
        check=check,
        check_images=check_images,
        check_count=check_count,
        license=license_,
        force=force,
    )
    check_request(request)
    try:
        classifier = open_classifier(weights, options)
        from viaduct.handover.exporting.export import export

        result = export(classifier, request)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would only add a traceback
        print(f"viaduct export: interrupted; {out} was not written.", file=sys.stderr)
        raise typer.Exit(130) from None
    print(result.check_result or "Not checked: the file was not run.")
    for port in result.description.inputs:
        print(f"takes  {port}")
    for port in result.description.outputs:
        print(f"gives  {port}")
    size = f"{result.size / 1e6:,.1f} MB" if result.size >= 1e5 else f"{result.size / 1e3:,.1f} kB"
    trained = "" if classifier.step is None else f" of step {classifier.step:,}"
    print(f"{result.path}: {classifier.name}{trained}, {form}, {size}; card: {', '.join(map(str, result.cards))}")
