"The promises of the repo: library and notebooks agree, pins agree, the README is the index notebook, nothing local leaks"
import configparser, importlib.metadata, json, re, shutil, subprocess, sys
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(p for p in (ROOT/"nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
BIN = Path(sys.executable).parent


def pins():
    lines = [l.strip() for l in (ROOT/"requirements.lock").read_text().splitlines() if l.strip()
             and not l.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.\-]+==[A-Za-z0-9_.!+\-]+", l)
               for l in lines), "every line of the lock is an exact pin"
    return {k.lower().replace("_", "-"): v for k, v in (l.split("==") for l in lines)}


def test_environment_equals_the_lock():
    env = yaml.safe_load((ROOT/"environment.yml").read_text())
    pip = next(d["pip"] for d in env["dependencies"] if isinstance(d, dict))
    assert "-r requirements.lock" in pip
    named = {l.split("==")[0]: l.split("==")[1] for l in pip if "==" in l}
    assert {k: pins().get(k) for k in named} == named
    for must in "jupyterlab papermill nbdev torch transformers captum shap networkx python-louvain seaborn awesome-align".split():
        assert must in named


def test_lock_covers_what_is_asked_for():
    have = pins()
    for f in ("requirements.in", "requirements-dev.in"):
        for l in (ROOT/f).read_text().splitlines():
            name = re.split(r"[=<>~! ]", l.strip())[0].lower().replace("_", "-")
            if name and not l.startswith(("-", "#")): assert name in have, f"{name} of {f} is not in the lock"


def test_lock_installs_on_the_first_python_that_is_asked_for():
    "A pin that needs 3.11.5, say, cannot be installed where a distribution ships 3.11.2"
    asked = re.search(r'requires-python\s*=\s*">=([\d.]+)"', (ROOT/"pyproject.toml").read_text())[1]
    for name in pins():
        needs = importlib.metadata.metadata(name).get("Requires-Python")
        assert not needs or SpecifierSet(needs).contains(f"{asked}.0"), f"{name} needs Python {needs}"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    d = tmp_path_factory.mktemp("repo")
    for name in ("nbs", "xfeval"):
        shutil.copytree(ROOT/name, d/name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    for name in ("settings.ini", "pyproject.toml"): shutil.copy(ROOT/name, d)
    return d


def texts(d, pattern):
    return {str(p.relative_to(d)): p.read_text() for p in d.rglob(pattern) if "__pycache__" not in p.parts}


def test_library_and_notebooks_agree(copy):
    before = texts(copy/"xfeval", "*.py")
    subprocess.run([BIN/"nbdev_export"], cwd=copy, check=True, capture_output=True)
    after = texts(copy/"xfeval", "*.py")
    assert sorted(before) == sorted(after)
    assert [f for f in before if before[f] != after[f]] == []


def test_notebooks_are_clean(copy):
    before = texts(copy/"nbs", "*.ipynb")
    subprocess.run([BIN/"nbdev_clean"], cwd=copy, check=True, capture_output=True)
    assert [f for f, t in texts(copy/"nbs", "*.ipynb").items() if t != before[f]] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT/"nbs")))
def test_notebook_outputs_teach_and_nothing_else(path):
    nb = nbformat.read(path, 4)
    assert nb.metadata.kernelspec.name == "python3"
    for c in nb.cells:
        for o in c.get("outputs", []):
            assert o.output_type != "error", f"traceback in {path.name}"
            assert not (o.output_type == "stream" and o.name == "stderr"), f"stderr in {path.name}: {o.text[:80]}"
            text = json.dumps({k: ({m: d for m, d in v.items() if m != "image/png"} if k == "data" else v)
                               for k, v in o.items()})
            assert not re.search(r"/(?:root|home|tmp|work|Users)/", text), f"a path of one machine in {path.name}: {re.search(r'.{30}/(?:root|home|tmp|work|Users)/.{30}', text)}"
            assert "it/s]" not in text, f"a progress bar in {path.name}"


def test_result_notebooks_have_one_parameters_cell():
    from xfeval.papers.plan import list_profiles, load_plan, notebooks
    assert {"smoke", "demo"} <= set(list_profiles())
    for nb in notebooks().values(): assert {"profile", "out", "note", "seed"} <= set(nb.defaults) and nb.cost
    for name in list_profiles(): load_plan(name)


def test_readme_is_the_index_notebook():
    from xfeval.apps.notebooks import readme
    assert (ROOT/"README.md").read_text() == readme()


def test_version_is_said_once():
    import xfeval
    c = configparser.ConfigParser()
    c.read(ROOT/"settings.ini")
    assert c["DEFAULT"]["version"] == xfeval.__version__ == yaml.safe_load((ROOT/"CITATION.cff").read_text())["version"]


def test_public_names():
    import xfeval
    for name in "load_data load_model explain evaluate list_methods list_metrics list_datasets Instance Explanation".split():
        assert callable(getattr(xfeval, name))
    with pytest.raises(AttributeError): xfeval.nothing


def exported_lines(path):
    "Lines of a module without its docstring and its list of names, which nbdev writes as it likes"
    text = re.sub(r"^# %% auto .*?(?=^# %%|\Z)", "", path.read_text(), flags=re.M | re.S)
    return text.splitlines()[1:]


def test_lines_of_the_library_can_be_read():
    for p in sorted((ROOT/"xfeval").rglob("*.py")):
        name = str(p.relative_to(ROOT/"xfeval"))
        if name == "_modidx.py": continue
        long = [l for l in exported_lines(p) if len(l) > 120]
        assert not long, f"{name}: {len(long)} lines of more than 120 characters, the first is {long[0][:80]!r} ..."
