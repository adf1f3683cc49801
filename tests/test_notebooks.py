"Every library notebook runs from top to bottom; cells marked slow are left to `nbdev_test --flags slow`"
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(p for p in (ROOT/"nbs").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path, monkeypatch):
    import matplotlib
    matplotlib.use("agg")
    from nbdev.test import test_nb
    monkeypatch.setenv("TQDM_DISABLE", "1")
    ok, _ = test_nb(path, skip_flags={"slow", "notest"}, do_print=False, showerr=True, basepath=str(ROOT))
    assert ok, f"{path.name} does not run"
