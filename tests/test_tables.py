"Tables: the same cells in every format, nothing in them breaks the format, CSV comes back exactly"
import hashlib, io, json, re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xfeval.papers.published import list_published, published
from xfeval.view.html import contrast, document_style, page, stylesheet
from xfeval.view.tables import latex_escape, markdown_escape, number_class, read_csv, table, write_csv

PLAIN = pd.DataFrame(dict(method=["shapley", "lime_50%", "random"], MAP=[.5, .25, np.nan], n=[100, 100, 0]))
FRAMES = dict(plain=PLAIN, filled=PLAIN.fillna(0), texts=PLAIN[["method"]], empty=PLAIN[:0],
              numbers=pd.DataFrame(dict(a=[1, -22], b=[-.5, 10.])),
              mixed=pd.DataFrame(dict(a=["x", None, "y"], c=[1., 2., 3.])),
              lines=pd.DataFrame(dict(a=["x\n y", "z"], b=[1, 2])))
HOSTILE = ["a|b", "a\\|b", "two\nlines", "<script>alert('x & y')</script>", "=1+1",
           "50% & $x_1^2$ {#} ~ \\alpha", "\x07"]
# Made by version 0.1.0, where results, comparisons and the command line wrote their own tables
BEFORE = json.loads((Path(__file__).parent/"tables_0_1_0.json").read_text(encoding="utf8"))


def short_hash(text): return hashlib.sha256(text.encode()).hexdigest()[:16]
def rows_of(text): return [cells_of(line) for line in text.splitlines()] # only the padding is ours to choose
def cells_of(line): return [re.sub(r"^:?-{3,}:?$", "---", c.strip()) for c in re.split(r"(?<!\\)\|", line.strip("|"))]


# ---------------------------------------------------------------- the same as before

@pytest.mark.parametrize("name", FRAMES)
def test_latex_html_and_text_stay(name):
    df, before = FRAMES[name], BEFORE["frames"][name]
    assert table(df, "html", "A <caption>", 2) == before["html"]
    assert table(df, "text", digits=4) == before["text"] and table(df, "text", digits=4, width=12) == before["text12"]
    if name == "empty": # no blank line for no rows, and no column of numbers without a number
        assert table(df, "latex", "A_caption", 2) == before["latex"].replace("\n\n", "\n").replace("lrr", "lll")
    elif name != "lines": # a line break is a space now: two of them would end the table
        assert table(df, "latex", "A_caption", 2) == before["latex"]


@pytest.mark.parametrize("name", FRAMES)
def test_markdown_stays_except_for_whole_numbers_missing_cells_and_line_breaks(name):
    df, before = FRAMES[name], BEFORE["frames"][name]["markdown"]
    if name in ("plain", "filled", "texts"): assert rows_of(table(df, digits=2, missing="nan")) == rows_of(before)
    if name == "numbers": # whole numbers were 1.00
        assert rows_of(table(df, digits=2))[2:] == [["1", "-0.50"], ["-22", "10.00"]]
    assert "nan" not in table(df, digits=2) and "\n y" not in table(df, digits=2)


def test_published_tables_stay():
    for name, before in BEFORE["published"].items():
        for format in ("html", "latex"): assert short_hash(table(published(name), format)) == before[format], name


@pytest.mark.parametrize("before", BEFORE["comparisons"])
def test_comparisons_with_published_numbers_stay(before):
    "Rows of heads, bold cells, classes and notes"
    texts = [[t for t, _ in r] for r in before["rows"]]
    levels = [[t for t, width in h for _ in range(width)] for h in before["head"]]
    df = pd.DataFrame(texts, columns=pd.MultiIndex.from_arrays(levels) if len(levels) > 1 else levels[0])
    def kind(t): return "n" if re.match(r"-?[\d.]+( |$)", t) else "gone" if t.startswith("not available") else ""
    options = dict(bold=[[bold for _, bold in r] for r in before["rows"]], notes=before["notes"])
    assert table(df, "html", "A & b", classes=kind, **options) == before["html"]
    assert table(df, "latex", "A & b", **options) == before["latex"]
    now, old = (text.splitlines() for text in (table(df, caption="A", **options), before["markdown"]))
    n = len(before["notes"])
    old = [l.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for l in old]
    assert [cells_of(l) for l in now[:-n]] == [cells_of(l) for l in old[:-n]]
    assert [l.replace(r"\|", "|") for l in now[-n:]] == old[-n:]


def test_csv_bytes_of_all_tables_stay():
    for name in list_published():
        df = published(name)
        text = df.to_csv(index=False, float_format="%.6g")
        assert write_csv(df) == text, name
        plain = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])
        pd.testing.assert_frame_equal(read_csv(text), plain)


# ---------------------------------------------------------------- escaping

class Cells(HTMLParser):
    "Tags and cells of a table"
    def __init__(self, page):
        super().__init__()
        self.tags, self.cells = [], []
        self.feed(page)
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("td", "th"): self.cells.append("")
    def handle_data(self, data):
        if self.cells: self.cells[-1] += data.rstrip("\n") if data.strip() == "" else data


def test_hostile_text_breaks_no_format():
    df = pd.DataFrame({h: [h] for h in HOSTILE})
    parsed = Cells(table(df, "html", caption=HOSTILE[3]))
    assert set(parsed.tags) == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert parsed.cells == [h.replace("\x07", "\ufffd") for h in HOSTILE]*2
    lines = table(df).splitlines()
    assert len(lines) == 3 and "<script" not in lines[0]
    for line in lines[::2]: # a pipe ends a cell unless an odd number of backslashes stands before it
        assert len([m for m in re.finditer(r"(\\*)\|", line) if len(m[1]) % 2 == 0]) == len(HOSTILE) + 1
    body = table(df, "latex", caption="50%_").splitlines()
    assert len(body) == 10 and r"\caption{50\%\_}" in body
    assert body[6].count("&") - body[6].count(r"\&") == len(HOSTILE) - 1
    assert table(df, "text").count("\n") == 1


def test_escapes():
    assert latex_escape(r"a\b{c}") == r"a\textbackslash{}b\{c\}" and latex_escape("a\n\nb") == "a b"
    assert markdown_escape("a|b") == r"a\|b" and markdown_escape("a\r\nb") == "a<br>b"
    assert markdown_escape("<b>&") == "&lt;b&gt;&amp;"


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\tx", "\rx", "\nx", "'=1", "''-a", "'", "'plain",
                                  "a=b", "-", "x\n=y", "-0x1", "−5", "1_000", "-1_0", "+ 5", "-inf", "-nan"])
def test_csv_runs_nothing_and_comes_back(text):
    df = pd.DataFrame({text: [text, "word"], "n": [-1.5, 2]})
    written = write_csv(df)
    pd.testing.assert_frame_equal(read_csv(written), df)
    first = pd.read_csv(io.StringIO(written), keep_default_na=False).iloc[0, 0]
    assert first[:1] not in "=+@\t\r\n" or first in ("-inf",)
    assert not first.startswith("-") or re.fullmatch(r"-(inf|[\d.]+)", first)


def test_csv_keeps_numbers_and_missing(tmp_path):
    df = pd.DataFrame(dict(a=[-1., np.nan, 1e-7], b=["x", None, "-0.5"], c=[-1, 2, 3]))
    text = df.to_csv(index=False, float_format="%.6g")
    assert write_csv(df, tmp_path/"a.csv") == text == (tmp_path/"a.csv").read_text()
    back = read_csv(tmp_path/"a.csv")
    assert back["a"].isna().tolist() == [False, True, False] and back["b"].isna().tolist() == [False, True, False]


# ---------------------------------------------------------------- pages

def test_a_page_of_tables_has_one_style_and_fetches_nothing():
    text = page(table(PLAIN, "html"), "<tables>", styled=True)
    assert text.count("<style>") == 1 and stylesheet in text and document_style in text and "&lt;tables&gt;" in text
    assert text.startswith("<!doctype html>") and '<body class="xf document"><table>' in text
    assert not re.search(r"(src|href)=|url\(|@import|https?://", text)
    assert "document" not in page("<p></p>") and "document" not in stylesheet


def test_marked_cells_can_be_read():
    inks = re.findall(r"background:(#[0-9a-f]{6})", document_style)
    assert len(inks) == 5 and all(contrast("#1b1b1b", c) >= 4.5 for c in inks)


# ---------------------------------------------------------------- refusals

def test_refusals():
    with pytest.raises(ValueError, match="did you mean 'markdown'"): table(PLAIN, "markdwn")
    with pytest.raises(ValueError, match="width"): table(PLAIN, "html", width=10)
    with pytest.raises(ValueError, match="bold has the shape"): table(PLAIN, bold=[[True]])
    assert number_class(1) == number_class(.5) == "n"
    assert number_class(True) == number_class("1") == number_class(np.nan) == ""
