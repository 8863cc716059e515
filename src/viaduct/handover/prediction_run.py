"""A prediction: read files, write results to all outputs, and report skipped files on stderr.

    tally = Tally(found, quiet=False)
    with open_outputs(classifier, engine, as_json=True, csv=None, top=5) as outputs:
        write_predictions(classifier, engine, found, outputs, tally, top=5)
    tally.report()

A file is predicted, skipped because of an error, or passed over because it is in a folder and not an image.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from viaduct.atomic_files import remove_leftovers, replace_file
from viaduct.data.notices import MAX_PRINTED, print_notice
from viaduct.errors import BadData
from viaduct.handover.classifier import Classifier
from viaduct.handover.decoding import NOT_AN_IMAGE
from viaduct.handover.engine import Engine
from viaduct.handover.folding_effect import ComparedRun
from viaduct.handover.image_files import FoundFiles
from viaduct.handover.predicting import Reader, Result, Run, choose_batch, predict_files
from viaduct.handover.prediction_output import CsvOutput, JsonOutput, Output, TableOutput
from viaduct.terminal import escape_controls, show_progress

STDOUT = Path("-")


@contextlib.contextmanager
def open_outputs(
    classifier: Classifier, engine: Engine, as_json: bool, csv: Path | None, top: int
) -> Iterator[list[Output]]:
    """Open the outputs: JSON, CSV, or a table if neither is requested.

    A CSV file, unlike STDOUT, appears when the `with` block ends without an error.
    """
    columns = min(top, len(classifier.labels))
    outputs: list[Output] = []
    if as_json:
        outputs.append(JsonOutput(describe_weights(classifier, engine)))
    if csv == STDOUT:
        outputs.append(CsvOutput(sys.stdout, columns))
    elif csv is None and not as_json:
        outputs.append(TableOutput())
    if csv is None or csv == STDOUT:
        yield outputs
        return
    with replace_file(csv) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield [*outputs, CsvOutput(text, columns)]
        text.flush()
        text.detach()
    remove_leftovers(csv)


def describe_weights(classifier: Classifier, engine: Engine) -> dict[str, Any]:
    """Return the facts about weights and computation that begin a JSON document."""
    return {
        "weights": str(classifier.weights),
        "model": classifier.name,
        "recipe": classifier.recipe_name,
        "step": classifier.step,
        "averaged": classifier.averaged,
        "device": str(engine.device),
        "precision": engine.precision,
        "folded": engine.folded,
    }


def write_predictions(
    classifier: Classifier,
    engine: Engine,
    found: FoundFiles,
    outputs: Sequence[Output],
    tally: Tally,
    *,
    top: int,
    batch: int | None = None,
    reader: Reader | None = None,
    run: Run | None = None,
) -> None:
    """Write the results of all files, those of unreadable paths first; raise BadData if nothing was predicted.

    `batch`, `reader` and `run` have defaults: a size for the device, no thumbnails, and the engine alone.
    """
    unread = [Result(path, error=f"{reason}.") for path, reason in found.errors]
    reader = reader or Reader(classifier.prepare)
    batch = batch or choose_batch(engine.device)
    results = predict_files(classifier, run or engine.run, found.files, top=top, batch=batch, reader=reader)
    with show_progress("files", tally.quiet) as show, contextlib.closing(results):
        for batch_results in itertools.chain([unread], results):
            for output in outputs:
                output.write(batch_results)
            tally.count(batch_results)
            show(tally.done, tally.total)
    summary: dict[str, Any] = {"passed_over": tally.passed_over, "hidden": tally.hidden}
    if isinstance(run, ComparedRun) and run.effect is not None:
        summary["folding"] = run.effect.as_dict()
    for output in outputs:
        output.finish(summary)
    tally.require_any()


class Tally:
    """Counts results, and reports skipped and passed over files on stderr, the first ones by name."""

    def __init__(self, found: FoundFiles, quiet: bool) -> None:
        self.quiet = quiet  # no progress bar
        self.total = len(found.files) + len(found.errors)
        self.predicted = self.errors = self.passed_over = 0  # numbers of files
        self.hidden = found.hidden
        self.passed_over_files: list[str] = []  # the first ones
        self.unknown_format = False  # True if a file was skipped because of an unknown format

    @property
    def done(self) -> int:
        """Number of files that were predicted, skipped or passed over."""
        return self.predicted + self.errors + self.passed_over

    def count(self, results: Sequence[Result]) -> None:
        """Count the results of a batch; print the first errors."""
        for result in results:
            if result.predictions:
                self.predicted += 1
            elif result.error:
                self.errors += 1
                self.unknown_format |= NOT_AN_IMAGE in result.error
                if self.errors <= MAX_PRINTED:
                    print_notice(f"skipped {escape_controls(result.file)}: {result.error}")
            else:
                self.passed_over += 1
                if len(self.passed_over_files) < MAX_PRINTED:
                    self.passed_over_files.append(escape_controls(result.file))

    def require_any(self) -> None:
        """Raise BadData if no image was predicted."""
        if not self.predicted:
            self.report()
            hints = ["JPEG, PNG, GIF, BMP, WebP and TIFF are read."] if self.passed_over or self.unknown_format else []
            raise BadData(f"no image was predicted: of {format_count(self.total, 'file')} none could be used.", *hints)

    def report(self) -> None:
        """Print how many files were passed over and skipped, if any."""
        if self.passed_over:
            names = ", ".join(self.passed_over_files[:3]) + (" …" if self.passed_over > 3 else "")
            print_notice(f"passed over {format_count(self.passed_over, 'file')} in folders, no images: {names}")
        if self.hidden:
            print_notice(f"passed over {format_count(self.hidden, 'hidden name')}, beginning with a dot")
        if self.errors > MAX_PRINTED:
            more = self.errors - MAX_PRINTED
            print_notice(
                f"skipped {more:,} more, which are not named here; --json and --csv list all with their reasons"
            )
        if self.errors and self.predicted:
            print_notice(f"predicted {format_count(self.predicted, 'image')}, skipped {self.errors:,}")


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
