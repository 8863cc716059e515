"""viaduct data"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.errors import BadValue
from viaduct.terminal import show_progress
from viaduct.verbs._grouped_help import AsJson, Subcommands

app = Subcommands("Build, fetch, index, check, show and measure training data.")
Records = Annotated[Path, typer.Argument(help="A folder of train-?????-of-????? and validation-… files.")]
# Listed here because importing viaduct.data needs numpy, and --help does not.
REFERENCES = sorted(path.stem for path in Path(__file__).parents[1].glob("data/references/[a-z]*.py"))
if TYPE_CHECKING:
    Reference = str
else:
    Reference = Literal[tuple(REFERENCES)]


@app.command()
def build(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A folder with a folder for each class, a CSV of path,label, or MindRecord files.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("records"),
    idx: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Instead of a source: files in MNIST's format.", metavar="IMAGES LABELS", show_default=False),
    ] = None,
    idx_validation: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="With --idx: files for validation.", metavar="IMAGES LABELS", show_default=False),
    ] = None,
    validation_share: Annotated[
        float,
        typer.Option(help="Share of each class that becomes validation images, if the source has none; 0: no split."),
    ] = 0.1,
    shards: Annotated[
        int | None, typer.Option(help="Number of training files.", show_default="files of about 128 MiB")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the shuffle and of the split.")] = 0,
    first_label: Annotated[int, typer.Option(help="Label of the first class: 1 as in ImageNet's records, or 0.")] = 1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a truncated JPEG instead of warning about it.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Skip files whose names match, such as '*.txt'; may be repeated.", metavar="GLOB"),
    ] = None,
) -> None:
    """Build sharded TFRecords and labels.txt. An interrupted build is resumed; the result has the same bytes."""
    from viaduct.data.build import build_records

    origin = choose_origin(source, idx, idx_validation, ignore or [])
    with show_progress("images") as on_progress, name_flags_in_errors(), explain_interrupt(out):
        built = build_records(
            origin,
            out,
            seed=seed,
            validation_share=validation_share,
            first_label=first_label,
            train_shards=shards,
            strict=strict,
            on_progress=on_progress,
        )
    kept = f", {built.kept} were there already" if built.kept else ""
    images = f"{built.train:,} training and {built.validation:,} validation images of {len(built.labels)} classes"
    print(f"{out}: {images}, {built.written} files written{kept}")
    print_warnings(built)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="cifar10 or fashion-mnist.")],
    out: Annotated[Path, typer.Option(help="Folder for the dataset.")] = Path("data"),
    source: Annotated[
        str | None, typer.Option("--from", help="Another URL, or a local file or folder.", show_default=False)
    ] = None,
) -> None:
    """Download a public dataset and verify its checksums. An interrupted download is resumed."""
    from viaduct.data.fetch import fetch as fetch_dataset

    with show_progress("bytes") as on_progress:
        print(fetch_dataset(name, out, source=source, on_progress=lambda done, total: on_progress(done, total or done)))


@app.command()
def index(
    records: Records,
    dali: Annotated[
        bool, typer.Option("--dali", help='Also write DALI\'s index files: "offset size" on each line.')
    ] = False,
    dali_folder: Annotated[
        Path | None,
        typer.Option(help="Write DALI's index files to this folder, not beside the records.", show_default=False),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild an index that is up to date.")] = False,
) -> None:
    """Index each file for random access. Training does this itself on first use."""
    from viaduct.data.index import index_records

    with show_progress("files") as on_progress:
        files = index_records(records, dali=dali, dali_folder=dali_folder, rebuild=rebuild, on_progress=on_progress)
    new = sum(file.is_new for file in files)
    count, size = sum(file.records for file in files), sum(file.bytes for file in files)
    print(f"{len(files)} files, {count:,} records, {size / 2**20:,.1f} MiB; {new} indexed now")


@app.command()
def check(
    records: Records,
    deep: Annotated[bool, typer.Option("--deep", help="Also decode every image.")] = False,
    classes: Annotated[
        int | None,
        typer.Option(help="Number of classes, with or without the unused output 0.", show_default=False, min=1),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report errors, such as corrupt, undecodable and mislabelled records, and warnings, such as duplicates.

    Of each image only the first bytes are checked, unless --deep is given. Exit code 0: no errors. 1: errors.
    """
    from viaduct.data.check import check_records
    from viaduct.data.jpeg import decode

    with show_progress("bytes") as on_progress:
        report = check_records(records, deep, decode=decode, classes=classes, on_progress=on_progress)
    if as_json:
        print(json.dumps(build_check_rows(report), indent=1))
    else:
        show_check(report, deep)
    raise typer.Exit(1 if report.errors else 0)


@app.command()
def show(
    records: Annotated[Path, typer.Argument(help="A folder of records, MindRecords or class folders, or a CSV.")],
    out: Annotated[Path, typer.Option(help="PNG file to write; replaces only another PNG.")] = Path("sheet.png"),
    preprocess: Annotated[Reference, typer.Option(help="Reference whose preprocessing is shown.")] = "official",
    count: Annotated[int, typer.Option(help="Number of images.", min=1)] = 8,
    split: Annotated[Literal["train", "validation"], typer.Option(help="Split to draw the images from.")] = "train",
    seed: Annotated[int, typer.Option(help="Seed of the choice of images and of the crops.")] = 0,
    auto_augment: Annotated[
        str,
        typer.Option(help="imagenet, cifar10, randaugment or randaugment-N-M.", show_default="none", metavar="POLICY"),
    ] = "",
) -> None:
    """Draw a contact sheet: each image, its evaluation crop, and examples of training crops."""
    from viaduct.data.sheet import write_contact_sheet

    lines = write_contact_sheet(records, out, preprocess, count, split, seed, auto_augment)
    for number, line in enumerate(lines, start=1):
        print(f"row {number}: {line}")
    print(out)


@app.command()
def bench(
    records: Records,
    preprocess: Annotated[Reference, typer.Option(help="Reference whose preprocessing is measured.")] = "official",
    peer: Annotated[str, typer.Option(help="Compare with some of tf.data,dali,pil, if installed.")] = "",
    batch: Annotated[int, typer.Option(help="Batch size.", min=1)] = 256,
    workers: Annotated[int, typer.Option(help="Threads; 0: one for each core.", min=0)] = 0,
    seconds: Annotated[float, typer.Option(help="Duration of each window.", min=0.1)] = 4.0,
    turns: Annotated[int, typer.Option(help="Windows of each pipeline; pipelines alternate.", min=1)] = 3,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Also write the figures to this .json.", show_default=False)] = None,
) -> None:
    """Measure images/s of the training input in exact and fast mode, and of its peers, on the same files in one run."""
    from viaduct.benching.input_pipeline import check_figures_path, measure, write_figures

    if out is not None:
        check_figures_path(out)
    result = measure(records, preprocess, [name for name in peer.split(",") if name], batch, workers, seconds, turns)
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        show_bench(result)
    if out is not None:
        write_figures(out, result)  # after printing, in case that writing fails


def choose_origin(
    source: Path | None, idx: tuple[Path, Path] | None, idx_validation: tuple[Path, Path] | None, ignore: list[str]
) -> Any:
    """Return the source to build from; raise BadValue unless exactly one is given."""
    from viaduct.data.mindrecord_folder import has_mindrecords, open_mindrecord_origin
    from viaduct.data.origins import find_origin, open_idx_files

    if source and idx:
        raise BadValue(f"what shall be built? Both {source} and --idx {idx[0]} {idx[1]} were given.", "Give one.")
    if idx_validation and not idx:
        raise BadValue("--idx-validation was given without --idx.", "Give the training pair too: --idx IMAGES LABELS.")
    if idx:
        if ignore:
            raise BadValue("--ignore is for class folders, and --idx was given.")
        return open_idx_files(*idx, validation=idx_validation)
    if source is None:
        raise BadValue("what shall be built?", "Give a folder of class folders, a .csv, or --idx IMAGES LABELS.")
    if not ignore and has_mindrecords(source):  # --ignore is for folders of images
        return open_mindrecord_origin(source)
    return find_origin(source, ignore)


@contextlib.contextmanager
def explain_interrupt(out: Path) -> Iterator[None]:
    """Print on Ctrl-C that the build can be resumed."""
    from viaduct.data.notices import print_notice

    try:
        yield
    except KeyboardInterrupt:
        print_notice(f"stopped: the files in {out} are complete; the same command resumes the build.")
        raise


# Parameter of build_records -> its flag.
BUILD_FLAGS = {"validation_share": "--validation-share", "first_label": "--first-label", "train_shards": "--shards"}


@contextlib.contextmanager
def name_flags_in_errors() -> Iterator[None]:
    """Replace the names of build_records' parameters by those of their flags in the messages of BadValue."""
    try:
        yield
    except BadValue as error:
        lines = [error.message, *error.hints]
        for parameter, flag in BUILD_FLAGS.items():
            lines = [line.replace(parameter, flag) for line in lines]
        raise BadValue(*lines) from None


def print_warnings(built: Any) -> None:
    from viaduct.data.notices import print_first_notices, print_notice

    effect = "the JPEG is cut short, and training stops at it, unless --on-bad-record is skip"
    warnings = [f"warning: {name}: {effect}" for name in built.truncated]
    print_first_notices(warnings, "more are cut short; `viaduct data check --deep` names all that cannot be decoded")
    if not built.validation:
        print_notice("warning: there are no validation images; training needs some to evaluate with.")


def build_check_rows(report: Any) -> dict[str, Any]:
    """Return the report of a check as a JSON object."""
    names = ("records", "bytes", "corrupt", "undecodable", "mislabelled")
    shards = [{"file": shard.path.name, **{name: getattr(shard, name) for name in names}} for shard in report.shards]
    findings = [vars(finding) for finding in report.findings]
    return {"ok": not report.errors, "findings": findings, "shards": shards}


def show_check(report: Any, deep: bool) -> None:
    from rich.table import Table

    from viaduct.terminal import make_number_columns, print_table

    figures = make_number_columns("files", "records", "MiB", "classes", "corrupt", "undecodable", "mislabelled")
    table = Table("split", *figures, box=None)
    for split in dict.fromkeys(shard.split for shard in report.shards):
        shards = [shard for shard in report.shards if shard.split == split]
        sums = [sum(getattr(shard, name) for shard in shards) for name in ("corrupt", "undecodable", "mislabelled")]
        size = sum(shard.bytes for shard in shards) / 2**20
        row = [
            len(shards),
            sum(shard.records for shard in shards),
            f"{size:,.1f}",
            len(report.count_labels(split)),
            *sums,
        ]
        table.add_row(split, *map(str, row))
    print_table(table)
    for finding in report.findings:
        print(f"{finding.severity}: {finding.where}: {finding.message}")
    if not report.findings:
        print("nothing wrong was found" + ("" if deep else "; images were not decoded (--deep decodes them)"))


def show_bench(result: dict[str, Any]) -> None:
    """Print the images/s of each pipeline, and the pipelines that could not be measured."""
    from rich.table import Table

    from viaduct.terminal import make_number_columns, print_table

    table = Table("pipeline", *make_number_columns("images/s", "turns", "memory MiB", "ratio to tf.data"), box=None)
    for row in result["rows"]:
        turns = " ".join(f"{rate:,.0f}" for rate in row["turns_images_per_s"])
        ratio = "" if row["ratio_to_tf_data"] is None else f"{row['ratio_to_tf_data']:.2f}"
        table.add_row(row["pipeline"], f"{row['images_per_s']:,.0f}", turns, f"{row['memory_mib']:,.0f}", ratio)
    print_table(table)
    print(f"decoded: {result['decoder']}")
    stages = ", ".join(f"{name} {ms:.2f}" for name, ms in result["stages_ms"].items())
    print(f"ms per image in one thread: {stages}")
    for name, reason in result["left_out"].items():
        print(f"left out: {name}: {reason}")
