"""Project functions that a call may reach, and the values it passes to their parameters."""

from __future__ import annotations

import ast

from viaduct.migration.project import survey
from viaduct.migration.project_calls import ProjectCalls, function_name

TEXT = """
import tensorflow as tf
class Base:
    def __init__(self, comm, n=1):
        pass
    def build(self, comm, *, size=2):
        pass
    @staticmethod
    def check(comm):
        pass
class A(Base):
    def __init__(self):
        Base.__init__(self, 10, 11)
        super().__init__(10)
        self.build(10, size=12)
class Other:
    def build(self, x):
        pass
def twice(x): pass
def twice(y): pass
def run(a, b=3):
    def inner(c): pass
run(10, *rest)
run(b=12, **rest)
twice(1)
x.build(10)
Base.check(10)
"""


def test_calls_go_to_the_functions_that_they_may_mean_and_pass_values_by_parameter() -> None:
    project = survey([("m.py", TEXT.encode())])
    names = project.parsed["m.py"]
    calls = ProjectCalls(project, project.parsed)
    found = {}
    for call in names.source.nodes_of_type(ast.Call):
        callees = calls.find_callees(names, call)
        passed = [calls.find_passed_values(names, call, function) for function in callees]
        values = [{name: ast.unparse(value) if value else None for name, value in item.items()} for item in passed]
        found[ast.unparse(call)] = dict(zip(callees, values, strict=True))
    assert found == {
        "Base.__init__(self, 10, 11)": {"m.Base.__init__": {"comm": "10", "n": "11"}},
        "super().__init__(10)": {"m.Base.__init__": {"comm": "10"}},
        "super()": {},
        "self.build(10, size=12)": {"m.Base.build": {"comm": "10", "size": "12"}},
        "run(10, *rest)": {"m.run": {"a": "10", "b": None}},
        "run(b=12, **rest)": {"m.run": {"a": None, "b": "12"}},
        "twice(1)": {},
        "x.build(10)": {"m.Base.build": {"comm": "10"}, "m.Other.build": {"x": "10"}},
        "Base.check(10)": {"m.Base.check": {"comm": "10"}},
    }
    assert calls.find_family("m.A") == {"m.A", "m.Base"}
    assert {name: ast.unparse(value) for name, value in calls.find_defaults("m.Base.build").items()} == {"size": "2"}


def test_functions_within_functions_have_no_qualified_name() -> None:
    names = survey([("m.py", TEXT.encode())]).parsed["m.py"]
    found = {node.name: function_name(names, node) for node in names.source.nodes_of_type(ast.FunctionDef)}
    assert (found["inner"], found["run"], found["check"]) == (None, "m.run", "m.Base.check")
