"Imports of version 0.1.0 that were shown to readers still work, with a warning that names the successor"
import subprocess, sys
from importlib import import_module

import pytest

from xfeval._moved import MOVED

CASES = [(m, n) for m, names in MOVED.items() for n in names]


@pytest.mark.parametrize("module,name", CASES, ids=lambda v: v)
def test_a_former_import_works_with_a_warning(module, name):
    place, _, new = MOVED[module][name].rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"is now xfeval.{place}.{new}"): old = getattr(import_module(module), name)
    assert old is getattr(import_module(f"xfeval.{place}"), new)


def test_other_names_are_still_missing():
    with pytest.raises(ImportError): from xfeval.pictures import nothing
    with pytest.raises(ImportError): from xfeval.explainers.explain import nothing # noqa: F811
    with pytest.raises(ModuleNotFoundError): import_module("xfeval.nowhere")


def test_from_import_in_a_fresh_process():
    code = "import warnings; warnings.simplefilter('ignore'); from xfeval.pictures import plot_curves; from xfeval.core import play"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
