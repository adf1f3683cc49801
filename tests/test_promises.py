"""Every promise of a notebook names a test that exists, and CONTRIBUTING's table is the one made of them"""
import ast, json

import pytest

from promises import BEGIN, END, ROOT, promises, table, with_table


def functions(file):
    "Names of the functions of a file"
    return {n.name for n in ast.walk(ast.parse(file.read_text(encoding="utf8"))) if isinstance(n, ast.FunctionDef)}


def missing(found, root=ROOT):
    "The promises whose test does not exist"
    return [(file, test) for _, _, file, test in found if not (root/file).is_file() or test not in functions(root/file)]


def test_every_promise_names_a_test_that_exists():
    found = list(promises())
    counts = {package: sum(p == package for p, *_ in found) for package in ("models", "engine")}
    assert min(counts.values()) >= 5 and not missing(found)


def test_contributing_shows_the_promises():
    text = (ROOT/"CONTRIBUTING.md").read_text(encoding="utf8")
    assert text == with_table(text), "run `python tests/promises.py`"


def notebook(folder, text):
    "A folder with one notebook of one text cell"
    (folder/"engine").mkdir(parents=True)
    cell = dict(cell_type="markdown", source=text.splitlines(True))
    (folder/"engine"/"00_x.ipynb").write_text(json.dumps(dict(cells=[cell])))
    return folder


def test_promises_are_read_up_to_the_next_heading(tmp_path):
    text = "# X\n\n## Promises\n\n- It holds: `tests/test_x.py::test_y`\n\n## Next\n\n- A list"
    found = list(promises(notebook(tmp_path, text)))
    assert found == [("engine", "It holds", "tests/test_x.py", "test_y")]
    assert missing(found) == [("tests/test_x.py", "test_y")]
    assert with_table(f"a\n{BEGIN}\nold\n{END}\nb", tmp_path) == f"a\n{BEGIN}\n{table(tmp_path)}\n{END}\nb"


def test_a_promise_without_a_test_is_refused(tmp_path):
    with pytest.raises(ValueError, match="00_x.ipynb.*It holds"):
        list(promises(notebook(tmp_path, "## Promises\n\n- It holds, believe me")))
    with pytest.raises(ValueError, match="no place"): with_table("nothing", tmp_path)
