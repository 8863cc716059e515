"""Exports a classifier to a file, checked with nine images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.export import Exported, export
from viaduct.handover.exporting.request import ExportRequest, FormatName, Input


def export_file(
    classifier: Classifier, out: Path, form: FormatName = "pt2", takes: Input = "pixels", **more: Any
) -> Exported:
    return export(classifier, ExportRequest(form=form, out=out, input=takes, check_count=9, **more))


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
