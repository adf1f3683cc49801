"The demo corpora as shipped: format, ranges, balance, alignment."
import json
from collections import Counter
from pathlib import Path

import pytest

from xfeval.core.text import Gold, Instance

folder = Path(__file__).resolve().parent.parent/"data"/"demo"
languages = ["de", "es", "fr", "tr", "vi", "zh"]
labels = ["contradiction", "entailment", "neutral"]
punctuation = set(".,;:!?。，、")
negation = {"no", "not", "nobody", "none", "nothing", "cannot", "without", "hardly"}
function = set("""a an the is are was has have been being be do does will can in on of at to by for from with and so
    that it its this her his their my they""".split())

def rows(name):
    return [json.loads(s) for s in (folder/name).read_text(encoding="utf8").splitlines()]

@pytest.fixture(scope="module")
def english(): return rows("demo_nli.jsonl")

@pytest.fixture(scope="module", params=languages)
def lang(request): return request.param

@pytest.fixture(scope="module")
def translated(lang): return rows(f"demo_xnli_{lang}.jsonl")

def words(r): return r["premise"]+r["hypothesis"]

def in_a_span(r, p, q):
    "Whether a word pair lies in some span pair"
    return any(a <= p <= b and c <= q <= d for (a, b), (c, d) in r["spans"])

def faults(r):
    "What is wrong with the annotation of one line, as a list of words"
    m, n, ws = len(r["premise"]), len(words(r)), words(r)
    marked, bad = set(r["tokens"]), []
    if not (r["tokens"] and r["pairs"] and r["spans"]): bad.append("empty annotation")
    if len(marked) != len(r["tokens"]): bad.append("token twice")
    if not all(0 <= t < n and ws[t] not in punctuation for t in marked): bad.append("token out of range or punctuation")
    if not all(0 <= p < m <= q < n for p, q in r["pairs"]): bad.append("pair does not join premise and hypothesis")
    if not all({p, q} <= marked for p, q in r["pairs"]): bad.append("pair outside the highlights")
    if not all(0 <= a <= b < m <= c <= d < n for (a, b), (c, d) in r["spans"]): bad.append("span leaves its part")
    if not all(in_a_span(r, p, q) for p, q in r["pairs"]): bad.append("pair outside the spans")
    if not any(t < m for t in marked) or not any(t >= m for t in marked): bad.append("one part without highlight")
    return bad

def is_odd(w):
    "Whether a word is empty, has white space or signs that no word has, or holds punctuation"
    if not w or w != w.strip() or " " in w: return True
    return bool(set(w) & set("{}/_#*")) or (len(w) > 1 and bool(set(w) & punctuation))

def word_faults(r): return [w for w in words(r) if is_odd(w)]

def test_english_size_and_balance(english):
    n = Counter(r["label"] for r in english)
    assert len(english) >= 150 and sorted(n) == labels and len(set(n.values())) == 1

def test_english_ids_and_premises(english):
    assert len({r["id"] for r in english}) == len(english)
    assert max(Counter(tuple(r["premise"]) for r in english).values()) <= 2
    assert len({(tuple(r["premise"]), tuple(r["hypothesis"])) for r in english}) == len(english)

def test_english_annotation(english):
    assert [(r["id"], f) for r in english if (f := faults(r) + word_faults(r))] == []

def test_english_lengths(english):
    for r in english:
        p, h = [len([w for w in r[k] if w not in punctuation]) for k in ("premise", "hypothesis")]
        assert 6 <= p <= 25 and 4 <= h <= 14, r["id"]

def test_english_sentences_are_closed(english):
    for r in english:
        for k in ("premise", "hypothesis"): assert r[k][-1] == "." and r[k][0][0].isupper(), r["id"]

def test_negation_is_not_a_mark_of_one_label(english):
    n = Counter(r["label"] for r in english if negation & {w.lower() for w in r["hypothesis"]})
    assert sorted(n) == labels and max(n.values()) < .6*sum(n.values())

def test_hypothesis_length_does_not_tell_the_label(english):
    lengths = {l: [len(r["hypothesis"]) for r in english if r["label"] == l] for l in labels}
    mean = {l: sum(v)/len(v) for l, v in lengths.items()}
    assert max(mean.values())-min(mean.values()) < 1

def test_reasons_vary(english):
    for l in labels: assert len({r["reason"] for r in english if r["label"] == l}) >= 6

def test_translation_size_and_balance(translated, lang):
    n = Counter(r["label"] for r in translated)
    assert len(translated) >= 50 and sorted(n) == labels and max(n.values())-min(n.values()) <= 1
    assert {r["lang"] for r in translated} == {lang} and len({r["id"] for r in translated}) == len(translated)

def test_translation_annotation(translated):
    assert [(r["id"], f) for r in translated if (f := faults(r) + word_faults(r))] == []

def test_translation_agrees_with_english(translated, english):
    by = {r["id"]: r for r in english}
    for r in translated:
        assert (r["label"], r["reason"]) == (by[r["id"]]["label"], by[r["id"]]["reason"])

def test_same_pairs_in_every_language():
    ids = [[(r["id"], r["label"]) for r in rows(f"demo_xnli_{l}.jsonl")] for l in languages]
    assert all(x == ids[0] for x in ids)

def test_links_stay_inside_their_part(translated, english):
    by = {r["id"]: r for r in english}
    for r in translated:
        e = by[r["id"]]
        me, ne, m, n = len(e["premise"]), len(words(e)), len(r["premise"]), len(words(r))
        assert len({tuple(x) for x in r["links"]}) == len(r["links"])
        for i, j in r["links"]: assert (0 <= i < me and 0 <= j < m) or (me <= i < ne and m <= j < n), (r["id"], i, j)

def test_links_cover_content_words(translated, english):
    by, share = {r["id"]: r for r in english}, []
    for r in translated:
        e, linked = words(by[r["id"]]), {i for i, _ in r["links"]}
        content = [i for i, w in enumerate(e) if w.lower() not in function | punctuation]
        share.append(sum(i in linked for i in content)/len(content))
        target, back = [j for j, w in enumerate(words(r)) if w not in punctuation], {j for _, j in r["links"]}
        assert sum(j in back for j in target) >= .6*len(target), r["id"]
    assert min(share) >= .6 and sum(share)/len(share) >= .9

def test_highlights_follow_the_links(translated, english):
    by = {r["id"]: r for r in english}
    for r in translated:
        marked = set(by[r["id"]]["tokens"])
        for t in r["tokens"]: assert any(j == t and i in marked for i, j in r["links"]), (r["id"], words(r)[t])
        for i in marked:
            assert any(a == i and b in r["tokens"] for a, b in r["links"]), (r["id"], words(by[r["id"]])[i])

def test_lines_become_instances(translated, english):
    for r in translated + english:
        gold = Gold(r["tokens"], r["pairs"], r["spans"])
        x = Instance.from_words([r["premise"], r["hypothesis"]], r["label"], r.get("lang", "en"), r["id"], gold=gold)
        assert list(x.words) == words(r)
        for t in x.texts: assert "  " not in t and " ." not in t and " ," not in t and "' " not in t

def test_checks_can_fail(english):
    r = english[0]
    m = len(r["premise"])
    assert faults({**r, "pairs": [[m, m]]}) and faults({**r, "spans": [[[0, m], [m, m]]]})
    assert faults({**r, "tokens": [len(words(r))]}) and word_faults({**r, "premise": ["a b"]})
