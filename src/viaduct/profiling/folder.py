"""A profile folder: profile.json with the complete profile, and tables and a trace for other tools.

    write_profile(profile, Path("prof"), events)
    profile = read_profile(Path("prof"))
    profile = merge_ranks([Path("prof/rank_0"), Path("prof/rank_1")])

profile.json       the profile
step_trace.csv     msprof's columns in msprof's order, then rank, wait for the loader, and interruptions as a note
operators.csv      a row for each operator and signature, the most expensive first
kernels.csv        a row for each kernel
system.csv         a row for each sample, a column for each figure
trace.json         the trace; trace.json.gz if it would be over 20 MB

In the tables missing values are N/A, as in msprof. Every file is written atomically, profile.json last.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from viaduct.atomic_files import write_file
from viaduct.errors import BadData
from viaduct.json_records import Damaged, decode_record, encode_record, load_object, require_fields, require_type
from viaduct.typed_fields import show_value

from .events import RawEvent
from .merge import find_offsets, merge_profiles
from .record import SCHEMA, Kernel, Operator, Profile
from .trace import read_events, write_trace

PROFILE_FILE = "profile.json"
MAX_PROFILE_BYTES = 1 << 30
MISSING = "N/A"
STEP_COLUMNS = (
    "Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)",
    "FP to BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)", "Model ID",
)  # fmt: skip
REDUCE_COLUMNS = ("Reduce Start(us)", "Reduce Duration(us)")
VIADUCT_COLUMNS = ("Rank", "Loader Wait(us)", "Note")
Row = list[Any]


def write_profile(profile: Profile, folder: Path, events: Sequence[RawEvent] = ()) -> list[Path]:
    """Write all files of a profile except the report, and return their paths.

    `events` are the recorded events for the trace, on the profile's clock.
    """
    encode_profile(profile)  # a value that JSON cannot hold raises before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    trace, note = write_trace(profile, folder, events)
    if note:
        profile = replace(profile, facts=replace(profile.facts, notes=(*profile.facts.notes, note)))
    for name, build_table in TABLE_FILES.items():
        write_file(folder / name, encode_csv(*build_table(profile)), durable=False)
    write_file(folder / PROFILE_FILE, encode_profile(profile))
    return [folder / PROFILE_FILE, *(folder / name for name in TABLE_FILES), trace]


def encode_profile(profile: Profile) -> bytes:
    record = {"schema": SCHEMA, **encode_record(profile)}
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()


def is_profile_folder(folder: Path) -> bool:
    """Return True for a folder with profile.json, which may be damaged."""
    return (folder / PROFILE_FILE).is_file()


def read_profile(folder: Path) -> Profile:
    """Return the profile in a folder of `write_profile`; raise BadData, naming the field, if it is damaged."""
    path = folder / PROFILE_FILE
    try:
        record = load_object(path, MAX_PROFILE_BYTES)
        require_fields(record, {"schema": int})
        if record["schema"] != SCHEMA:
            raise Damaged(f"schema is {show_value(record['schema'])}; this version of viaduct reads schema {SCHEMA}")
        profile: Profile = decode_record(Profile, record)
        check_tables(profile)
    except (FileNotFoundError, NotADirectoryError):
        raise BadData(
            f"{str(folder)!r} is not a profile of viaduct: it has no {PROFILE_FILE}.",
            "`viaduct profile run` writes one; `viaduct profile read` reads other tools' files.",
        ) from None
    except Damaged as error:
        raise BadData(f"{path} is damaged: {error}.", "Profile once more, or copy the folder again.") from None
    return profile


def check_tables(profile: Profile) -> None:
    """Raise Damaged for a table without columns and rows, or with a row of another length."""
    for name, table in profile.tables.items():
        require_type(table, dict, f"tables.{name}")
        require_fields(table, {"columns": list, "rows": list}, f"tables.{name}.")
        for number, row in enumerate(table["rows"]):
            require_type(row, list, f"tables.{name}.rows[{number}]")
            if len(row) != len(table["columns"]):
                raise Damaged(f"tables.{name}.rows[{number}] has {len(row)} of {len(table['columns'])} values")


def merge_ranks(folders: Sequence[Path]) -> Profile:
    """Return the merged profile of several ranks' folders, on one clock."""
    if not folders:
        raise BadData("there are no profiles of ranks to merge.")
    return merge_profiles([read_profile(folder) for folder in folders], [str(folder) for folder in folders])


def merge_events(folders: Sequence[Path]) -> list[RawEvent]:
    """Return the recorded events of several ranks on the clock of `merge_ranks`.

    Ids of processes and flows get the position of their folder as a prefix, so that two ranks have different ones.
    """
    offsets = find_offsets([read_profile(folder) for folder in folders])
    merged = []
    for number, (folder, offset) in enumerate(zip(folders, offsets, strict=True)):
        for event in read_events(folder):
            moved = {"ts": event["ts"] + offset} if "ts" in event else {}
            flow = {"id": f"{number}.{event['id']}"} if "id" in event else {}
            merged.append(event | moved | flow | {"pid": f"{number}.{event['pid']}"})
    return merged


# CSV tables


def make_step_table(profile: Profile) -> tuple[list[str], list[Row]]:
    """Return the columns and rows of step_trace.csv; Device_id is the rank, which has one device."""
    most = max((len(step.collectives) for step in profile.steps), default=0)
    columns = [*STEP_COLUMNS, *REDUCE_COLUMNS * most, *VIADUCT_COLUMNS]
    rows = []
    for step in profile.steps:
        points = [step.forward_start_us, step.backward_end_us, step.end_us]
        spans = [step.iteration_us, step.forward_backward_us, step.update_tail_us, step.data_tail_us]
        reduces = [time for collective in step.collectives for time in (collective.start_us, collective.duration_us)]
        padding = [None] * (2 * most - len(reduces))  # columns of collectives that this step does not have
        added = [step.rank, step.loader_wait_us, step.interrupted_by]
        model_id = None  # only msprof has one
        rows.append([step.rank, step.number, *points, *spans, model_id, *reduces, *padding, *added])
    return columns, rows


def make_record_table(
    record_class: Any, records: Sequence[Any], time: Callable[[Any], float]
) -> tuple[list[str], list[Row]]:
    """Return a column for each field of a dataclass, and a row for each of the records, the longest time first."""
    columns = [field.name for field in dataclasses.fields(record_class)]
    ordered = sorted(records, key=time, reverse=True)
    return columns, [[getattr(record, name) for name in columns] for record in ordered]


def make_system_table(profile: Profile) -> tuple[list[str], list[Row]]:
    names = list(dict.fromkeys(name for sample in profile.samples for name in sample.values))
    rows = [[sample.time_us, *(sample.values.get(name) for name in names)] for sample in profile.samples]
    return ["time_us", *names], rows


def encode_csv(columns: Sequence[str], rows: Iterable[Row]) -> bytes:
    """Return a table as CSV; None becomes N/A."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([format_cell(value) for value in row] for row in rows)
    return text.getvalue().encode(errors="backslashreplace")


def format_cell(value: Any) -> Any:
    if value is None:
        return MISSING
    return f"{value:.3f}" if isinstance(value, float) else value


# CSV files, and the functions that make their columns and rows.
TABLE_FILES: dict[str, Callable[[Profile], tuple[list[str], list[Row]]]] = {
    "step_trace.csv": make_step_table,
    "operators.csv": lambda profile: make_record_table(Operator, profile.operators, lambda row: row.device_or_self_us),
    "kernels.csv": lambda profile: make_record_table(Kernel, profile.kernels, lambda row: row.time_us),
    "system.csv": make_system_table,
}
