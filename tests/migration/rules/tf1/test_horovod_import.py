from __future__ import annotations

import pytest

from migration.checking import check_rewrite, check_says, migrate_source

GUARDED = "import tensorflow as tf\ntry:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    hvd = None\n"
THERE = "import tensorflow as tf\nhvd = True  # hccl replaces Horovod, and is always installed\n"


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    hvd = None\nx = 1\n", "x = 1\n"),
        (
            "try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    print('no')\nx = 1\n",
            "try:\n    pass\nexcept ImportError:\n    print('no')\nx = 1\n",
        ),
        (
            "try:\n    import horovod.tensorflow as hvd  # maybe\nexcept ImportError:\n    hvd = None\nx = 1\n",
            "try:\n    pass  # maybe\nexcept ImportError:\n    hvd = None\nx = 1\n",
        ),
        ("if multi:\n    import horovod.tensorflow as hvd\nx = 1\n", "if multi:\n    pass\nx = 1\n"),
        ("import os, horovod.tensorflow as hvd\nx = 1\n", "import os\nx = 1\n"),
        ("import horovod.tensorflow as hvd, os\nx = 1\n", "import os\nx = 1\n"),
        ("import horovod.tensorflow as hvd; import os\nx = 1\n", "import os\nx = 1\n"),
    ],
)
def test_the_import_is_removed_in_any_form(before: str, later: str) -> None:
    check_rewrite("horovod_import", before, later)


@pytest.mark.parametrize(
    "use",
    [
        "run(hvd)",
        "x = hvd or other",
        "x = use and hvd",
        "x = [hvd]",
        "x = hvd is other",
        "x = hvd == 1",
        "x = None < hvd",
        "x = str(hvd)",
        "x = -hvd",
        "if hvd.rank: pass",
    ],
)
def test_a_use_other_than_a_test_keeps_the_import(use: str) -> None:
    status, why = ("manual", "(line 7)") if "hvd.rank" in use else ("unresolved", "(script.py:7)")
    check_says("horovod_import", GUARDED + f"if hvd is not None:\n    {use}\n", status, why)


@pytest.mark.parametrize("taken", ["from script import hvd\nhvd.init()\n", "import script\nscript.hvd.init()\n"])
def test_a_name_that_another_file_imports_and_tests_becomes_true(taken: str) -> None:
    source = GUARDED + "x = 1\n"
    others = {"other.py": "import tensorflow as tf\n" + taken}
    check_rewrite("horovod_import", source, THERE + "x = 1\n", others=others)
    there = migrate_source(others["other.py"], path="other.py", others={"script.py": source}, distributed=True)
    assert ".init()" not in there.after.decode()


@pytest.mark.parametrize(
    "question",
    [
        "if hvd is None: leave()",
        "if hvd is not None and many: go()",
        "if None != hvd: go()",
        "if not hvd: leave()",
        "x = 1 if hvd else 2",
        "x = hvd and many",
        "x = [1 for one in all if hvd]",
        "assert hvd or many",
        "while bool(hvd): go()",
        "many = hvd is not None",
    ],
)
def test_a_tested_name_becomes_true(question: str) -> None:
    check_rewrite("horovod_import", GUARDED + question + "\n", THERE + question + "\n")


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (
            "try:\n    import horovod.tensorflow as hvd\n    HAS = True\nexcept ImportError:\n    HAS = False\n",
            "HAS = True\n",
        ),
        (
            "try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    x, y = 1, 2\nelse:\n    HAS = True\n",
            "try:\n    pass\nexcept ImportError:\n    x, y = 1, 2\nelse:\n    HAS = True\n",
        ),
        (
            "try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    HAS = False\nelse:\n    HAS = True\n",
            "HAS = True\n",
        ),
    ],
)
def test_a_flag_set_beside_the_import_stays_true(before: str, later: str) -> None:
    check_rewrite("horovod_import", before + "if HAS: go()\n", later + "if HAS: go()\n")


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (
            "if many:\n    import horovod.tensorflow as hvd\nelse:\n    hvd = None\n",
            "if many:\n    hvd = True{}\nelse:\n    hvd = None\n",
        ),
        ("import horovod.tensorflow as hvd  # maybe\n", "hvd = True  # maybe\n"),
        ("import horovod.tensorflow as hvd; x = 1\n", "hvd = True; x = 1\n"),
        ("import os, horovod.tensorflow as hvd\n", "import os\nhvd = True{}\n"),
        (
            "try:\n    import horovod.tensorflow as hvd\n    x = 1\nexcept ImportError:\n    hvd, x = None, 2\n",
            "try:\n    hvd = True{}\n    x = 1\nexcept ImportError:\n    hvd, x = None, 2\n",
        ),
    ],
)
def test_a_tested_name_is_true_for_every_form_of_import(before: str, later: str) -> None:
    why = "  # hccl replaces Horovod, and is always installed"
    check_rewrite("horovod_import", before + "if hvd: go()\n", later.format(why) + "if hvd: go()\n")


def test_a_module_that_is_passed_on_keeps_the_import() -> None:
    source = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n" + "if hvd is not None:\n    run(hvd)\n"
    result = migrate_source(source, distributed=True)
    assert result.after.decode() == source
    assert any("is passed on here" in finding.message for finding in result.findings)


@pytest.mark.parametrize(
    "fallback", ["hvd = Alone()", "import fake as hvd"], ids=["an object of its own", "another module"]
)
def test_another_object_called_hvd_is_not_taken_for_horovod(fallback: str) -> None:
    source = GUARDED.replace("hvd = None", fallback) + "if hvd is not None:\n    hvd.init()\n"
    assert migrate_source(source, distributed=True).after.decode() == source
