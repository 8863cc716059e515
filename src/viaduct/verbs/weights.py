"""viaduct weights"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from viaduct.errors import BadValue
from viaduct.extras import explain_import_error
from viaduct.terminal import print_note
from viaduct.verbs._grouped_help import AsJson, Subcommands

app = Subcommands(
    "Show weights; import and export TensorFlow, MindSpore and PyTorch files, without TensorFlow or MindSpore."
)
Model = Annotated[
    str, typer.Option(help="A network of `viaduct models`.", show_default="found by names and shapes", metavar="NAME")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


@app.command()
def show(
    weights: Annotated[
        Path,
        typer.Argument(
            help="A TensorFlow checkpoint (prefix, folder or .index), a MindSpore .ckpt, a .safetensors or .pth file, "
            "or a run."
        ),
    ],
    pattern: Annotated[
        str, typer.Option("--filter", help="Only names that match, such as '*/kernel'.", metavar="GLOB")
    ] = "*",
    as_json: AsJson = False,
) -> None:
    """Show names, shapes and types of the tensors, the step, totals, and the network that they fit."""
    from viaduct.weights.stored import open_weights

    with open_weights(weights) as stored:
        summary = build_summary(stored, pattern)
        print_notes(stored.warnings)
    if as_json:
        print(json.dumps(summary, indent=1))
    else:
        print_summary(summary)


@app.command("import")
def import_weights(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A TensorFlow checkpoint (prefix, folder or .index), a MindSpore .ckpt, a .pth or .safetensors file."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.")],
    model: Model = "",
    classes: Annotated[
        int | None, typer.Option(help="Number of the network's outputs.", show_default="the checkpoint's", min=1)
    ] = None,
    ema: Annotated[bool, typer.Option("--ema", help="Import the exponential moving averages of the weights.")] = False,
    slots: Annotated[
        bool, typer.Option("--slots", help="Also write the optimizer's state, to NAME.slots.safetensors.")
    ] = False,
    force: Force = False,
) -> None:
    """Convert a TensorFlow or MindSpore checkpoint, or a PyTorch state dict, to safetensors with viaduct's names."""
    from viaduct.weights.exporting import get_slots_path, import_file, refuse_overwriting
    from viaduct.weights.stored import has_torch_names

    if out.suffix != ".safetensors":
        raise BadValue(f"--out {out} must end in .safetensors.")
    for file in (out, get_slots_path(out)) if slots else (out,):
        refuse_overwriting(file, force)
    if has_torch_names(checkpoint):
        from viaduct.weights.torch_import import import_torch_file

        if slots:
            raise BadValue(f"--slots: {checkpoint} is a PyTorch file, whose optimizer state has no names.")
        written = import_torch_file(checkpoint, out, model=model, classes=classes or 0, ema=ema)
    else:
        written = import_file(checkpoint, out, model=model, classes=classes or 0, ema=ema, slots=slots)
    if written.recognised:
        others = f" or {' or '.join(written.alternatives)}: --model chooses" if written.alternatives else ""
        print_note(f"{checkpoint} looks like {written.model}{others}.")
    imported = written.imported
    print_notes(f"Note: {note}." for note in (imported.notes if imported else ()))
    step = f", step {imported.global_step:,}" if imported and imported.global_step is not None else ""
    skipped = f"; {len(imported.skipped):,} more skipped" if imported and imported.skipped else ""
    print(f"{out}: {written.model}, {written.classes:,} classes, {written.tensor_count:,} tensors{step}{skipped}")


@app.command("export")
def export_weights(
    weights: Annotated[Path, typer.Argument(help="A run, one of its checkpoints, or a .safetensors file.")],
    out: Annotated[
        Path, typer.Option(help="A prefix such as model.ckpt-601000, or a .safetensors, .ckpt or .pth file.")
    ],
    form: Annotated[
        Literal["tf-checkpoint", "safetensors", "mindspore", "torchvision", "pytorch"],
        typer.Option("--format", "--to", help="Format to write."),
    ] = "tf-checkpoint",
    model: Model = "",
    layout: Annotated[
        Literal["a", "b", "zoo", "mindcv", "own"] | None,
        typer.Option(
            help="TensorFlow, grouped kernels: a, one variable each; b, one for each group. "
            "MindSpore: names of its model zoo, of MindCV, or our own.",
            show_default="b; MindSpore: of the network that computes the same",
        ),
    ] = None,
    ema: Annotated[
        bool, typer.Option("--ema", help="Export the run's averaged weights; in TensorFlow's format beside the others.")
    ] = False,
    force: Force = False,
) -> None:
    """Write weights as a TensorFlow V2 checkpoint, a MindSpore checkpoint, a PyTorch state dict or safetensors.

    `--to torchvision` uses torchvision's names, `--to pytorch` the network's own; both are .pth files.
    """
    from contextlib import ExitStack

    from viaduct.weights.exporting import export_mindspore, export_safetensors, export_tf_checkpoint, refuse_overwriting
    from viaduct.weights.stored import open_weights

    if (form == "safetensors") != (out.suffix == ".safetensors"):
        raise BadValue(f"--out {out} does not go with --format {form}.", ".safetensors is for --format safetensors.")
    if form == "mindspore" and out.suffix != ".ckpt":
        raise BadValue(f"--out {out} must end in .ckpt: MindSpore's load_checkpoint reads no other name.")
    if form in ("torchvision", "pytorch") and out.suffix not in (".pth", ".pt"):
        raise BadValue(f"--out {out} must end in .pth or .pt with --to {form}.")
    refuse_overwriting(out, force)
    with ExitStack() as opened:
        averages = opened.enter_context(open_weights(weights, ema=True)) if ema else None
        stored = opened.enter_context(open_weights(weights))
        refuse_framework_checkpoint(stored)
        if ema and stored.kind == "safetensors file":
            raise BadValue(f"{weights} holds one set of weights, no averages beside them.", "Leave out --ema.")
        print_notes(stored.warnings)
        if form == "safetensors":
            written = export_safetensors(averages or stored, out, model)
        elif form in ("torchvision", "pytorch"):
            from viaduct.weights.torch_import import export_torch_file

            written = export_torch_file(averages or stored, out, model=model, to=form)
        elif form == "mindspore":
            written = export_mindspore(averages or stored, out, model=model, layout=layout or "")
        else:
            written = export_tf_checkpoint(stored, out, model=model, layout=layout or "", averages=averages)
    if written.recognised:
        print_note(f"{weights} looks like {written.model}.")
    print_notes(f"Note: {note}." for note in written.notes)
    step = f", step {written.step:,}" if written.step is not None else ""
    print(f"{out}: {written.model}, {written.classes:,} classes, {written.tensor_count:,} tensors{step}")


def refuse_framework_checkpoint(stored: Any) -> None:
    """Raise BadValue for a TensorFlow or MindSpore checkpoint."""
    if stored.kind in ("TensorFlow checkpoint", "MindSpore checkpoint"):
        already = " already" if stored.kind.startswith("TensorFlow") else ""
        raise BadValue(
            f"{stored.path} is a {stored.kind}{already}.",
            "`viaduct weights import` makes it a safetensors file, which can be exported.",
        )


def build_summary(stored: Any, pattern: str) -> dict[str, Any]:
    """Return the JSON document of `weights show`, with the tensors whose names match a pattern."""
    from fnmatch import fnmatchcase

    selected = {name: info for name, info in stored.tensor_infos.items() if fnmatchcase(name, pattern)}
    if not selected:
        count, examples = len(stored.tensor_infos), ", ".join(list(stored.tensor_infos)[:3])
        more = f" and {count - 3:,} more" if count > 3 else ""
        raise BadValue(f"no name matches --filter {pattern!r}.", f"There are {count:,}: {examples}{more}.")
    likely = [] if stored.metadata.model else find_likely_models(stored)
    rows = [{"name": name, "shape": list(info.shape), "dtype": info.dtype} for name, info in selected.items()]
    return {
        "path": str(stored.path),
        "kind": stored.kind,
        "model": stored.metadata.model,
        "classes": stored.metadata.classes,
        "looks_like": [{"model": model, "classes": classes, "share": share} for model, classes, share in likely],
        "step": stored.metadata.step,
        "warnings": list(stored.warnings),
        "tensors": rows,
        "totals": {
            "tensors": len(rows),
            "values": sum(info.count for info in selected.values()),
            "bytes": sum(info.size for info in selected.values()),
        },
    }


def find_likely_models(stored: Any) -> list[tuple[str, int, float]]:
    """Return (model, classes, share of tensors that fit) of networks that the weights fit completely, or else nearly.

    A search for networks that nearly fit needs torch; a note is printed if it is missing.
    """
    try:
        return list(stored.find_likely_models())
    except ModuleNotFoundError as error:
        missing = explain_import_error(error)
        if missing is None:
            raise
        print_note(f"Note: the weights fit no network completely; to look for one that nearly fits, {missing}")
        return []


def print_summary(summary: dict[str, Any]) -> None:
    from rich.table import Table

    from viaduct.terminal import escape_controls, print_table

    table = Table("name", "shape", "type", box=None, pad_edge=False)
    for row in summary["tensors"]:
        table.add_row(escape_controls(row["name"]), "x".join(map(str, row["shape"])) or "scalar", row["dtype"])
    print_table(table)
    totals = summary["totals"]
    size = f"{totals['values']:,} values, {totals['bytes'] / 2**20:,.1f} MiB"
    step = "" if summary["step"] is None else f"; step {summary['step']:,}"
    print(f"{summary['path']}: {summary['kind']}, {totals['tensors']:,} tensors, {size}{step}")
    if summary["model"]:
        print(f"It is {summary['model']} with {summary['classes']} classes.")
    elif summary["looks_like"]:
        classes = {guess["classes"] for guess in summary["looks_like"]}
        models = " or ".join(guess["model"] for guess in summary["looks_like"])
        print(f"It looks like {models} with {' or '.join(map(str, sorted(classes)))} classes.")


def print_notes(lines: Iterable[str]) -> None:
    for line in lines:
        print_note(line)
