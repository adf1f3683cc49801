"Every library notebook and every tutorial runs from top to bottom; cells marked slow are left to `nbdev_test --flags slow`"
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(p for p in (ROOT/"nbs").rglob("*.ipynb") if "papers" not in p.parts[:-2] and "tutorials" not in p.parts)
TUTORIALS = sorted((ROOT/"nbs"/"tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS + TUTORIALS, ids=lambda p: p.stem)
def test_notebook_runs(path, monkeypatch):
    import matplotlib
    matplotlib.use("agg")
    from nbdev.test import test_nb
    monkeypatch.setenv("TQDM_DISABLE", "1")
    ok, _ = test_nb(path, skip_flags={"slow", "notest"}, do_print=False, showerr=True, basepath=str(ROOT))
    assert ok, f"{path.name} does not run"


def test_tutorials_are_complete_and_keep_their_pictures():
    import nbformat
    assert [p.name[0] for p in TUTORIALS] == list("12345678")
    for p in TUTORIALS:
        outputs = [o for c in nbformat.read(p, 4).cells for o in c.get("outputs", [])]
        pictures = [o for o in outputs if "image/png" in o.get("data", {})
                    or 'class="xf"' in str(o.get("data", {}).get("text/html", ""))]
        assert pictures or p.name.startswith("8"), f"{p.name} has no picture"
