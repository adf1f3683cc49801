"The site: offline, without broken links, with a docstring for every public name, and readable colours"
import html, re
from pathlib import Path

import nbformat
import pytest

from xfeval.apps import notebooks as nbs_, site as docs
from xfeval.papers.plan import ResultNotebook

ROOT = Path(__file__).resolve().parent.parent
MODULE = """__all__ = ['f', 'C', 'v']
def f(a, # one
      b=2): # two
    return a
class C:
    'doc'
    def m(self): 'does'
v = 3
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory): return docs.build_site(tmp_path_factory.mktemp("site")/"out").parent


def pages(site): return [p for p in site.rglob("*.html") if "_static" not in p.parts]


def test_every_public_name_has_a_docstring(): assert docs.undocumented() == []


def test_names_without_docstring_are_found(tmp_path):
    (tmp_path/"m.py").write_text(MODULE)
    f, c, v = docs.public_names(tmp_path/"m.py")
    assert (f["kind"], f["doc"], c["doc"], v["kind"]) == ("function", "", "doc", "value")
    assert "# two" in f["head"] and [m["doc"] for m in c["methods"]] == ["does"]


def test_site_has_all_parts(site):
    for f in ("index.html", "nbs/guide.html", "api/index.html", "nbs/core/index.html", "nbs/papers/sun2025/index.html"):
        assert (site/f).is_file(), f
    tutorials = list((ROOT/"nbs"/"tutorials").glob("*.ipynb"))
    assert len(list((site/"nbs"/"tutorials").glob("[1-8]_*.html"))) == len(tutorials)
    assert len(list((site/"nbs").rglob("[0-9]*.html"))) > 50
    api = (site/"api"/"xfeval.explainers.explain.html").read_text(encoding="utf8")
    assert 'id="explain"' in api and "Explain the class of each instance" in html.unescape(api)


def test_links_lead_somewhere(site): assert docs.broken_links(site) == []


def test_broken_links_are_found(tmp_path):
    (tmp_path/"a.html").write_text('<a href="b.html">b</a><a href="a.html#x">a</a><a href="https://example.org">e</a>')
    assert docs.broken_links(tmp_path) == [("a.html", "b.html")]


def test_site_fetches_nothing(site):
    for p in pages(site):
        text = p.read_text(encoding="utf8")
        assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?:', text), p.name
        assert not re.search(r"@import|url\(https?:", text), p.name
        assert 'lang="en"' in text and "<title>" in text


def test_every_formula_is_drawn(site):
    "No page shows LaTeX: each formula became MathML"
    drawn = 0
    for p in site.rglob("*.html"):
        text = p.read_text(encoding="utf8")
        drawn += text.count("<math ")
        prose = re.sub(r"<(code|pre|svg|script|style|math)\b.*?</\1>", "", text, flags=re.S)
        assert not re.search(r"\$[^$\n]*\\[a-z]+[^$\n]*\$", re.sub(r"<[^>]*>", "", prose)), p.name
    assert drawn > 100


def test_directives_and_hidden_cells_are_not_shown(tmp_path):
    new = nbformat.v4
    cells = [new.new_code_cell(s) for s in ("#| hide\nsecret = 1", "#| export\ndef f(): pass", "#| echo: false\nprint(1)")]
    cells.append(new.new_markdown_cell("so $a$ and $$b$$ follow"))
    nbformat.write(new.new_notebook(cells=cells), tmp_path/"a.ipynb")
    exported, echo, text = docs.clean_notebook(tmp_path/"a.ipynb").cells
    assert (exported.source, exported.metadata.tags) == ("def f(): pass", ["hide-input"])
    assert echo.metadata.tags == ["remove-input"] and "\n\n$$b$$\n\n" in text.source


def test_notebook_text_is_escaped(site):
    "Sphinx escapes what a cell printed; no page has a script with code from a notebook"
    for p in (site/"nbs").rglob("*.html"): assert "<script>alert" not in p.read_text(encoding="utf8")


def test_search_contents_and_dark_mode(site):
    text = (site/"nbs/metrics/04_soft.html").read_text(encoding="utf8")
    assert (site/"searchindex.js").is_file() and "theme-switch" in text and 'class="bd-toc' in text


def test_guide_reads_the_tables():
    cells = nbformat.read(ROOT/"nbs"/"guide.ipynb", 4).cells
    text = "\n".join(o.get("data", {}).get("text/markdown", "") for c in cells for o in c.get("outputs", []))
    assert "shapley" in text and "Read it so" in text and "is not there yet" not in text


def test_readme_map_names_every_result_notebook():
    text = (ROOT/"README.md").read_text(encoding="utf8")
    for r in nbs_.result_map():
        assert str(r["path"].relative_to(ROOT)) in text, f"{r['name']} is missing: make execute ONLY=index, make notebooks"
    for name in re.findall(r"\]\(((?:nbs|figures)/[^)]+)\)", text): assert (ROOT/name).is_file(), name


def test_map_reads_calls_over_several_lines(tmp_path):
    code = 'res.table(df.merge(published("sun2025_table01")),\n          "sun2025_table09")\nother("sun2025_table77")'
    notebook = ResultNotebook(tmp_path/"sun2025"/"x.ipynb", "", {}, "", (code,))
    assert nbs_._written_by(notebook, set()) == ["sun2025_table09"]


def test_map_lists_tables_and_figures_only(tmp_path, monkeypatch):
    "What else a run leaves on one machine must not change the README"
    for f in ("demo/tables/p_table01.csv", "demo/figures/p_figure01.png", "demo/claims/p_notebook.csv"):
        (tmp_path/"figures"/f).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/"figures"/f).write_text("")
    notebook = ResultNotebook(tmp_path/"p"/"x.ipynb", "", {}, "", ("'p_table01', 'p_figure01', 'p_notebook'",))
    monkeypatch.setattr(nbs_, "root", tmp_path)
    monkeypatch.setattr(nbs_, "notebooks", lambda folder=None: dict(p_x=notebook))
    assert nbs_.result_map()[0]["outputs"] == ["p_table01", "p_figure01"]


def small_notebook(path, *sources):
    new = nbformat.v4
    spec = dict(name="python3", display_name="python3", language="python")
    nbformat.write(new.new_notebook(cells=[new.new_code_cell(s) for s in sources], metadata=dict(kernelspec=spec)), path)
    return path


def test_notebooks_are_executed_in_place(tmp_path, monkeypatch, capsys):
    "New outputs, cells marked eval: false untouched, a failing notebook left as it was"
    good = small_notebook(tmp_path/"good.ipynb", "#| eval: false\n1/0", "6*7")
    bad = small_notebook(tmp_path/"bad.ipynb", "1/0")
    before = bad.read_text()
    monkeypatch.setattr(nbs_, "teaching_notebooks", lambda only: [good, bad])
    assert docs._main(["--execute", "--jobs", "1"]) == 1
    still, ran = nbformat.read(good, 4).cells
    assert (still.outputs, still.metadata) == ([], {}) and ran.outputs[0].data["text/plain"] == "42"
    assert bad.read_text() == before and ran.execution_count is None
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "good: done" and said[1].startswith("bad: failed, ZeroDivisionError")


def test_wrong_names_are_told_in_one_line(capsys):
    assert docs._main(["--execute", "99_"]) == 2 and docs._main(["--keep", "nowhere"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "'99_'" in said[0] and "nowhere/notebooks" in said[1]


def test_lessons_are_named_by_a_part():
    found = nbs_.teaching_notebooks("core/01")
    assert [p.stem for p in found] == ["01_text"] and nbs_.teaching_notebooks()[-1].stem == "index"
    with pytest.raises(ValueError, match="'99_'.*00_utils"): nbs_.teaching_notebooks("99_")


def result_notebook(path, *sources):
    "A result notebook: its first cell is tagged `parameters`"
    nb = nbformat.read(small_notebook(path, *sources), 4)
    nb.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nb, path)
    return nb


def test_outputs_of_a_run_come_back_without_its_parameters(tmp_path):
    ran, here = tmp_path/"ran", tmp_path/"papers"/"p"
    for d in (ran, here): d.mkdir(parents=True)
    def keep(folder=ran): return nbs_.keep_results(folder, here.parent)
    result_notebook(here/"a.ipynb", "n = 1", "n")
    nb = result_notebook(ran/"p_a.ipynb", "n = 1", "n = 5", "n")
    nb.cells[1].metadata["tags"] = ["injected-parameters"]
    nb.cells[2].outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": "5"}, execution_count=3)]
    nbformat.write(nb, ran/"p_a.ipynb")
    assert keep() == ["p_a"]
    kept = nbformat.read(here/"a.ipynb", 4)
    assert [c.source for c in kept.cells] == ["n = 1", "n"]
    assert kept.cells[1].outputs[0].data["text/plain"] == "5" and kept.cells[1].execution_count is None
    result_notebook(ran/"p_b.ipynb", "n = 1", "n")
    result_notebook(here/"b.ipynb", "n = 2", "n")
    before = (here/"a.ipynb").read_text()
    nb.cells[2].outputs[0].data["text/plain"] = "6"
    nbformat.write(nb, ran/"p_a.ipynb")
    with pytest.raises(ValueError, match="p_b.ipynb was changed"): keep()
    assert (here/"a.ipynb").read_text() == before # none is kept where one is refused
    for f in (ran/"p_b.ipynb", here/"b.ipynb"): f.unlink()
    result_notebook(here/"a.ipynb", "n = 2", "n")
    with pytest.raises(ValueError, match="p_a.ipynb was changed after this run"): keep()
    (here/"a.ipynb").unlink()
    with pytest.raises(ValueError, match="p_a.ipynb is not a result notebook"): keep()
    with pytest.raises(ValueError, match="no notebook was run into .*p"): keep(here)
