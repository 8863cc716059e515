"""Survey which uses other files make of the values that leave a file (flows.py).

A file that passes a loaded value to `pkg.resume` asks what that function does with its parameter. A file that returns
one from `load_weights` asks what the calls of `load_weights` do with it. Each file that can answer a question follows
the value in its own code, which may raise further questions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from viaduct.migration.flows import FileFlow, Question, Use
from viaduct.migration.names import Names
from viaduct.migration.project import Project
from viaduct.migration.source import group_by_name

CHECKPOINT_LOADS = ("torch.load", "torch.jit.load", "torch.serialization.load")
ROUNDS = 4
"""Number of files through which a value is followed: each round answers the questions that the round before raised."""


def record_uses(project: Project, files: dict[str, Names]) -> None:
    """Fill `project.uses_by_question` with answers to the questions that loads of checkpoints raise."""
    flows = [FileFlow(names, project) for path, names in files.items() if path in project.torch_files]
    for flow in flows:
        if "load" in flow.source.text:
            calls = flow.source.nodes_of_type(ast.Call)
            flow.find_uses(call for call in calls if flow.names.qualified(call.func) in CHECKPOINT_LOADS)
    raised: dict[Question, set[Question]] = {}  # question -> questions that its answers have raised
    for _ in range(ROUNDS):
        new = {question for flow in flows for question in flow.questions} - raised.keys()
        flows_by_name = group_flows(flows, {question.function for question in new})
        for question in sorted(new):
            raised[question] = set()
            for flow in flows_by_name.get(question.function, ()):
                raised[question] |= record_answer(project, flow, question)
    for _ in range(ROUNDS):  # an answer includes the answers to the questions that it has raised
        for question, further in raised.items():
            uses = set[Use]().union(*(project.uses_by_question.get(item, set()) for item in further))
            if uses:
                project.uses_by_question.setdefault(question, set()).update(uses)


def group_flows(flows: Iterable[FileFlow], names: set[str]) -> dict[str, list[FileFlow]]:
    """Return, by name, the flows of files that call or define a function, or read an attribute, of this name."""
    return group_by_name(
        (name, flow)
        for flow in (flows if names else ())
        for name in names
        & (flow.calls_by_name.keys() | flow.source.functions_by_name.keys() | flow.attribute_reads.keys())
    )


def record_answer(project: Project, flow: FileFlow, question: Question) -> set[Question]:
    """Record the answer of one file to a question; return the questions that it raises."""
    before, flow.questions = flow.questions, set()
    uses = find_uses(flow, question)
    if uses is not None:
        near_devices = {Use.NEAR_DEVICES} if flow.mentions_devices else set()
        project.uses_by_question.setdefault(question, set()).update(uses | near_devices)
    further, flow.questions = flow.questions, before | flow.questions
    return further


def find_uses(flow: FileFlow, question: Question) -> set[Use] | None:
    """Return the uses that a file makes of the value in a question; None if it does not get it or use it.

    A file that defines the function has followed the function's result to its own calls already.
    """
    functions = flow.source.functions_by_name.get(question.function, [])
    if question.subject == "parameter":
        definitions = [node for node in functions if flow.source.parents[node] is flow.source.tree]
        is_defined_here = question.module == flow.names.module and definitions
        uses = [flow.find_parameter_uses(node, question.parameter) for node in definitions] if is_defined_here else []
        return set[Use]().union(*uses) or None
    if flow.names.module == question.module or (not question.module and functions):
        return None
    readers: list[ast.expr]
    if question.subject == "property":
        readers = [*flow.attribute_reads.get(question.function, [])]
    else:
        readers = [call for call in flow.calls_by_name.get(question.function, []) if is_call_of(flow, call, question)]
    return flow.find_uses(readers) if readers else None


def is_call_of(flow: FileFlow, call: ast.Call, question: Question) -> bool:
    """Return True for a call of the question's function; of a method, for `x.name(…)` where x is no known module."""
    if question.module:
        return flow.names.qualified(call.func) == f"{question.module}.{question.function}"
    return isinstance(call.func, ast.Attribute) and flow.names.qualified(call.func.value) is None
