"The site: offline, without broken links, with a docstring for every public name, and readable colours"
import html, re
from pathlib import Path

import nbformat
import pytest

from xfeval import docs
from xfeval.pictures import contrast

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory): return docs.build_site(tmp_path_factory.mktemp("site")/"out").parent


def test_every_public_name_has_a_docstring(): assert docs.undocumented() == []


def test_names_without_docstring_are_found(tmp_path):
    (tmp_path/"m.py").write_text("__all__ = ['f', 'C', 'v']\ndef f(a, # one\n      b=2): # two\n    return a\nclass C:\n    'doc'\n    def m(self): 'does'\nv = 3\n")
    f, c, v = docs.public_names(tmp_path/"m.py")
    assert (f["kind"], f["doc"], c["doc"], v["kind"]) == ("function", "", "doc", "value") and "# two" in f["head"] and [m["doc"] for m in c["methods"]] == ["does"]


def test_site_has_all_parts(site):
    for f in ("index.html", "guide.html", "tutorials/index.html", "results/index.html", "api/index.html", "rooms/index.html"): assert (site/f).is_file(), f
    assert len(list((site/"tutorials").glob("[1-8]_*.html"))) == len(list((ROOT/"nbs"/"tutorials").glob("*.ipynb"))) and len(list((site/"rooms").glob("[0-9]*.html"))) > 30
    api = (site/"api"/"xfeval.explainers.explain.html").read_text(encoding="utf8")
    assert 'id="explain"' in api and "Explain the class of each instance" in html.unescape(api) and (site/"api"/"xfeval.html").is_file()


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


def test_notebook_text_is_escaped(tmp_path):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = '<script>'", outputs=[nbformat.v4.new_output("stream", name="stdout", text="<script>alert(1)</script>"), nbformat.v4.new_output("execute_result", data={"text/plain": "'<script>'"})])])
    nbformat.write(nb, tmp_path/"a.ipynb"); assert "<script" not in docs.notebook_html(tmp_path/"a.ipynb")


def test_colours_of_the_site_can_be_read():
    light, dark = (dict(re.findall(r"--(\w+):(#[0-9a-fA-F]{3,6})", block)) for block in re.findall(r":root\{([^}]*)\}", docs._css)[:2]); full = lambda h: h if len(h) == 7 else "#" + "".join(2*c for c in h[1:])
    code = re.findall(r"\.highlight [^{]*\{color:(#[0-9a-f]{6})", docs._css); half = len(code)//2
    for v, inks in ((light, code[:half]), (dark, code[half:])):
        for ground in ("bg", "soft"):
            for ink in [full(v[c]) for c in ("fg", "mute", "link")] + inks: assert contrast(ink, full(v[ground])) >= 4.5, (ink, v[ground])


def test_guide_reads_the_tables():
    text = "\n".join(o.get("data", {}).get("text/markdown", "") for c in nbformat.read(ROOT/"nbs"/"guide.ipynb", 4).cells for o in c.get("outputs", []))
    assert "shapley" in text and "Read it so" in text and "is not there yet" not in text


def test_readme_map_names_every_result_notebook():
    text = (ROOT/"README.md").read_text(encoding="utf8")
    for r in docs.result_map(): assert f"nbs/results/{r['notebook']}" in text, f"{r['notebook']} is missing: execute nbs/index.ipynb and `python -m xfeval.docs --readme`"
    for name in re.findall(r"\]\((nbs/[^)]+)\)", text): assert (ROOT/name).is_file(), name
