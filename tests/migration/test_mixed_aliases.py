"""Attributes, parameters and results that hold Horovod's module at times and something else at other times."""

from __future__ import annotations

import pytest

from migration.checking import migrate_source

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\nimport fake\nhvd.init()\n"
TRAINER = """class Trainer:
    def __init__(self):
        self.comm = hvd
    def rank(self):
        return self.comm.rank()
"""
GIVEN = """class Trainer:
    def __init__(self, comm):
        self.comm = comm
    def rank(self):
        return self.comm.rank()
"""

MIXED = {
    "in a branch": TRAINER.replace("= hvd", "= hvd\n        if x:\n            self.comm = fake"),
    "in another method": TRAINER + "    def stop(self):\n        self.comm = fake\n",
    "with an annotation": TRAINER + "    def stop(self):\n        self.comm: object = fake\n",
    "in a tuple": TRAINER + "    def stop(self):\n        self.comm, self.n = fake, 1\n",
    "with a second target": TRAINER + "    def stop(self):\n        self.comm = self.other = fake\n",
    "by a loop": TRAINER + "    def stop(self):\n        for self.comm in (fake,):\n            pass\n",
    "by with": TRAINER + "    def stop(self):\n        with fake() as self.comm:\n            pass\n",
    "by setattr": TRAINER + "    def stop(self):\n        setattr(self, 'comm', fake)\n",
    "by object.__setattr__": TRAINER + "    def stop(self):\n        object.__setattr__(self, 'comm', fake)\n",
    "by super().__setattr__": TRAINER + "    def __setattr__(self, k, v):\n        super().__setattr__(k, v)\n",
    "by a computed name": TRAINER + "    def set(self, name, value):\n        setattr(self, name, value)\n",
    "by __dict__": TRAINER + "    def stop(self):\n        self.__dict__['comm'] = fake\n",
    "by __dict__.update": TRAINER + "    def load(self, values):\n        self.__dict__.update(values)\n",
    "from outside": TRAINER + "t = Trainer()\nt.comm = fake\n",
    "by a constructor": TRAINER + "t = Namespace(comm=fake)\nprint(t.comm.rank())\n",
    "in the class": TRAINER.replace("Trainer:", "Trainer:\n    comm = fake"),
    "as a field": TRAINER.replace("Trainer:", "Trainer:\n    comm: object"),
    "as a property": TRAINER + "class Other:\n    @property\n    def comm(self):\n        return fake\nt.comm.rank()\n",
    "in a subclass": TRAINER + "class Other(Trainer):\n    comm = fake\n",
    "in a base class": "class Base:\n    comm = fake\n" + TRAINER.replace("Trainer", "Trainer(Base)"),
    "beside a class attribute": "class A:\n    comm = hvd\n    def f(self):\n        self.comm = fake\nA.comm.rank()\n",
    "in branches of a class": "class A:\n    if x:\n        comm = hvd\n    else:\n        comm = fake\n"
    "A.comm.rank()\n",
    "in branches that define the class": "if x:\n    class A:\n        comm = hvd\nelse:\n    class A:\n"
    "        comm = fake\nA().comm.rank()\n",
    "on other objects": "args.comm = hvd\nother.comm = fake\nargs.comm.rank()\n",
    "by setattr on other objects": "args.comm = hvd\nsetattr(args, name, fake)\nargs.comm.rank()\n",
    "to a constructor": GIVEN + "Trainer(hvd)\nTrainer(fake)\n",
    "to a class in a dictionary": GIVEN + "Trainer(hvd)\nKINDS = {'t': Trainer}\nKINDS['t'](fake)\n",
    "to a parameter": "def f(comm):\n    return comm.rank()\nf(hvd)\nf(fake)\n",
    "to a parameter through others": "def f(c):\n    return g(c)\ndef g(c):\n    return c.rank()\nf(hvd)\nf(fake)\n",
    "by a default": "def f(comm=fake):\n    return comm.rank()\nf(hvd)\nf()\n",
    "by *values": "def f(comm):\n    return comm.rank()\nf(hvd)\nf(*values)\n",
    "by **values": "def f(comm=None):\n    return comm.rank()\nf(hvd)\nf(**values)\n",
    "by partial": "def f(comm):\n    return comm.rank()\nf(hvd)\ng = partial(f, fake)\n",
    "by a thread": "def f(comm):\n    return comm.rank()\nf(hvd)\nThread(target=f, args=(fake,))\n",
    "by a method of its own": "class A:\n    def f(self, comm):\n        return comm.rank()\n    def g(self):\n"
    "        self.f(hvd)\n        run(self.f, fake)\n",
    "to a parameter that is bound again": "def f(comm):\n    comm = comm or fake\n    return comm.rank()\nf(hvd)\n",
    "in an overriding method": "class A:\n    def run(self):\n        return self.go(hvd)\n    def go(self, comm):\n"
    "        return comm.rank()\nclass B(A):\n    def go(self, c):\n        return c.size()\n",
    "in a result": "def get():\n    if x:\n        return hvd\n    return fake\nget().rank()\n",
    "in an overriding result": "class A:\n    def get(self):\n        return hvd\n    def f(self):\n"
    "        return self.get().rank()\nclass B(A):\n    def get(self):\n        return fake\n",
    "in functions of branches": "if x:\n    def get():\n        return hvd\nelse:\n    def get():\n"
    "        return fake\nget().rank()\n",
}


@pytest.mark.parametrize("way", MIXED)
def test_what_gets_the_module_or_something_else_is_left_for_manual_review(way: str) -> None:
    source = HEAD + MIXED[way]
    result = migrate_source(source, distributed=True)
    assert result.after.decode() == source
    assert any(finding.status == "unresolved" for finding in result.findings)


OTHER_FILES = {
    "a subclass": "import fake\nfrom main import Trainer\nclass Other(Trainer):\n    comm = fake\n",
    "a class without a framework": "import fake\ndef setup(trainer):\n    trainer.comm = fake\n",
    "an import that overwrites the module": "import main\nimport fake\nmain.hvd = fake\n",
}


@pytest.mark.parametrize("way", OTHER_FILES)
def test_another_file_that_assigns_something_else_is_seen(way: str) -> None:
    files = {"main.py": HEAD + TRAINER, "other.py": OTHER_FILES[way]}
    if "from main" not in files["other.py"] and "import main" not in files["other.py"]:
        files["main.py"] += "import other\n"
    for path, source in files.items():
        assert migrate_source(source, path=path, others=files, distributed=True).after.decode() == source


PURE = {
    "beside None": TRAINER.replace("= hvd", "= None\n        if x:\n            self.comm = hvd"),
    "beside False": "def f(comm=False):\n    return comm and comm.rank()\nf(hvd)\nf()\n",
    "with a declaration": TRAINER.replace("self.comm = hvd", "self.comm: object\n        self.comm = hvd"),
    "in the class": "class A:\n    comm = hvd\n    def f(self):\n        return self.comm.rank()\n",
    "in the base class": "class Base:\n    def __init__(self):\n        self.comm = hvd\nclass A(Base):\n"
    "    def f(self):\n        return self.comm.rank()\n",
    "read by the base class": "class Base:\n    def f(self):\n        return self.comm.rank()\nclass A(Base):\n"
    "    def __init__(self):\n        self.comm = hvd\nclass Other:\n    comm = fake\n",
    "by Class.__init__": GIVEN + "class A(Trainer):\n    def __init__(self):\n        Trainer.__init__(self, hvd)\n",
    "in a class that is tested for": GIVEN + "assert isinstance(Trainer(hvd), (Trainer, int))\n",
    "in an inherited result": "class A:\n    def get(self):\n        return hvd\nclass B(A):\n    def f(self):\n"
    "        return self.get().rank()\n",
    "through many parameters": "".join(f"def f{n}(c):\n    return f{n + 1}(c)\n" for n in range(9))
    + "def f9(c):\n    return c.rank()\nf0(hvd)\n",
}


@pytest.mark.parametrize("way", PURE)
def test_what_gets_nothing_but_the_module_is_rewritten(way: str) -> None:
    text = migrate_source(HEAD + PURE[way], distributed=True).after.decode()
    assert ".rank()" not in text
    assert "get_rank_id()" in text


def test_a_nested_function_of_the_same_name_is_another_function() -> None:
    outer = "def outer():\n    def f(comm):\n        return comm.rank()\n    return f(fake)\n"
    text = migrate_source(HEAD + "def f(comm):\n    return comm.rank()\n" + outer + "f(hvd)\n", distributed=True).after
    assert "def f(comm):\n    return get_rank_id()\n" in text.decode()
    assert outer in text.decode()
