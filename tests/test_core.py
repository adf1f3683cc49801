"Instances, explanations, budgets: values that round-trip and rules that hold"
import json, os, pickle, subprocess, sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from xfeval.core.game import Query, run_game
from xfeval.core.explanation import Explanation, average, item_words
from xfeval.core.text import Gold, Instance, join_words, split_words
from xfeval.core.utils import Registry, check_choice, seed_for, write_whole

SAMPLES = ["The dog's 3.5-year-old owner didn't run… why?", "Der Junge läuft, und das Mädchen schläft.",
           "Köpeğin kuyruğu uzun!", "الولد يركض في الحديقة.", "लड़का दौड़ रहा है।", "เด็กวิ่งในสวน",
           "Một người đàn ông đang chơi ghi-ta.", "一个男人在弹吉他。", "ok 👩‍👩‍👧 👍🏽 fine", "a   b\t\tc\n", "",
           "…!!!???", "«Où est l'homme?»", "x_y 1,000.50"]


@pytest.mark.parametrize("text", SAMPLES)
def test_words_cover_everything_but_white_space(text):
    spans = split_words(text)
    assert all(a < b for a, b in spans) and all(x[1] <= y[0] for x, y in zip(spans, spans[1:]))
    assert "".join(text[a:b] for a, b in spans) == "".join(text.split())


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_words_of_any_text(text):
    spans = split_words(text)
    assert all(0 <= a < b <= len(text) for a, b in spans)
    assert "".join("".join(text[a:b] for a, b in spans).split()) == "".join(text.split())
    x = Instance.from_text(text)
    assert Instance.from_dict(json.loads(json.dumps(x.to_dict()))) == x


def test_known_splits():
    def w(t): return [t[a:b] for a, b in split_words(t)]
    assert w("A man, a plan.") == ["A", "man", ",", "a", "plan", "."]
    assert w("लड़का है") == ["लड़का", "है"]
    assert w("一个男人") == list("一个男人")
    assert w("can't 3.5 x-ray") == ["can't", "3.5", "x-ray"]


@pytest.mark.parametrize("words,lang,text", [
    ("L' homme mange .".split(), "fr", "L'homme mange."),
    (["一个", "男人", "。"], "zh", "一个男人。"),
    (["He", "left", ",", "(", "alone", ")", "."], "en", "He left, (alone)."),
    (["¿", "Qué", "?"], "es", "¿Qué?"),
])
def test_joined_words_keep_their_offsets(words, lang, text):
    t, offsets = join_words(words, lang)
    assert t == text and [t[a:b] for a, b in offsets] == words


def test_bad_words_are_refused():
    with pytest.raises(ValueError, match="may not be empty"): join_words(["a", ""])
    with pytest.raises(ValueError, match="one or two parts"): Instance.from_text(["a", "b", "c"])
    with pytest.raises(ValueError, match="must be a string"): Instance.from_text([1, "b"])
    with pytest.raises(ValueError, match="class name"): Instance.from_text("a", label=0)
    with pytest.raises(ValueError, match="outside the 1 words"): Instance.from_text("a", gold=Gold(tokens=[4]))
    with pytest.raises(ValueError, match="unknown fields"):
        Instance.from_dict(dict(texts=["a"], offsets=[[[0, 1]]], colour="red"))


def pair(m=4, n=3): return Instance.from_words([[f"a{i}" for i in range(m)], [f"b{i}" for i in range(n)]], id="x")


def test_values_are_immutable_and_hashable():
    x, e = pair(), Explanation.from_scores(pair(), np.arange(7.))
    with pytest.raises(AttributeError): x.label = "y"
    with pytest.raises(AttributeError): e.kind = "pair"
    with pytest.raises(ValueError): e.scores[0] = 9
    with pytest.raises(TypeError): e.options["a"] = 1
    assert len({x, pair()}) == 1 and hash(e) == hash(Explanation.from_scores(pair(), np.arange(7.)))


def test_ties_and_noise_below_a_millionth():
    e = Explanation(pair(), "pair", [(2, 5), (0, 6), (0, 4)], [.5, .5 + 3e-7, .5 - 3e-7])
    assert e.items == ((0, 4), (0, 6), (2, 5))
    s = Explanation(pair(), "span", [((1, 2), (4, 4)), ((0, 0), (5, 6))], [-0., 0.])
    assert s.items[0] == ((0, 0), (5, 6))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=12, max_size=12), st.permutations(range(12)))
def test_order_of_input_does_not_matter(scores, order):
    items = [(p, q) for p in range(4) for q in range(4, 7)]
    a = Explanation(pair(), "pair", items, scores)
    b = Explanation(pair(), "pair", [items[i] for i in order], [scores[i] for i in order])
    assert a == b and Explanation.from_dict(json.loads(json.dumps(a.to_dict()))) == a


def test_budgets_of_the_spec():
    s = Explanation(pair(), "span", [((0, 1), (4, 4)), ((2, 2), (4, 4)), ((3, 3), (5, 5))], [.9, .8, .7])
    p = Explanation(pair(), "pair", [(0, 4), (2, 6), (1, 4)], [.9, .8, .7])
    assert [s.theta(k) for k in (1, 2, 3)] == [3, 4, 6]
    taken = {r: set(p.take(3, r)) for r in ("floor", "ceil", "truncate")}
    assert taken == dict(floor={0, 4}, ceil={0, 2, 4, 6}, truncate={0, 2, 4})
    assert s.T(0) == frozenset() and s.T(99) == frozenset(range(6))
    with pytest.raises(ValueError, match="negative"): s.T(-1)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 12), st.integers(0, 10**6), st.sampled_from(["truncate", "floor", "ceil"]))
def test_budgets_hold_for_any_pairs(theta, seed, rule):
    rng = np.random.default_rng(seed)
    items = [(p, q) for p in range(4) for q in range(4, 7)]
    e = Explanation(pair(), "pair", items, rng.normal(size=12))
    got = e.take(theta, rule)
    assert len(set(got)) == len(got)
    if rule == "truncate": assert len(got) == min(theta, 7) and list(got) == list(e.ranking())[:len(got)]
    if rule == "floor": assert len(got) <= theta
    if rule == "ceil": assert min(theta, 7) <= len(got) <= theta + 1


def test_flattening_gives_a_word_its_best_item():
    s = Explanation(pair(), "span", [((0, 1), (4, 4)), ((2, 2), (4, 4))], [.9, .5])
    assert dict(s.flat()) == {0: .9, 1: .9, 4: .9, 2: .5}
    assert s.matrix()[0, 0] == .9 and s.matrix()[2, 0] == .5 and s.matrix()[3, 2] == 0
    assert item_words(((0, 1), (4, 5)), "span") == (0, 1, 4, 5)


def test_scores_from_elsewhere():
    x = Instance.from_text("unbelievable film")
    pieces = [(0, 0, 0), (0, 0, 2), (0, 2, 12), (0, 13, 17), (0, 0, 0)]
    e = Explanation.from_scores(x, [9., .2, .3, .1, 9.], offsets=pieces)
    np.testing.assert_allclose(e.vector(), [.5, .1])
    with pytest.raises(ValueError, match="not a finite number"): Explanation.from_scores(x, [1., float("inf")])
    with pytest.raises(ValueError, match="2 words"): Explanation.from_scores(x, [1.])
    with pytest.raises(ValueError, match="shape"): Explanation.from_scores(pair(), np.ones((2, 2)), kind="pair")
    with pytest.raises(ValueError, match="need two parts"): Explanation(x, "pair", [(0, 1)], [1.])


def test_average_over_seeds():
    es = [Explanation.from_scores(pair(), np.random.default_rng(s).normal(size=7)) for s in range(5)]
    np.testing.assert_allclose(average(es).vector(), np.mean([e.vector() for e in es], 0))
    with pytest.raises(ValueError, match="one instance"):
        average([es[0], Explanation.from_scores(pair(2, 2), np.ones(4))])


def test_fixed_parts_are_not_explained():
    x = Instance.from_words([["a", "b"], ["q"]], fixed=(1,))
    assert x.explained.tolist() == [0, 1] and Explanation.from_scores(x, [.1, .2]).items == (1, 0)


def test_registry_and_choices():
    r = Registry("thing")
    r("one", colour="red")(lambda: 1)
    assert r["one"]() == 1 and r.table().colour[0] == "red" and len(r) == 1
    with pytest.raises(ValueError, match="did you mean 'one'"): r["ones"]
    with pytest.raises(ValueError, match="allowed are a, b"): check_choice("zzz", ["a", "b"], "letter")


def test_files_are_whole_or_absent(tmp_path, monkeypatch):
    write_whole(tmp_path/"a", "old")
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError): write_whole(tmp_path/"a", "new")
    assert (tmp_path/"a").read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a"]


def test_seeds_belong_to_names():
    key = "demo-001", "shapley"
    assert seed_for(0, *key) == seed_for(0, *key) != seed_for(1, *key)


def test_queries_and_games():
    def gen():
        v = yield np.eye(2, dtype=bool)
        return v.sum()
    assert run_game(gen(), lambda Z: Z @ [1., 2.]) == 3.
    with pytest.raises(ValueError, match="boolean"): Query(np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"\[0, 1\]"): Query(np.full((1, 2), 2.), absent="soft_bernoulli")


def test_values_travel_between_processes():
    x = pair().replace(meta=dict(a=1), gold=Gold(tokens=[0]))
    e = Explanation.from_scores(x, np.arange(7.), options=dict(budget=3), notes=["truncated"], baseline=True)
    assert pickle.loads(pickle.dumps(x)) == x and pickle.loads(pickle.dumps(e)) == e


@pytest.mark.parametrize("text,words", [
    ("L'homme qu'on voit n'aime pas l’arc-en-ciel.",
     ["L'", "homme", "qu'", "on", "voit", "n'", "aime", "pas", "l’", "arc-en-ciel", "."]),
    ("Aujourd'hui, quelqu'un parle jusqu'à midi.",
     ["Aujourd'hui", ",", "quelqu'un", "parle", "jusqu'", "à", "midi", "."]),
    ("d'aujourd'hui, presqu'île, a-t-il, 3,5", ["d'", "aujourd'hui", ",", "presqu'île", ",", "a-t-il", ",", "3,5"]),
])
def test_french_elisions_are_words_of_their_own(text, words):
    assert [text[a:b] for a, b in split_words(text, "fr")] == words
    assert "".join(text[a:b] for a, b in split_words(text)) == "".join(words)


def test_elision_is_split_in_french_only():
    assert [("L'homme")[a:b] for a, b in split_words("L'homme")] == ["L'homme"]
    assert [("don't")[a:b] for a, b in split_words("don't", "fr")] == ["don't"]


@pytest.mark.parametrize("lang", ["en", "de", "es", "fr", "vi", "tr"])
def test_raw_text_of_our_corpora_is_cut_into_the_same_words_again(lang):
    from xfeval.data.datasets import load_data
    for x in [*load_data("demo-xnli", lang=lang), *load_data("controlled-xnli", lang=lang, n=60)]:
        assert Instance.from_text(x.texts, lang=lang).parts == x.parts


def test_code_of_rooms():
    from xfeval._rooms import code_of
    assert code_of("models") != code_of("engine") and code_of("models") == code_of("models")
    assert code_of("explainers", "models") != code_of("explainers")
    with pytest.raises(ValueError, match="no room"): code_of("cellar")


def fresh(code):
    "The output of a program run in a new process"
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


def test_core_needs_numpy_only():
    heavy = "pandas torch scipy sklearn transformers matplotlib IPython networkx yaml".split()
    code = f"""
import sys
import xfeval.core.utils, xfeval.core.text, xfeval.core.explanation, xfeval.core.game
print("numpy" in sys.modules, *[m for m in {heavy} if m in sys.modules], *[m for m in sys.modules
      if m.startswith("xfeval.") and not m.startswith(("xfeval.core", "xfeval._rooms", "xfeval._moved"))])"""
    assert fresh(code) == ["True"]


@pytest.mark.parametrize("first", ["xfeval.core.explanation", "xfeval", "xfeval.core", "xfeval.view.show", "xfeval.view.html"])
def test_explanations_show_themselves_whatever_is_imported_first(first):
    code = f"""
import {first}
from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance
e = Explanation.from_scores(Instance.from_text("a film"), [1., 2.])
print(all(hasattr(Explanation, m) for m in ("show", "to_html", "save")), "film" in e.to_html(), e._repr_html_() == e.to_html())"""
    assert fresh(code) == ["True"]*3


def test_explanations_are_saved_and_refuse_unknown_pictures(tmp_path):
    e = Explanation.from_scores(Instance.from_text("a film"), [1., 2.])
    assert e.save(tmp_path/"a.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ValueError, match="unknown picture 'arc'.*did you mean 'arcs'"): e.to_html("arc")


def test_a_registry_is_completed_by_the_modules_the_package_names(tmp_path, monkeypatch):
    import xfeval
    module = "registers_a_parting"
    (tmp_path/f"{module}.py").write_text("""
from test_registry_of_greetings import greetings
@greetings("bye")
def bye(): "A parting"
""")
    greetings = Registry("greeting")
    monkeypatch.setitem(sys.modules, "test_registry_of_greetings", type(sys)("x"))
    sys.modules["test_registry_of_greetings"].greetings = greetings
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(xfeval.registers, "greeting", (module,))
    greetings("hello")(lambda: 1)
    assert module not in sys.modules and "bye" in greetings and list(greetings) == ["hello", "bye"]
    assert greetings.info("bye")["description"] == "A parting" and len(greetings.table()) == 2
    with pytest.raises(ValueError, match="unknown greeting 'by'.*did you mean 'bye'"): greetings.info("by")
    monkeypatch.delitem(sys.modules, module)


OLD = json.loads((Path(__file__).parent/"explanations_0_1_0.json").read_text())


def test_json_of_version_0_1_0_is_read():
    x, q = instances = [Instance.from_dict(d) for d in OLD["instances"]]
    assert [i.to_dict() for i in instances] == OLD["instances"]
    assert x.gold.spans == {((2, 3), (7, 8))} and x.links == {(0, 0), (1, 6)} and q.fixed == (1,)
    *es, short = [Explanation.from_dict(d, {"guitar": x}) for d in OLD["explanations"]]
    for e, d in zip(es, OLD["explanations"]):
        assert {k: v for k, v in e.to_dict().items() if k != "baseline"} == d
    assert short == es[0] and [e.baseline for e in es] == [False, True, True, False]


def test_a_baseline_says_so():
    x = pair()
    assert Explanation.from_scores(x, np.ones(7), method="random").baseline
    assert not Explanation.from_scores(x, np.ones(7), method="lime").baseline
    e = Explanation.from_scores(x, np.ones(7), method="shuffled", baseline=True)
    assert e.baseline and e.flat().baseline and Explanation.from_dict(e.to_dict()).baseline
    assert not e.replace(method="random", base="random", baseline=False).baseline
