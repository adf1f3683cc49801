"The site: offline, without broken links, with a docstring for every public name, and readable colours"
import html, re
from pathlib import Path

import nbformat
import pytest

from xfeval.apps import site as docs
from xfeval.view.html import contrast

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


def test_every_public_name_has_a_docstring(): assert docs.undocumented() == []


def test_names_without_docstring_are_found(tmp_path):
    (tmp_path/"m.py").write_text(MODULE)
    f, c, v = docs.public_names(tmp_path/"m.py")
    assert (f["kind"], f["doc"], c["doc"], v["kind"]) == ("function", "", "doc", "value")
    assert "# two" in f["head"] and [m["doc"] for m in c["methods"]] == ["does"]


def test_site_has_all_parts(site):
    for f in ("index.html", "guide.html", *(f"{s}/index.html" for s in ("tutorials", "results", "api", "rooms"))):
        assert (site/f).is_file(), f
    tutorials = list((ROOT/"nbs"/"tutorials").glob("*.ipynb"))
    assert len(list((site/"tutorials").glob("[1-8]_*.html"))) == len(tutorials)
    assert len(list((site/"rooms").glob("[0-9]*.html"))) > 30
    api = (site/"api"/"xfeval.explainers.explain.html").read_text(encoding="utf8")
    assert 'id="explain"' in api and "Explain the class of each instance" in html.unescape(api)
    assert (site/"api"/"xfeval.html").is_file()


def test_links_lead_somewhere(site): assert docs.broken_links(site) == []


def test_broken_links_are_found(tmp_path):
    (tmp_path/"a.html").write_text('<a href="b.html">b</a><a href="a.html#x">a</a><a href="https://example.org">e</a>')
    assert docs.broken_links(tmp_path) == [("a.html", "b.html")]


def test_site_fetches_nothing(site):
    for p in site.rglob("*.html"):
        text = p.read_text(encoding="utf8")
        assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?:', text), p.name
        assert not re.search(r"@import|url\(https?:", text), p.name
        assert "<h1" in text and 'lang="en"' in text and "<title>" in text


def test_every_formula_is_drawn(site):
    "No page shows LaTeX: each formula became a drawing, and none was beyond matplotlib"
    drawn = 0
    for p in site.rglob("*.html"):
        text = p.read_text(encoding="utf8")
        drawn += text.count('<svg class="formula"')
        prose = re.sub(r"<(code|pre|svg|script|style)\b.*?</\1>", "", text, flags=re.S)
        prose = re.sub(r"<[^>]*>", "", prose)
        assert not re.search(r"\$[^$\n]*\\[a-z]+[^$\n]*\$", prose), p.name
        assert not re.search(r"<code>[^<]*\\(?:frac|sum|phi|mathrm|mathcal)\b", text), p.name
    assert drawn > 100


def test_formulas_are_told_from_prices_and_code():
    assert docs.with_formulas("it costs $5, or $6 <code>$x$</code>") == "it costs $5, or $6 <code>$x$</code>"
    page = docs.with_formulas(r"so $a &lt; \frac13$ and $$\mathcal L = 1$$")
    assert page.count("<path") == 2 and "formula-line" in page and 'aria-label="a &lt; \\frac13"' in page


def test_notebook_text_is_escaped(tmp_path):
    new = nbformat.v4
    outputs = [new.new_output("stream", name="stdout", text="<script>alert(1)</script>"),
               new.new_output("execute_result", data={"text/plain": "'<script>'"})]
    nbformat.write(new.new_notebook(cells=[new.new_code_cell("x = '<script>'", outputs=outputs)]), tmp_path/"a.ipynb")
    assert "<script" not in docs.notebook_html(tmp_path/"a.ipynb")


def six(colour): return colour if len(colour) == 7 else "#" + "".join(2*c for c in colour[1:])


def test_colours_of_the_site_can_be_read():
    blocks = re.findall(r":root\{([^}]*)\}", docs._css)[:2]
    light, dark = (dict(re.findall(r"--(\w+):(#[0-9a-fA-F]{3,6})", b)) for b in blocks)
    code = re.findall(r"\.highlight [^{]*\{color:(#[0-9a-f]{6})", docs._css)
    half = len(code)//2
    assert half >= 5
    for theme, inks in ((light, code[:half]), (dark, code[half:])):
        for ink in [theme[c] for c in ("fg", "mute", "link")] + inks:
            for ground in ("bg", "soft"): assert contrast(six(ink), six(theme[ground])) >= 4.5, (ink, theme[ground])


def test_guide_reads_the_tables():
    cells = nbformat.read(ROOT/"nbs"/"guide.ipynb", 4).cells
    text = "\n".join(o.get("data", {}).get("text/markdown", "") for c in cells for o in c.get("outputs", []))
    assert "shapley" in text and "Read it so" in text and "is not there yet" not in text


def test_readme_map_names_every_result_notebook():
    text = (ROOT/"README.md").read_text(encoding="utf8")
    mend = "execute nbs/index.ipynb and `python -m xfeval.docs --readme`"
    for r in docs.result_map(): assert f"nbs/results/{r['notebook']}" in text, f"{r['notebook']} is missing: {mend}"
    for name in re.findall(r"\]\(((?:nbs|figures)/[^)]+)\)", text): assert (ROOT/name).is_file(), name


def test_map_reads_calls_over_several_lines(tmp_path):
    code = 'res.table(df.merge(published("sun2025_table01")),\n          "sun2025_table09")\nother("sun2025_table77")'
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), tmp_path/"sun2025_x.ipynb")
    assert docs.result_map(tmp_path)[0]["outputs"] == ["sun2025_table09"]


def test_map_lists_tables_and_figures_only(tmp_path, monkeypatch):
    "What else a run leaves on one machine must not change the README"
    for f in ("demo/tables/p_table01.csv", "demo/figures/p_figure01.png", "demo/claims/p_notebook.csv"):
        (tmp_path/"figures"/f).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/"figures"/f).write_text("")
    monkeypatch.setattr(docs, "root", tmp_path)
    assert docs._made() == {"p_table01", "p_figure01"}


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
    monkeypatch.setattr(docs, "lessons", lambda only: [good, bad])
    assert docs.main(["--execute", "--jobs", "1"]) == 1
    still, ran = nbformat.read(good, 4).cells
    assert (still.outputs, still.metadata) == ([], {}) and ran.outputs[0].data["text/plain"] == "42"
    assert bad.read_text() == before and ran.execution_count is None
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "good: done" and said[1].startswith("bad: failed, ZeroDivisionError")


def test_wrong_names_are_told_in_one_line(capsys):
    assert docs.main(["--execute", "99_"]) == 2 and docs.main(["--keep", "nowhere"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "'99_'" in said[0] and "nowhere/notebooks" in said[1]


def test_lessons_are_named_by_a_part():
    assert [p.stem for p in docs.lessons("12_")] == ["12_embedded"] and docs.lessons()[-1].stem == "index"
    with pytest.raises(ValueError, match="'99_'.*00_core"): docs.lessons("99_")


def test_outputs_of_a_run_come_back_without_its_parameters(tmp_path):
    ran, here = tmp_path/"ran", tmp_path/"here"
    for d in (ran, here): d.mkdir()
    small_notebook(here/"a.ipynb", "n = 1", "n")
    nb = nbformat.read(small_notebook(ran/"a.ipynb", "n = 1", "n = 5", "n"), 4)
    nb.cells[1].metadata["tags"] = ["injected-parameters"]
    nb.cells[2].outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": "5"}, execution_count=3)]
    nbformat.write(nb, ran/"a.ipynb")
    assert docs.keep_results(ran, here) == ["a"]
    kept = nbformat.read(here/"a.ipynb", 4)
    assert [c.source for c in kept.cells] == ["n = 1", "n"]
    assert kept.cells[1].outputs[0].data["text/plain"] == "5" and kept.cells[1].execution_count is None
    for d in (ran, here): small_notebook(d/"b.ipynb", "n = 1" if d == ran else "n = 2", "n")
    before = (here/"a.ipynb").read_text()
    nb.cells[2].outputs[0].data["text/plain"] = "6"
    nbformat.write(nb, ran/"a.ipynb")
    with pytest.raises(ValueError, match="b.ipynb was changed"): docs.keep_results(ran, here)
    assert (here/"a.ipynb").read_text() == before # none is kept where one is refused
    for d in (ran, here): (d/"b.ipynb").unlink()
    small_notebook(here/"a.ipynb", "n = 2", "n")
    with pytest.raises(ValueError, match="a.ipynb was changed after this run"): docs.keep_results(ran, here)
    (here/"a.ipynb").unlink()
    with pytest.raises(ValueError, match="a.ipynb is not a notebook of here"): docs.keep_results(ran, here)
    with pytest.raises(ValueError, match="no notebook was run into .*here"): docs.keep_results(here, here)
