"""Number of classes: that of the data against that of the recipe or the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from viaduct.data.records import Records, StatedClasses
from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadValue
from viaduct.recipes import Loaded


def match_classes(loaded: Loaded, path: Path | None, given: bool, *, shift_given: bool = False) -> tuple[Loaded, str]:
    """Return the recipe with as many classes as its data have, and a note where that changed it.

    Data that name their classes decide over a shipped recipe. A number that a person gave (`given`: a flag; or a
    recipe file of their own) is never changed: where it disagrees, it is refused. Ten classes with labels 1 to 10 have
    11 outputs, one of them unused; a person who asks for ten gets ten, and labels that begin with 0, unless they said
    how labels are counted (`shift_given`).
    """
    data = loaded.recipe.data
    if not isinstance(data, Records) or path is None or path == SYNTHETIC:
        return loaded, ""
    stated = data.stated_classes(path)
    if stated is None or stated.fits(data.classes):
        return loaded, ""
    countable = stated.first == 1 and data.label_shift == 0 and not shift_given
    if given and countable and data.classes == stated.outputs - 1:
        note = f"{stated}: with {data.classes:,} outputs they are counted from 0 (data.label_shift=-1)."
        return replace(loaded, recipe=replace(loaded.recipe, data=replace(data, label_shift=-1))), note
    if given or (loaded.file is not None and data.classes != Records.classes):
        raise disagreement(loaded, stated, given)
    note = f"{stated}: the network gets {stated.outputs:,} outputs instead of the recipe's {data.classes:,}."
    return replace(loaded, recipe=replace(loaded.recipe, data=replace(data, classes=stated.outputs))), note


def disagreement(loaded: Loaded, stated: StatedClasses, given: bool) -> BadValue:
    """Return the error for a number of classes that the data contradict."""
    data = loaded.recipe.data
    who = f"--classes {data.classes}" if given else f"data.classes={data.classes} of {loaded.file}"
    advice = f"Leave it out and the data decide, or give --classes {stated.outputs}"
    if stated.first == 1 and not getattr(data, "label_shift", 0):
        advice += f"; --classes {stated.outputs - 1} makes the labels begin with 0"
    return BadValue(f"{who} disagrees with the data: {stated}, which need {stated.outputs:,} outputs.", f"{advice}.")
