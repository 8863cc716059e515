"""The model card beside an exported file: FILE.json for programs, FILE.md for people."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from viaduct import __version__
from viaduct.data.preprocess import find_preprocessing
from viaduct.data.records import Records
from viaduct.data.source import Images
from viaduct.data.views import crop_central_four_fifths, crop_central_seven_eighths, resize_shorter_side_then_crop
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.checking import CheckResult
from viaduct.handover.exporting.format import FileDescription
from viaduct.handover.exporting.request import ExportRequest
from viaduct.json_records import finite_or_null

CROPS: dict[Any, str] = {
    resize_shorter_side_then_crop: "resize bilinearly (pixel i from position i * old / new) so that the shorter side "
    "has {resized} pixels (products of float32, truncated), take the {size}x{size} pixels in the middle",
    crop_central_four_fifths: "take the middle 80 % of height and width and sample {size}x{size} points of it "
    "bilinearly, both ends included (tf.image.crop_and_resize)",
    crop_central_seven_eighths: "cut the middle 87.5 % of height and width and resize it bilinearly to {size}x{size} "
    "(pixel i from position i * old / new)",
}


def build_card(
    classifier: Classifier, request: ExportRequest, description: FileDescription, check: CheckResult | None, path: Path
) -> Any:
    """Return the model card of an exported file as JSON data; `path` is the file's temporary path."""
    card = {
        "file": request.out.name,
        "format": request.form,
        "sha256": hash_file(path),
        "bytes": sum(file.stat().st_size for file in list_files(path)),
        "license": request.license or "not stated",
        "network": classifier.name,
        "recipe": classifier.recipe_name,
        "step": classifier.step,
        "averaged_weights": classifier.averaged,
        "weights_sha256": classifier.weights_sha256,
        "accuracy": classifier.accuracy or "not recorded",
        "inputs": [asdict(info) for info in description.inputs],
        "outputs": [asdict(info) for info in description.outputs],
        "preprocessing": describe_preprocessing(classifier, request),
        "precision": request.precision,
        "batch_norms_folded": request.fold,
        "check": describe_check(check),
        "versions": {"viaduct": __version__, "torch": str(torch.__version__)},
        **description.facts,
        "labels": list(classifier.labels),
    }
    return finite_or_null(card)


def describe_check(check: CheckResult | None) -> Any:
    """Return the comparison with PyTorch, or the text `not checked`."""
    if check is None:
        return "not checked"
    absolute, relative = check.tolerance
    return {
        "runtime": check.runtime,
        "images": check.images,
        "origin": check.origin,
        "largest_difference_of_probabilities": check.largest_difference,
        "largest_difference_of_logarithms": check.largest_log_difference,
        "equal_top1": check.same_top1,
        "ties": check.ties,
        "tolerance": {"absolute": absolute, "relative": relative},
        "outputs_differ_between_images": check.images_differ,
    }


def describe_preprocessing(classifier: Classifier, request: ExportRequest) -> dict[str, Any]:
    """Describe the evaluation preprocessing in words and numbers, and state whether the graph contains it."""
    source, size = classifier.recipe.data, classifier.size
    inside = request.form != "safetensors" and request.input != "tensor"
    facts: dict[str, Any] = {"inside_the_graph": inside, "size": size, "channels": "RGB"}
    if isinstance(source, Records):
        reference = find_preprocessing(source.preprocess)
        if views := reference.pillow_views:
            resized, method = int(size / views.crop_share + 1e-6), f"Pillow's {views.interpolation} filter"
            crop = f"resize the shorter side to {resized} pixels with {method}, take the {size}x{size} in the middle"
        else:
            crop = CROPS[reference.evaluation].format(size=size, resized=size * 8 // 7)
        words = f"Decode to 0..255; {crop}; then (value - mean) * scale."
        if source.decode == "fast":
            words += " The recipe decodes large JPEGs at a fraction of their size (decode=fast); the graph does not."
        return {**facts, "name": source.preprocess, "words": words, "mean": reference.mean, "scale": reference.scale}
    assert isinstance(source, Images)
    height, width = classifier.fixed_image_shape or (size, size)
    facts |= {"name": source.name, "image_height": height, "image_width": width}
    resize = "" if (height, width) == (size, size) else f", then resize bilinearly to {size}x{size}"
    if source.normalise == "per_image":
        words = "subtract its mean and divide by max(its standard deviation, 1 / sqrt(its number of values))"
        return {**facts, "words": f"An image of {width}x{height} pixels, 0..255: {words}{resize}."}
    mean, scale = source.get_normalisation()
    words = f"An image of {width}x{height} pixels, 0..255: (value - mean) * scale{resize}."
    return {**facts, "words": words, "mean": list(mean), "scale": list(scale)}


def render_markdown(card: Any) -> str:
    """Return the card as Markdown."""
    checksums = [f"{name}, SHA-256 `{checksum}`" for name, checksum in card["weights_sha256"].items()]
    rows = {
        "network": card["network"],
        "recipe": card["recipe"],
        "step": "not known" if card["step"] is None else f"{card['step']:,}",
        "format": f"{card['format']}, {card['precision']}" + ", batch norms folded" * card["batch_norms_folded"],
        "accuracy": describe_accuracy(card["accuracy"]),
        "licence": card["license"],
        "check": describe_check_in_words(card["check"]),
        "SHA-256 of the file": f"`{card['sha256']}`",
        "weights that were exported": ", ".join(checksums),
        "made with": ", ".join(f"{name} {version}" for name, version in card["versions"].items()),
    }
    lines = [f"# {card['file']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {escape_cell(str(value))} |" for name, value in rows.items()]
    for title in ("inputs", "outputs"):
        if card[title]:
            lines += ["", f"## {title.capitalize()}", "", "| name | shape | type |", "|---|---|---|"]
            lines += [f"| `{p['name']}` | {' x '.join(map(str, p['shape']))} | {p['dtype']} |" for p in card[title]]
    steps = card["preprocessing"]
    location = "Inside the graph." if steps["inside_the_graph"] else "Not inside: the caller prepares the input."
    lines += ["", "## Preprocessing", "", f"{location} {steps['words']}", ""]
    lines += [f"- {name}: {', '.join(f'{x:.9g}' for x in steps[name])}" for name in ("mean", "scale") if name in steps]
    lines += ["", "## Labels", ""]
    lines += [f"{index}. {escape_cell(label)}" for index, label in enumerate(card["labels"])]
    return "\n".join(lines) + "\n"


def describe_accuracy(accuracy: Any) -> str:
    if not isinstance(accuracy, dict) or "top1" not in accuracy:
        return "not recorded"
    top5 = f", top-5 {100 * accuracy['top5']:.2f} %" if accuracy.get("top5") is not None else ""
    count = f" on {accuracy['count']:,} validation images" if accuracy.get("count") else ""
    return f"top-1 {100 * accuracy['top1']:.2f} %{top5}{count}, as training recorded it"


def describe_check_in_words(check: Any) -> str:
    """Return the result of `describe_check` as text."""
    if not isinstance(check, dict):
        return "not checked"
    weak = (
        "" if check["outputs_differ_between_images"] else " (all images have nearly the same outputs: it shows little)"
    )
    return (
        f"run in {check['runtime']} on {check['images']} images ({check['origin']}): probabilities differ from "
        f"PyTorch's by at most {check['largest_difference_of_probabilities']:.2g}, top-1 equal on "
        f"{check['equal_top1']}{weak}"
    )


def escape_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def list_files(path: Path) -> list[Path]:
    """Return the files of an export: a single file, or those of a SavedModel's folder."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file or, for a folder, of sha256sum's output for its files: lines `HASH  NAME`."""
    if not path.is_dir():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    lines = [f"{hash_file(file)}  {file.relative_to(path)}\n" for file in list_files(path)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
