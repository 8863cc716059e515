"""Origins of weights and data: found by id and checksum, and called missing where they are."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from runs.sample_runs import describe_origin, make_run
from viaduct.runs.lineage import Node, render_tree, trace_lineage
from viaduct.runs.listing import list_runs, open_run


def describe_init(run: Path, **changes: Any) -> dict[str, Any]:
    file = run / "checkpoints" / "step-600" / "model.safetensors"
    init = {"source": str(run), "file": str(file), "kind": "run", "step": 600, "sha256": "ab" * 32, "bytes": 3}
    return init | {"run": str(run), "run_id": None} | changes


def make_child(folder: Path, init: dict[str, Any]) -> Path:
    return make_run(folder, provenance=describe_origin(init=init), **{"init.source": init["source"]})


def write_manifest(run: Path, checksum: str) -> None:
    folder = run / "checkpoints" / "step-600"
    folder.mkdir(parents=True)
    files = {"model.safetensors": {"size": 3, "sha256": checksum}}
    (folder / "manifest.json").write_text(json.dumps({"step": 600, "files": files}))


def trace(run: Path, root: Path) -> Node:
    return trace_lineage(open_run(run), list_runs([root]).runs)


def test_a_run_that_began_anew_has_only_data_above_it(tmp_path: Path) -> None:
    node = trace(make_run(tmp_path / "a"), tmp_path)
    assert [parent.kind for parent in node.parents] == ["data"]
    assert "fingerprint da7a (every pixel; all labels)" in node.parents[0].note


def test_missing_parents_are_reported_to_be_missing(tmp_path: Path) -> None:
    child = make_child(tmp_path / "child", describe_init(tmp_path / "gone", run_id="77"))
    weights = trace(child, tmp_path).parents[0]
    assert weights.parents[0].kind == "missing"
    assert "there is no run that can be read" in weights.parents[0].note


def test_another_run_at_the_same_path_is_not_taken_for_the_parent(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", provenance=describe_origin(id="new"))
    child = make_child(tmp_path / "child", describe_init(parent, run_id="old"))
    node = trace(child, tmp_path)
    assert "there is another run now" in render_tree(node)
    assert node.parents[0].parents[0].kind == "missing"


def test_a_run_that_was_renamed_is_found_by_its_id(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", provenance=describe_origin(id="77"))
    child = make_child(tmp_path / "child", describe_init(parent, run_id="77"))
    parent.rename(tmp_path / "renamed")
    found = trace(child, tmp_path).parents[0].parents[0]
    assert found.label == str(tmp_path / "renamed")
    assert f"found by its id; it was at {parent} then" in found.note


def test_a_run_without_id_is_found_by_the_checksum_of_its_weights(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", provenance=None)
    write_manifest(parent, "ab" * 32)
    child = make_child(tmp_path / "child", describe_init(parent))
    parent.rename(tmp_path / "renamed")
    found = trace(child, tmp_path).parents[0].parents[0]
    assert found.label == str(tmp_path / "renamed")
    assert "found by the checksum" in found.note


def test_final_weights_are_found_although_a_changed_checkpoint_had_their_checksum(tmp_path: Path) -> None:
    parent, init = make_parent(tmp_path / "parent")
    changed = make_run(tmp_path / "changed", provenance=describe_origin(id="88"))
    write_manifest(changed, init["sha256"])
    (changed / "checkpoints" / "step-600" / "model.safetensors").write_bytes(b"abd")
    child = make_child(tmp_path / "child", init | {"run": None, "run_id": None})
    found = trace(child, tmp_path).parents[0].parents[0]
    assert found.label == str(parent)
    assert "found by the checksum" in found.note


def test_a_run_whose_place_was_not_recorded_is_not_said_to_have_moved(tmp_path: Path) -> None:
    _, init = make_parent(tmp_path / "parent")
    child = make_child(tmp_path / "child", init | {"run": None})
    note = trace(child, tmp_path).parents[0].parents[0].note
    assert "found by its id" in note
    assert "None" not in note


def test_a_parent_that_is_known_by_path_alone_is_reported_to_be(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", provenance=None)
    child = make_run(tmp_path / "child", provenance=None, **{"init.source": str(parent)})
    text = render_tree(trace(child, tmp_path))
    assert "checksum not recorded" in text
    assert "found by its path alone" in text


def test_records_that_form_a_cycle_end(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a", provenance=describe_origin(id="1", init=describe_init(tmp_path / "b", run_id="2")))
    make_run(tmp_path / "b", provenance=describe_origin(id="2", init=describe_init(first, run_id="1")))
    assert "the records form a cycle" in render_tree(trace(first, tmp_path))


def test_the_build_of_the_records_is_the_parent_of_the_data(tmp_path: Path) -> None:
    origin = describe_origin()
    build = {"source": {"pictures": 1200, "classes": 3, "bytes": 99, "digest": "x"}, "options": {"seed": 5}}
    origin["sessions"][0]["data"] = {"fingerprint": "f", "basis": "names and sizes", "build": build}
    text = render_tree(trace(make_run(tmp_path / "a", provenance=origin, data="/data/photos"), tmp_path))
    assert "data /data/photos: fingerprint f (names and sizes)" in text
    assert "1,200 images, 3 classes, 99 bytes, seed 5" in text


def test_averaged_weights_are_named(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", provenance=describe_origin(id="7"))
    init = describe_init(parent, run_id="7", file=str(parent / "ema.safetensors"))
    assert "averaged weights" in render_tree(trace(make_child(tmp_path / "child", init), tmp_path))


def make_parent(folder: Path, weights: bytes = b"abc", **changes: Any) -> tuple[Path, dict[str, Any]]:
    """Write a run with final weights; return it and what a run that begins with them records."""
    parent = make_run(folder, provenance=describe_origin(id="77"), **changes)
    (parent / "model.safetensors").write_bytes(weights)
    digest = hashlib.sha256(weights).hexdigest()
    file = str(parent / "model.safetensors")
    return parent, describe_init(parent, run_id="77", file=file, sha256=digest, bytes=len(weights))


def test_an_altered_copy_is_not_named_where_an_intact_one_exists(tmp_path: Path) -> None:
    parent, init = make_parent(tmp_path / "parent")
    child = make_child(tmp_path / "child", init)
    for name in ("a_copy", "z_copy"):
        shutil.copytree(parent, tmp_path / name)
    for altered in (parent, tmp_path / "a_copy"):
        (altered / "model.safetensors").write_bytes(b"abd")
    found = trace(child, tmp_path).parents[0].parents[0]
    assert found.label == str(tmp_path / "z_copy")
    assert "changed" not in found.note


def test_weights_that_have_changed_since_are_reported_to_have(tmp_path: Path) -> None:
    parent, init = make_parent(tmp_path / "parent")
    child = make_child(tmp_path / "child", init)
    assert "changed since" not in render_tree(trace(child, tmp_path))
    (parent / "model.safetensors").write_bytes(b"abcx")
    assert "its weights have changed since" in render_tree(trace(child, tmp_path))


def test_a_run_without_steps_gave_no_weights(tmp_path: Path) -> None:
    parent, init = make_parent(tmp_path / "parent", done=0, finished=False)
    node = trace(make_child(tmp_path / "child", init), tmp_path)
    assert node.parents[0].parents[0].kind == "missing"
    assert "has no step" in render_tree(node)
    parent.rename(tmp_path / "moved")
    assert trace(tmp_path / "child", tmp_path).parents[0].parents[0].kind == "missing"


def test_another_run_with_the_same_weights_is_not_taken_for_the_parent(tmp_path: Path) -> None:
    parent, init = make_parent(tmp_path / "parent")
    child = make_child(tmp_path / "child", init)
    shutil.rmtree(parent)
    other = make_run(tmp_path / "other", provenance=describe_origin(id="88"))
    (other / "model.safetensors").write_bytes(b"abc")
    assert "another run with the same weights; that of id 77 was not found" in render_tree(trace(child, tmp_path))


def test_the_checkpoint_that_gave_the_weights_is_named(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", provenance=describe_origin(id="7"))
    text = render_tree(trace(make_child(tmp_path / "child", describe_init(parent, run_id="7")), tmp_path))
    assert "checkpoints/step-600/model.safetensors, after step 600" in text


def test_final_weights_are_not_taken_for_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", provenance=describe_origin(id="7"))
    text = render_tree(trace(make_child(tmp_path / "child", describe_init(parent, run_id="7")), tmp_path))
    assert "changed since" not in text
    assert "so that the checksum was not checked" in text


def test_altered_final_weights_beside_an_intact_checkpoint_are_mentioned(tmp_path: Path) -> None:
    parent, init = make_parent(tmp_path / "parent")
    checkpoint = parent / "checkpoints" / "step-600" / "model.safetensors"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"abc")
    child = make_child(tmp_path / "child", init | {"file": str(checkpoint)})
    assert "another checksum" not in render_tree(trace(child, tmp_path))
    shutil.copytree(parent, tmp_path / "z_copy")
    (parent / "model.safetensors").write_bytes(b"abcx")
    assert trace(child, tmp_path).parents[0].parents[0].label == str(tmp_path / "z_copy")
    shutil.rmtree(tmp_path / "z_copy")
    assert "its final weights have another checksum" in render_tree(trace(child, tmp_path))
