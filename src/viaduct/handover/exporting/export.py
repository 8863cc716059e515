"""Export: write the file under a temporary name, compare it with PyTorch unless --no-check is given, then rename it."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from viaduct.atomic_files import move_into_place, stage_folder
from viaduct.errors import ViaductError
from viaduct.extras import MissingExtra, is_installed
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.card import build_card, list_files, render_markdown
from viaduct.handover.exporting.checking import CheckResult, compare, find_images
from viaduct.handover.exporting.format import FileDescription, Format, load_format
from viaduct.handover.exporting.request import ExportRequest


class NoRuntime(ViaductError):
    """The runtime that checks an export is not installed."""


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    path: Path
    cards: tuple[Path, Path]  # paths of the model card: JSON and Markdown
    size: int  # bytes
    description: FileDescription
    check_result: CheckResult | None  # None: not checked


def export(classifier: Classifier, request: ExportRequest) -> Exported:
    """Write a classifier in another format, check it if requested, and write its card.

    If one of these fails, the paths of file and card are as they were before.
    """
    format_module = load_format(request.form)
    require_packages(format_module, request)
    images = find_images(classifier, request) if request.check else None
    _ = classifier.weights_sha256  # computed now, because a run in progress may remove the checkpoint
    with stage_folder(request.out) as folder:
        path = folder / request.out.name
        description = format_module.write(classifier, request, path)
        check_result = None
        if images is not None:
            check_result = compare(format_module.open_runner(path, classifier), classifier, request, images)
        card = build_card(classifier, request, description, check_result, path)
        staged = [folder / file.name for file in request.cards]
        staged[0].write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", "utf-8")
        staged[1].write_text(render_markdown(card), "utf-8")
        size = sum(file.stat().st_size for file in list_files(path))
        with ignore_interrupts():  # so that Ctrl-C does not leave a part of the files
            for source, target in ((path, request.out), *zip(staged, request.cards, strict=True)):
                move_into_place(source, target, folder)
    return Exported(request.out, request.cards, size, description, check_result)


def require_packages(format_module: Format, request: ExportRequest) -> None:
    """Raise MissingExtra or NoRuntime if a package for writing or checking the format is not installed."""
    for package in format_module.WRITER_PACKAGES:
        if not is_installed(package):
            raise MissingExtra(package)
    missing = [package for package in format_module.RUNNER_PACKAGES if not is_installed(package)]
    if missing and request.check:
        extra = MissingExtra(missing[0])
        raise NoRuntime(
            f"{missing[0]} is not installed, so the file could not be checked.",
            *extra.hints,
            "--no-check writes the file without running it, and its card says so.",
        )


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C within the `with` block."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
