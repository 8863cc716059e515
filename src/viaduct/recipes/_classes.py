"""Compare the number of classes that the data state with the number in the recipe or on the command line.

Data state their classes by the names of their class folders, or by a file with the names of their labels.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from viaduct.data.records import Records, StatedClasses
from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadValue
from viaduct.recipes import LoadedRecipe


def match_classes(loaded: LoadedRecipe, path: Path | None, flag_fields: Collection[str]) -> tuple[LoadedRecipe, str]:
    """Return the recipe with the number of classes of the data in the folder `path`, and a note or "" if unchanged.

    `flag_fields` are the fields that flags have set in the recipe. The number in the data replaces the number of a
    recipe of viaduct, and the default number in a recipe file. Raise BadValue if it differs from the number of a flag,
    or from a number that a recipe file sets.

    Ten classes with labels 1 to 10 need 11 outputs, one of them unused. If a flag gives ten classes and neither the
    recipe nor a flag sets data.label_shift, data.label_shift becomes -1, so that ten outputs are enough.
    """
    data = loaded.recipe.data
    if not isinstance(data, Records) or path is None or path == SYNTHETIC:
        return loaded, ""
    stated = data.find_stated_classes(path)
    if stated is None or stated.fits(data.classes):
        return loaded, ""
    classes_given = "data.classes" in flag_fields
    # The labels begin with 1, and nobody has decided where they begin in the network.
    can_shift = stated.first == 1 and data.label_shift == 0 and "data.label_shift" not in flag_fields
    if classes_given and can_shift and data.classes == stated.outputs - 1:
        note = f"{stated}: with {data.classes:,} outputs they are counted from 0 (data.label_shift=-1)."
        return replace(loaded, recipe=replace(loaded.recipe, data=replace(data, label_shift=-1))), note
    if classes_given or (loaded.file is not None and data.classes != Records.classes):
        raise build_disagreement(loaded, stated, classes_given, can_shift)
    note = f"{stated}: the network gets {stated.outputs:,} outputs instead of the recipe's {data.classes:,}."
    return replace(loaded, recipe=replace(loaded.recipe, data=replace(data, classes=stated.outputs))), note


def build_disagreement(loaded: LoadedRecipe, stated: StatedClasses, classes_given: bool, can_shift: bool) -> BadValue:
    """Return the error for a number of classes that the data contradict."""
    data = loaded.recipe.data
    setting = f"--classes {data.classes}" if classes_given else f"data.classes={data.classes} of {loaded.file}"
    advice = f"Leave it out, so that the data decide, or give --classes {stated.outputs}"
    if classes_given and loaded.file is not None:  # without the flag, the file's number could contradict the data, too
        advice = f"To fit the data, give --classes {stated.outputs}"
    if can_shift:
        advice += f"; --classes {stated.outputs - 1} makes the labels begin with 0"
    return BadValue(
        f"{setting} disagrees with the data: {stated}, which need {stated.outputs:,} outputs.", f"{advice}."
    )
