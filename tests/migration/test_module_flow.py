"""Flow of Horovod's module through a project."""

from __future__ import annotations

import pytest

from migration.checking import migrate_source

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


def test_horovod_that_comes_as_an_argument_is_followed() -> None:
    others = {"main.py": HEAD + "import script\nhvd.init()\nscript.train(loss, hvd=hvd)\n"}
    source = (
        "import tensorflow as tf\ndef train(loss, hvd=None):\n    opt = tf.train.AdamOptimizer(0.1)\n"
        "    if hvd is not None:\n        opt = hvd.DistributedOptimizer(opt)\n    return opt.compute_gradients(loss)\n"
    )
    result = migrate_source(source, others=others, distributed=True)
    assert "    if hvd is not None:\n        opt = NPUDistributedOptimizer(opt)\n" in result.after.decode()
    assert {finding.status for finding in result.findings} == {"changed"}
    main = migrate_source(others["main.py"], path="main.py", others={"script.py": source}, distributed=True)
    assert main.after.decode().endswith("import script\nscript.train(loss, hvd=hvd)\n")
    assert "hvd = True" in main.after.decode()
    assert "horovod" not in main.after.decode()


PASSED = {
    "a class": (
        "from script import Model\nhvd.init()\nModel(hvd).build()\n",
        "class Model:\n    def __init__(self, comm):\n        self.comm = comm\n    def build(self):\n"
        "        return self.comm.DistributedOptimizer(opt).minimize(l), self.comm.rank()\n",
    ),
    "a method": (
        "import script\nhvd.init()\nmodel = script.Model()\nmodel.build(h=hvd)\n",
        "class Model:\n    def build(self, x=1, h=None):\n        return self.inner(h)\n    def inner(self, deep):\n"
        "        return deep.DistributedOptimizer(opt).minimize(l), deep.rank()\n",
    ),
    "a choice": (
        "import script\nhvd.init()\nscript.build(hvd if multi else None)\n",
        "def build(hvd):\n    def inner():\n        return hvd.DistributedOptimizer(opt).minimize(l), hvd.rank()\n"
        "    return inner()\n",
    ),
    "a module's variable": (
        "hvd.init()\nimport script\n",
        "from main import hvd as h\nh.DistributedOptimizer(opt).minimize(l)\nprint(h.rank())\n",
    ),
    "a result": (
        "def get():\n    hvd.init()\n    return hvd\nimport script\n",
        "import main\nh = main.get()\nh.DistributedOptimizer(opt).minimize(l)\nprint(h.rank(), main.get().size())\n",
    ),
    "another object's attribute": (
        "import script\nhvd.init()\nargs.hvd = hvd\nscript.build(args)\n",
        "def build(args):\n    return args.hvd.DistributedOptimizer(opt).minimize(l), args.hvd.rank()\n",
    ),
}


@pytest.mark.parametrize("folder", ["", "src/"])
@pytest.mark.parametrize("way", PASSED)
def test_horovod_is_followed_through(way: str, folder: str) -> None:
    main, script = HEAD + PASSED[way][0], "import tensorflow as tf\n" + PASSED[way][1]
    files = {f"{folder}main.py": main, f"{folder}script.py": script}
    texts = {}
    for path, source in files.items():
        result = migrate_source(source, path=path, others=files, distributed=True)
        assert {finding.status for finding in result.findings} == {"changed"}, result.findings
        texts[path] = result.after.decode()
    both = "".join(texts.values())
    assert "NPUDistributedOptimizer(opt)" in both
    assert "horovod" not in both
    assert ".init()" not in both
    assert "hvd = True" in both


ESCAPES = {
    "an unknown function": "somewhere.register(hvd)\n",
    "a list": "backends = [hvd]\n",
    "a dictionary": "backends = {'hvd': hvd}\n",
    "another thing at times": "script.build(hvd)\nscript.build(fake)\n",
    "getattr": "size = getattr(hvd, name)()\n",
    "an attribute that is something else elsewhere": "args.backend = hvd\n\n\ndef f(x):\n    x.backend = 'gloo'\n",
    "a name that is something else in a branch": "comm = hvd\nif x:\n    comm = fake\nprint(comm.rank())\n",
    "a name that a function binds again": "comm = hvd\ndef f():\n    global comm\n    comm = fake\n",
    "a name that a handler binds again": "comm = hvd\ntry:\n    pass\nexcept E as comm:\n    pass\n",
    "a local variable": "def f(): comm = hvd; comm = x or comm; return comm.rank()\n",
    "a conditional expression": "comm = hvd if x else fake\nprint(comm.rank())\n",
    "a tuple": "comm, n = hvd, 1\nprint(comm.rank())\n",
    "a lambda's result": "get = lambda: hvd\nprint(get().rank())\n",
    "an import with a substitute": "try: import horovod.tensorflow as comm\nexcept ImportError: import fake as comm\n",
    "a member that is replaced": "hvd.rank = lambda: 0\n",
    "a nested function's default": "def f(): g = lambda c=hvd: c.rank(); return g(fake)\n",
    "setattr": "setattr(args, 'comm', hvd)\nprint(args.comm.rank())\n",
}


@pytest.mark.parametrize("way", ESCAPES)
def test_a_program_in_which_horovod_is_not_followed_keeps_all_of_it(way: str) -> None:
    main = HEAD + "import script\nhvd.init()\nprint(hvd.rank())\n" + ESCAPES[way]
    script = "import tensorflow as tf\ndef build(h):\n    return h\n"
    inner = "import horovod.tensorflow as hvd\nimport tensorflow as tf\ndef f(o, ds):\n"
    inner += "    return hvd.DistributedOptimizer(o).minimize(1), ds.shard(hvd.size(), hvd.rank())\n"
    files = {"main.py": main + "import inner\n", "script.py": script, "inner.py": inner}
    for path, source in files.items():
        result = migrate_source(source, path=path, others=files, distributed=True)
        assert result.after.decode() == source
        if path != "script.py":
            assert any(finding.status == "unresolved" and "main.py:6" in finding.message for finding in result.findings)
    other = HEAD + "hvd.init()\nprint(hvd.rank())\n"
    assert migrate_source(other, path="other.py", others=files, distributed=True).changed


def test_functions_that_return_the_module_are_followed_or_left_for_manual_review() -> None:
    methods = {
        "a property": "class A:\n    @property\n    def comm(self):\n        return hvd\nprint(A().comm.rank())\n",
        "another object's method": "class A:\n    def get(self):\n        return hvd\nprint(a.get().rank())\n",
        "a function that is handed on": "def get():\n    return hvd\nregister(get)\n",
        "a nested function": "def get():\n    return x\ndef f():\n    def get():\n        return hvd\nget().rank()\n",
    }
    for method, text in methods.items():
        source = HEAD + "hvd.init()\n" + text
        result = migrate_source(source, distributed=True)
        assert result.after.decode() == source, method
        assert any(finding.status == "unresolved" for finding in result.findings)


def test_an_attribute_of_the_same_name_in_another_class_is_not_taken_for_horovod() -> None:
    source = HEAD + (
        "hvd.init()\nclass A:\n    def __init__(self):\n        self.comm = hvd\n    def f(self):\n"
        "        return self.comm.rank()\nclass B:\n    def __init__(self, comm):\n        self.comm = comm\n"
        "    def f(self):\n        return self.comm.rank()\n"
    )
    text = migrate_source(source, distributed=True).after.decode()
    assert text.count("return get_rank_id()") == 1
    assert text.endswith("return self.comm.rank()\n")
    outside = source + "print(A().comm.size(), a.comm.rank())\n"
    left = migrate_source(outside, distributed=True)
    assert left.after.decode() == outside, "which of the two `a` holds is not seen"
    assert any(finding.status == "unresolved" for finding in left.findings)
