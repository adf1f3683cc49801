"Pictures: everything escaped, every script placed, files written, figures without warnings"
from xfeval.view.text import (arcs_html, block_edges, blocks_of, compare_html, heatmap_html, highlight_html,
                              parallel_html, scene, to_svg, top_items)
from xfeval.metrics.curves import curve_table
from xfeval.view.figures import (_measurer, colour_map, drawable, plot_curves, plot_metric_table, plot_properties, plot_spans,
                                 plot_tokens)
from xfeval.view.html import _rgb, contrast, ink_on, negative, positive, shade, strongest, stylesheet
import re, warnings
from html.parser import HTMLParser
from xml.dom import minidom

import numpy as np
import pandas as pd
import pytest

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold, Instance

_light, _dark = re.findall(r"(--fg:.*?--dash:[\d,]+)", stylesheet)[:2]
HOSTILE = ['<script>alert("x & y")</script> costs $5 & $x^{', "'quoted' <img src=x onerror=alert(1)> \x07 \U0001F600"]
TEXTS = dict(en=["A man plays the violin on a corner.", "Nobody is making music."],
             zh=["一个戴草帽的男人在街角拉小提琴。", "有人正在户外演奏乐器。"],
             ar=["رجل يعزف على الكمان أمام New York Cafe.", "شخص يصنع الموسيقى."],
             ur=["ایک آدمی گلی میں وائلن بجا رہا ہے۔", "کوئی موسیقی بنا رہا ہے۔"],
             he=["איש מנגן בכינור ברחוב.", "מישהו עושה מוזיקה."],
             hi=["एक आदमी सड़क पर वायलिन बजाता है।", "कोई संगीत बना रहा है।"],
             th=["ผู้ชายเล่นไวโอลิน", "มีคนเล่นดนตรี"])

def inst(texts=TEXTS["en"], lang="en", **kw): return Instance.from_text(texts, lang=lang, **kw)
def token(x, seed=0):
    return Explanation.from_scores(x, np.random.default_rng(seed).normal(0, 1, x.n_words), method="shapley",
                                   target="yes")
def pair(x, seed=0):
    return Explanation.from_scores(x, np.random.default_rng(seed).normal(0, 1, x.sizes), kind="pair",
                                   method="interaction", target="yes")
def span(x):
    m = x.sizes[0]
    return Explanation.from_scores(x, {((0, 2), (m, m+1)): .5, ((1, 1), (m+1, m+1)): -.3, ((1, 3), (m+1, m+2)): .2},
                                   kind="span", method="spans", target="yes")
def all_html(x):
    return [highlight_html(token(x)), arcs_html(pair(x), k=5), arcs_html(span(x)),
            heatmap_html(pair(x), communities=span(x)), compare_html([token(x), pair(x), span(x)]),
            parallel_html([x, token(x)])]

class Tags(HTMLParser):
    "Tags, attributes and visible text of a page"
    def __init__(self, page):
        super().__init__()
        self.tags, self.attrs, self.text, self.open, self._skip = [], [], "", [], 0
        self.feed(page)
        self.close()
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs += [(tag, k, v) for k, v in attrs]
        self._skip += tag in ("style", "title")
        if tag not in ("meta", "br", "rect", "path", "circle"): self.open.append(tag)
    def handle_endtag(self, tag):
        self._skip -= tag in ("style", "title")
        if tag in ("rect", "path", "circle"): return
        assert self.open.pop() == tag
    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs += [(tag, k, v) for k, v in attrs]
    def handle_data(self, d): self.text += "" if self._skip else d

# ---------------------------------------------------------------- safety

def test_hostile_text_never_becomes_markup():
    x = inst(HOSTILE, id='"><script>1</script>', label="<b>label</b>")
    for e in (token(x), pair(x), span(x)):
        e = e.replace(method="<i>m</i>", target="a\"onmouseover='x'", notes=("<u>note</u>",))
        for page in (e.to_html(whole=True), compare_html([e]), parallel_html([e])):
            t = Tags(page)
            assert not {"script", "img", "b>label", "i", "u"} & set(t.tags) and t.open == []
            assert not [a for a in t.attrs if a[1].startswith("on")] and "\x07" not in page
    for page in all_html(x): assert not {"script", "img"} & set(Tags(page).tags)
    assert "<script>alert" in Tags(highlight_html(token(x))).text

def test_svg_is_xml_and_escaped():
    x = inst(HOSTILE)
    for e in (token(x), pair(x), span(x)):
        doc = minidom.parseString(to_svg(e))
        names = {n.tagName for n in doc.getElementsByTagName("*")}
        assert names <= {"svg", "style", "rect", "g", "title", "path", "text", "circle"}
        words = [t.firstChild.data for t in doc.getElementsByTagName("text")]
        assert words[:3] == ["<", "script", ">"]

def test_nothing_is_fetched():
    x = inst()
    for page in [*all_html(x), token(x).to_html(whole=True), to_svg(pair(x))]:
        assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)

# ---------------------------------------------------------------- text

@pytest.mark.parametrize("lang", TEXTS)
def test_text_is_shown_whole_and_in_its_direction(lang):
    x = inst(TEXTS[lang], lang)
    t = Tags(highlight_html(token(x)))
    for part in x.texts: assert part in t.text
    assert [v for tag, k, v in t.attrs if tag == "p"
            and k == "dir"] == ["rtl" if lang in ("ar", "ur", "he") else "auto"]*2
    assert {v for tag, k, v in t.attrs if tag == "p" and k == "lang"} == {lang}

def test_every_word_has_its_score_on_hover():
    x = inst()
    e = token(x)
    t = Tags(highlight_html(e))
    titles = [v for tag, k, v in t.attrs if k == "title"]
    assert len(titles) == x.n_words
    for w, s in e: assert any(v.startswith(f"{x.words[w]}: {s:+.4f}") for v in titles)

def test_colour_follows_sign_and_size():
    x = inst("good bad nothing")
    page = highlight_html(Explanation.from_scores(x, [1., -.5, 0.]))
    assert 'class="w p" style="--a:0.75"' in page and 'class="w n" style="--a:0.375"' in page
    assert 'class="w" style="--a:0"' in page
    assert shade(3., 1.) == ("p", strongest) and shade(1., 0.) == ("", 0.)
    assert "all scores are zero" in highlight_html(Explanation.from_scores(x, [0., 0, 0]))

def test_text_stays_readable_on_every_colour():
    def lum(c):
        c = np.array(c)/255
        c = np.where(c <= .03928, c/12.92, ((c+.055)/1.055)**2.4)
        return c @ [.2126, .7152, .0722]
    rgb = lambda h: np.array([int(h[i:i+2], 16) for i in (1, 3, 5)])
    for css in (_light, _dark):
        v = dict(p.split(":") for p in css.split(";"))
        fg, bg = rgb(v["--fg"]), rgb(v["--bg"])
        ratio = lambda a, b: (max(lum(a), lum(b))+.05)/(min(lum(a), lum(b))+.05)
        for hue in (positive, negative):
            for alpha in np.linspace(0, strongest, 9): assert ratio(fg, alpha*rgb(hue)+(1-alpha)*bg) >= 4.5
        assert ratio(rgb(v["--mute"]), bg) >= 4.5
        assert min(ratio(rgb(v["--lp"]), bg), ratio(rgb(v["--ln"]), bg)) >= 3

def test_empty_parts_and_explanations():
    x = inst(["", "Something."])
    for page in (highlight_html(token(x)), highlight_html(Explanation(x, "token", (), [])),
                 arcs_html(Explanation(x, "pair", (), []))):
        assert Tags(page).open == []
    assert "<path" not in arcs_html(Explanation(x, "pair", (), []))
    plot_tokens(token(x))
    plot_spans(Explanation(x, "span", (), []))
    plt.close("all")

def test_fixed_parts_are_grey():
    x = Instance.from_text(["A text.", "A query?"], fixed=(1,))
    assert highlight_html(Explanation.from_scores(x, [1., 2, 3])).count('class="t fixed"') == 1

# ---------------------------------------------------------------- scenes

@pytest.mark.parametrize("lang", TEXTS)
def test_words_do_not_overlap_and_stay_inside(lang):
    x = inst([TEXTS[lang][0]*6, TEXTS[lang][1]], lang)
    s = scene(pair(x), k=6, width=400)
    assert len(s["words"]) == x.n_words
    rows = {}
    for _, cx, cy, w, i in s["words"]:
        rows.setdefault(cy, []).append((cx-w/2, cx+w/2))
        assert 0 <= cx-w/2 and cx+w/2 <= s["width"] <= 460
    assert len(rows) > 2
    for r in rows.values():
        r.sort()
        assert all(a[1] <= b[0]+1e-6 for a, b in zip(r, r[1:]))
    for l, t, w, h, *_ in s["boxes"]: assert 0 <= l and l+w <= s["width"] and 0 <= t and t+h <= s["height"]

def test_right_to_left_and_the_english_inside_it():
    x = inst(["رجل يعزف New York Cafe كمان", "شخص"], "ar")
    at = {w: cx for w, cx, *_ in scene(pair(x))["words"]}
    assert at["رجل"] > at["يعزف"] > at["Cafe"] > at["York"] > at["New"] > at["كمان"]

def test_links_are_as_wide_as_their_scores():
    x = inst()
    m = x.sizes[0]
    e = Explanation.from_scores(x, {(0, m): 1., (1, m+1): -.5, (2, m+2): .25}, kind="pair")
    svg = to_svg(e)
    paths = re.findall(r'<path class="(s[pn])"[^>]*stroke="([^"]+)" stroke-width="([^"]+)"[^>]*?(stroke-dasharray)?[^>]*/>', svg)
    assert [(c, col, float(w)) for c, col, w, _ in paths] == [("sp", positive, 7.5), ("sn", negative, 4.5),
                                                              ("sp", positive, 3.)]
    assert svg.count("<path") == svg.count("<circle") == 3
    assert re.search(r'class="sn"[^>]*stroke-dasharray', svg)

def test_top_items():
    x = inst()
    m = x.sizes[0]
    e = Explanation.from_scores(x, {(0, m): .4, (1, m): .1, (2, m): -.9, (3, m): 0.}, kind="pair")
    assert [s for _, s in top_items(e, 2)] == [-.9, .4]
    assert [s for _, s in top_items(e, 2, "rank")] == [.4, .1] and len(top_items(e, None)) == 3
    with pytest.raises(ValueError, match="did you mean 'rank'"): top_items(e, 2, "ranks")
    with pytest.raises(ValueError, match="negative"): top_items(e, -1)

def test_communities_may_be_sets_spans_or_an_explanation():
    x = inst()
    m = x.sizes[0]
    e = span(x)
    a, b, c = (blocks_of(x, v) for v in ([{0, 1, 2, m, m+1}], [((0, 2), (m, m+1))], e))
    assert (a[0] == b[0]).all() and (b[0] == c[0]).all() and a[0].sum() == 6
    top, bottom, left, right = block_edges(a[0])
    assert top.sum() == bottom.sum() == 2 and left.sum() == right.sum() == 3
    assert heatmap_html(pair(x), [{0, 1}]).count("2.5px") == 0
    with pytest.raises(ValueError, match="outside"): heatmap_html(pair(x), [{0, 99}])

def test_refusals():
    x, y = inst(), inst(["Other text.", "Here."])
    with pytest.raises(ValueError, match="highlight_html"): arcs_html(token(x))
    with pytest.raises(ValueError, match="one instance"): compare_html([token(x), token(y)])
    with pytest.raises(ValueError, match="one id"): parallel_html([x, y])
    with pytest.raises(ValueError, match="str"): parallel_html(["text"])
    for f in (compare_html, parallel_html):
        with pytest.raises(ValueError, match="nothing"): f([])

def test_parallel_names_aligned_words():
    en = Instance.from_words([["A", "man", "sings"]], id="p", gold=Gold(tokens={1, 2}))
    de = Instance.from_words([["Ein", "Mann", "singt"]], lang="de", id="p", links={(0, 0), (1, 1), (2, 2)},
                             gold=Gold(tokens={1, 2}))
    page = parallel_html([en, de])
    assert "gold, aligned with man" in page and page.count('class="w p"') == 4

# ---------------------------------------------------------------- methods of Explanation, files

def test_patched_methods():
    x = inst()
    assert token(x)._repr_html_() == highlight_html(token(x))
    assert span(x).to_html() == arcs_html(span(x))
    assert pair(x).to_html("heatmap") == heatmap_html(pair(x))
    with pytest.raises(ValueError, match="did you mean 'heatmap'"): pair(x).to_html("heatmaps")

@pytest.mark.parametrize("ending, head", [("html", b"<!doctype html>"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_save(tmp_path, ending, head):
    x = inst(HOSTILE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        for how, e in (("auto", token(x)), ("auto", span(x)), ("highlight", pair(x)), ("heatmap", pair(x))):
            f = e.save(tmp_path/f"a.{ending}", how)
            data = f.read_bytes()
            assert data.startswith(head) or (ending == "svg" and b"<svg" in data)
            again = e.save(tmp_path/f"b.{ending}", how).read_bytes()
            assert data == again
    assert plt.get_fignums() == [] and len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ValueError, match=".jpg"): token(x).save(tmp_path/"a.jpg")

@pytest.mark.parametrize("lang", TEXTS)
def test_figures_of_any_script_without_warnings(lang):
    x = inst(TEXTS[lang], lang)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        for ax in (plot_tokens(token(x)), plot_spans(span(x))): ax.figure.canvas.draw()
    plt.close("all")

def test_missing_fonts_become_boxes(monkeypatch):
    monkeypatch.setattr("xfeval.view.figures.fonts", lambda lang="en": ("DejaVu Sans",))
    _measurer.cache_clear()
    assert drawable("a 小 b", "zh") == "a □ b"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        plot_tokens(token(inst(TEXTS["zh"], "zh"))).figure.canvas.draw()
    plt.close("all")
    _measurer.cache_clear()

# ---------------------------------------------------------------- figures of results

def test_curves_show_the_mean_and_its_interval():
    df = pd.DataFrame([dict(method="m", curve="deletion", instance=i, share=g, value=g+i) for i in range(3)
                       for g in (0., .5, 1.)])
    ax = plot_curves(df)[0]
    line = ax.lines[0]
    assert np.allclose(line.get_ydata(), [1, 1.5, 2]) and "n = 3" in ax.get_title()
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert np.isclose(band.max(), 2 + 1.96*1/np.sqrt(3)) and np.isclose(band.min(), 1 - 1.96/np.sqrt(3))
    plt.close("all")
    with pytest.raises(ValueError, match="missing are curve"): plot_curves(df.drop(columns="curve"))

def test_curve_table_ends_where_the_model_says():
    import torch
    torch.set_num_threads(1)
    from xfeval.truth.tiny import new_tiny
    x, y = inst(), inst(["Two dogs run.", "An animal moves fast."])
    clf = new_tiny("bert", [*x.texts, *y.texts], ["yes", "no"], init="lively", width=16, layers=1)
    df = curve_table(clf, [token(x), token(y)], steps=4)
    full = dict(zip((x.id, y.id), clf.predict([x, y])[:, clf.index("yes")]))
    assert len(df) == 2*2*5
    for r in df.itertuples():
        if (r.curve, r.share) in (("deletion", 0.), ("insertion", 1.)):
            assert abs(r.value - full[r.instance]) < 1e-5
    plot_curves(df)
    plt.close("all")

def properties():
    return pd.DataFrame([dict(kind=k, base=b, property=p, value=.1*i+.2*j, direction="lower"
                              if p == "complexity" else "higher") for i, k in enumerate(("token", "pair", "span"))
                              for j, b in enumerate(("shapley", "attention")) for p in ("comp", "suff", "complexity")])

def test_properties():
    df = properties()
    fig = plot_properties(df)
    heights = [b.get_height() for b in fig.axes[0].patches]
    assert np.allclose(heights, [0, .2, .1, .3, .2, .4])
    assert [a.get_title()[-1] for a in fig.axes] == ["↑", "↑", "↓"]
    radar = plot_properties(df, style="radar")
    r = radar.axes[0].lines[0].get_ydata()
    assert np.allclose(r, [.1, .1, 1., .1])
    plt.close("all")
    with pytest.raises(ValueError, match="average first"): plot_properties(pd.concat([df, df]))
    with pytest.raises(ValueError, match="did you mean 'radar'"): plot_properties(df, style="rader")

def test_metric_table():
    df = pd.DataFrame([dict(method=m, kind="token", instance=i, metric=k, part="", value=v+i, direction=d) for m,
                       v in (("a", 0.), ("b", 2.)) for k, d in (("comp", "higher"), ("suff", "lower")) for i in (0, 1)]
                      + [dict(method="a", kind="token", instance=0, metric="auprc", part="", value=np.nan,
                              direction="higher")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        ax = plot_metric_table(df, digits=1)
    got = {(round(t.get_position()[1]), round(t.get_position()[0])): (t.get_text(), t.get_fontweight())
           for t in ax.texts}
    assert got[0, 0] == ("0.5", "normal") and got[1, 0] == ("2.5", "bold")
    assert got[0, 1] == ("0.5", "bold") and got[0, 2][0] == "–"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["comp ↑", "suff ↓", "auprc ↑"]
    assert "n = 2" in ax.get_xlabel()
    plt.close("all")

# ---------------------------------------------------------------- contrast

def variables(css): return dict(re.findall(r"--(\w+):(#[0-9a-fA-F]{3,6})", css))
def full(h): return h if len(h) == 7 else "#" + "".join(2*c for c in h[1:])

def test_contrast_is_the_one_of_the_guidelines():
    assert round(contrast("#000000", "#ffffff"), 2) == 21
    assert contrast("#777777", "#777777") == 1
    assert round(contrast("#767676", "#ffffff"), 2) == 4.54
    assert contrast((0, 0, 0), "#ffffff") == contrast("#ffffff", "#000000")

def test_words_can_be_read_on_every_shade():
    for theme in (_light, _dark):
        v = variables(theme)
        ground, ink = full(v["bg"]), full(v["fg"])
        for hue in (positive, negative):
            for a in np.linspace(0, strongest, 16):
                assert contrast(ink, (a*_rgb(hue) + (1-a)*_rgb(ground))/255) >= 4.5, (theme, hue, a)
        assert contrast(full(v["mute"]), ground) >= 4.5
        assert min(contrast(full(v[c]), ground) for c in ("lp", "ln")) >= 3

def test_numbers_can_be_read_on_every_cell_of_a_metric_table():
    cmap = plt.get_cmap("Blues")
    for u in np.linspace(0, 1, 51): assert contrast(ink_on(cmap(.05+.75*u)), cmap(.05+.75*u)) >= 4.5
    df = pd.DataFrame([dict(method=f"m{i}", metric="deletion", instance=0, value=v, direction="lower") for i,
                       v in enumerate(np.linspace(0, 1, 9))])
    ax = plot_metric_table(df)
    image = ax.images[0]
    cells = image.cmap(image.norm(image.get_array()))
    for t in ax.texts:
        x, y = t.get_position()
        assert contrast(matplotlib.colors.to_hex(t.get_color()), cells[int(y), int(x)]) >= 4.5
    plt.close(ax.figure)

def test_blank_colour_map_is_white_in_the_middle_and_symmetric_in_darkness():
    m = colour_map()
    assert matplotlib.colors.to_hex(m(.5)) in ("#ffffff", "#fefefe", "#fffefe", "#fefeff")
    assert abs(contrast(m(0.), "#ffffff") - contrast(m(1.), "#ffffff")) < 1.5
