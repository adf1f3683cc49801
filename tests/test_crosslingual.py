"Cross-lingual faithfulness and the e-XNLI export: oracles, peers, properties, scripts, and the files that come out"
import json, math, os, sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve
from torch import nn

from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold, Instance
from xfeval.core.utils import data_root, seed_for
from xfeval.crosslingual import exnli as export, highlights as ex
from xfeval.stats.f1 import resampled_macro_f1
from xfeval.crosslingual.links import link_table
from xfeval.crosslingual.projection import (agreement, cross_lingual, language_f1, project, project_pairs, rho_table,
                                            same_predictions, spearman)
from xfeval.data.datasets import load_data
from xfeval.data.parallel import parallel_data
from xfeval.engine.run import Engine
from xfeval.explainers.explain import explain
from xfeval.papers.published import published
from xfeval.papers.zaman2022.study import (aligner_effect, attribute_cells, cell, cell_outputs, cell_rows, chosen_steps,
                                           corrupt_links, cross_lingual_faithfulness, null_models, null_rho,
                                           random_explanations, separation, shuffle_links, steps_table,
                                           truth_explanations)
from xfeval.truth.tiny import new_tiny

ORACLES = json.loads((Path(__file__).parent/"oracles.json").read_text())
LABELS = ["entailment", "neutral", "contradiction"]
LANGS = ["de", "zh"]

def untrained(data, **size):
    "A small model that knows the words of parallel data, and nothing else"
    texts = [t for xs in data.values() for x in xs for t in x.texts]
    return new_tiny("bert", texts, LABELS, **{"max_length": 128, "init": "lively", **size})


@pytest.fixture(scope="module")
def data(): return parallel_data("controlled-xnli", LANGS, n=4)

@pytest.fixture(scope="module")
def clf(data): return untrained(data, width=32)

@pytest.fixture(scope="module")
def cells(clf, data):
    small = dict(steps=4, lime_samples=12, shapley_samples=2, engine=Engine(clf))
    return {l: attribute_cells(clf, xs, **small) for l, xs in data.items()}

def pair_of(n, m, links, s, t, label="neutral"):
    "Two one-part explanations with the given scores"
    x = Instance.from_words([f"e{i}" for i in range(n)], label, id="a")
    y = Instance.from_words([f"d{j}" for j in range(m)], label, "de", "a", links=frozenset(links))
    return Explanation.from_scores(x, s), Explanation.from_scores(y, t)

# projection and correlation

def test_oracle_rho():
    links = {(0, 0), (1, 1), (1, 3), (2, 2)}
    assert project([.2, .3, .1, .4], links, 3) == pytest.approx([.2, .7, .1])
    e = pair_of(3, 4, links, [.1, .5, .4], [.2, .3, .1, .4])
    assert agreement(*e) == pytest.approx(.5) == pytest.approx(ORACLES["cross_lingual_rho"])

def test_a_word_with_two_partners_counts_for_both_and_an_unlinked_word_gets_nothing():
    assert project([1., 2.], {(0, 0), (1, 0)}, 3).tolist() == [1., 1., 0.]

def test_unlinked_words_can_be_left_out():
    e = pair_of(3, 2, {(0, 0), (1, 1)}, [1., 2., 3.], [1., 2.])
    assert agreement(*e) == pytest.approx(-.5) and agreement(*e, unlinked="drop") == pytest.approx(1.)

def test_parts_apart():
    x = Instance.from_words((["a", "b"], ["c", "d"]), id="a")
    y = x.replace(lang="de", links=frozenset((i, i) for i in range(4)))
    e = Explanation.from_scores(x, [1, 2, 3, 4]), Explanation.from_scores(y, [2, 1, 3, 4])
    assert agreement(*e) == pytest.approx(.8) and agreement(*e, joint=False) == pytest.approx(0.)

def test_refuses_links_outside():
    with pytest.raises(ValueError, match="outside"): project([1., 2.], {(0, 5)}, 2)
    with pytest.raises(ValueError, match="did you mean 'drop'"):
        agreement(*pair_of(2, 2, {(0, 0)}, [1, 2], [1, 2]), unlinked="dorp")

@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=3, max_size=20), st.integers(0, 10**6))
def test_spearman_is_scipys(a, seed):
    b = np.random.default_rng(seed).integers(-3, 4, len(a))
    got = spearman(a, b)
    if len(set(a)) == 1 or len(set(b.tolist())) == 1: assert math.isnan(got) and "constant" in got.note
    else: assert got == pytest.approx(spearmanr(a, b)[0])

@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=25, unique_by=lambda v: round(v, 3)), st.integers(0, 10**6))
def test_identical_scores_and_true_links_give_one(s, seed):
    p, t = np.random.default_rng(seed).permutation(len(s)), np.empty(len(s))
    t[p] = s
    e = pair_of(len(s), len(s), {(k, int(p[k])) for k in range(len(s))}, s, t)
    assert agreement(*e) == pytest.approx(1.)

def test_shuffled_links_give_about_zero():
    rng, en, de = np.random.default_rng(0), [], []
    for i in range(60):
        s = rng.standard_normal(20)
        for e, of_lang in zip(pair_of(20, 20, {(k, k) for k in range(20)}, s, s), (en, de)):
            of_lang.append(e.replace(instance=e.instance.replace(id=str(i))))
    assert rho_table(cross_lingual(en, de)).rho[0] == pytest.approx(1.)
    for null in null_models:
        r = rho_table(null_rho(en, de, null=null, draws=4)).iloc[0]
        assert abs(r.rho) < .06, null

def test_shuffled_partners_keep_the_number_of_links_of_each_english_word():
    links = frozenset({(0, 0), (0, 1), (2, 2)})
    got = shuffle_links(links, 4, 5, 3, "shuffled partners")
    assert sorted(k for k, _ in got) == [0, 0, 2] and len({j for _, j in got}) == 3

def test_pairs_by_hand():
    x, links = Instance.from_words((["a", "b"], ["c"]), id="i"), frozenset({(0, 1), (0, 2), (1, 0), (2, 3)})
    y = Instance.from_words((["B", "A1", "A2"], ["C"]), id="i", lang="de", links=links)
    assert project_pairs([[5.], [1.], [2.]], links, x.sizes).tolist() == [[3.], [5.]]
    pairs = [Explanation.from_scores(x, np.array([[1.], [2.]]), kind="pair"),
             Explanation.from_scores(y, np.array([[5.], [1.], [2.]]), kind="pair")]
    assert agreement(*pairs) == pytest.approx(1.)
    spans = [Explanation.from_scores(x, {((0, 0), (2, 2)): 1., ((1, 1), (2, 2)): 3.}, kind="span"),
             Explanation.from_scores(y, {((1, 2), (3, 3)): 1., ((0, 0), (3, 3)): 9.}, kind="span")]
    assert agreement(*spans) == pytest.approx(1.)

# averages

def frame(values): # {lang: [values]}
    df = pd.DataFrame([dict(instance=str(i), lang=l, value=v) for l, vs in values.items() for i, v in enumerate(vs)])
    note = np.where(df.value.isna(), "constant scores in the source", "")
    return df.assign(method="m", note=note, words=5, unlinked=1)

def test_languages_count_the_same_and_missing_values_are_counted():
    df = frame({"de": [1., math.nan, math.nan], "zh": [0., 0., .3]})
    r = rho_table(df).iloc[0]
    assert r.rho == pytest.approx((1+.1)/2) and r.unlinked == .2 and r.n == 3 and r.langs == 2
    assert r.skipped == 2 and r.reasons == "constant scores in the source (2)"
    assert rho_table(df, missing="zero").rho[0] == pytest.approx((1/3+.1)/2)
    with pytest.raises(ValueError, match="missing correlations"): rho_table(df, missing="zeros")

def test_intervals_cover_the_mean_and_repeat():
    rng = np.random.default_rng(1)
    df = frame({l: rng.normal(.4, .2, 40).tolist() for l in ("de", "es", "fr")})
    a, b = rho_table(df, seed=3), rho_table(df, seed=3)
    pd.testing.assert_frame_equal(a, b)
    r = a.iloc[0]
    assert r.low < r.rho < r.high and r.low_lang < r.rho < r.high_lang and .02 < r.high-r.low < .2

def test_no_correlation_at_all_is_not_a_number():
    r = rho_table(frame({"de": [math.nan, math.nan]})).iloc[0]
    assert math.isnan(r.rho) and r.skipped == 2

# the cells

def test_the_cells_are_those_of_the_published_table(cells):
    p = published("zaman2022_table01").fillna({"aggregation": ""})
    want = {cell(r.method, r.aggregation, r.output) for r in p.itertuples()}
    assert want == {e.method for e in cells["en"]} and len(want) == 26 and len(cells["en"]) == 26*4

@pytest.mark.parametrize("name, method, options", [
    ("Saliency/mean/top_prediction", "saliency", dict(output="logit_top")),
    ("Saliency/L2/loss", "saliency", dict(output="neg_loss", aggregation="l2")),
    ("GuidedBackprop/L2/loss", "guided_backprop", dict(output="neg_loss", aggregation="l2")),
    ("InputXGradient/mean/loss", "input_x_gradient", dict(output="neg_loss", aggregation="mean")),
    ("IntegratedGradients/L2/loss", "integrated_gradients", dict(output="neg_loss", aggregation="l2", steps=4)),
    ("Activation/L2/loss", "activation", dict(aggregation="l2")),
    ("LIME//top_prediction", "lime_zaman", dict(output="logit_top", samples=12)),
    ("Occlusion//loss", "occlusion", dict(output="neg_loss")),
    ("ShapleyValueSampling//loss", "shapley_sampling", dict(output="neg_loss", samples=2))])
def test_cells_are_what_explain_gives(cells, clf, data, name, method, options):
    mine = [e for e in cells["zh"] if e.method == name]
    alone = [explain(clf, x, method, seed=seed_for(0, "zh"), **options)[0] for x in data["zh"]]
    for a, b in zip(mine, alone, strict=True):
        assert a.target == b.target or name.startswith("Activation")
        assert a.vector() == pytest.approx(b.normalised("l2").vector(), abs=2e-5)

def test_the_mean_of_signed_gradients_is_noise_behind_a_layer_normalisation(cells, clf, data):
    "Layer normalisation ignores an equal shift of all dimensions, so gradients sum to zero"
    g = clf.grad([clf.encode(data["en"][0])], "logit_top")[0]
    assert np.abs(g.mean(-1)).max() < 1e-5*np.abs(g).max()
    noisy = {e.method for e in cells["en"] if any("noise" in n for n in e.notes)}
    assert noisy == {"GuidedBackprop/mean/top_prediction", "GuidedBackprop/mean/loss"}

def test_languages_do_not_share_random_numbers(clf, data):
    "The same text under two languages gets other coalitions, so that sampling noise cannot agree"
    def as_german(x): return x.replace(lang="de", links=frozenset((i, i) for i in range(x.n_words)))
    same = {"en": data["en"], "de": [as_german(x) for x in data["en"]]}
    two = [same["en"][0], same["de"][0]]
    a, b = attribute_cells(clf, two, [("ShapleyValueSampling", "")], ["loss"], shapley_samples=2)
    assert np.abs(a.vector()-b.vector()).max() > 1e-3
    assert abs(rho_table(cross_lingual_faithfulness(clf, same, "random")).rho[0]) < .4

def test_the_second_output_of_perturbation_methods_runs_nothing(clf, data):
    rows, small = [(m, a) for m, a in cell_rows if not a], dict(lime_samples=12, shapley_samples=2)
    one, two = Engine(clf), Engine(clf)
    attribute_cells(clf, data["de"], rows, ["loss"], engine=one, **small)
    attribute_cells(clf, data["de"], rows, engine=two, **small)
    assert one.stats["run"] == two.stats["run"] and two.stats["asked"] > 1.9*one.stats["asked"] - 10

def test_guided_backpropagation_is_the_gradient_only_without_relus(data):
    clf = untrained({"en": data["en"]}, width=16, layers=1)
    def scores():
        es = attribute_cells(clf, data["en"][:1], [("Saliency", "L2"), ("GuidedBackprop", "L2")], ["loss"])
        return {e.method: e.scores for e in es}
    a = scores()
    assert a["Saliency/L2/loss"] == pytest.approx(a["GuidedBackprop/L2/loss"])
    for layer in clf.model.bert.encoder.layer: layer.intermediate.intermediate_act_fn = nn.ReLU()
    b = scores()
    assert b["Saliency/L2/loss"] != pytest.approx(b["GuidedBackprop/L2/loss"], rel=1e-3)

def test_steps_may_differ_by_cell(clf, data):
    rows = [("IntegratedGradients", a) for a in ("mean", "L2")]
    got = attribute_cells(clf, data["en"][:1], rows, steps={("L2", "loss"): 3})
    want = {cell(m, a, o): 50 for m, a in rows for o in cell_outputs} | {"IntegratedGradients/L2/loss": 3}
    assert {e.method: e.options["steps"] for e in got} == want
    with pytest.raises(ValueError, match="cell of integrated gradients"):
        attribute_cells(clf, data["en"][:1], steps={("l2", "loss"): 3})

def test_constant_scores_are_skipped_and_counted(data):
    def flat(xs): return [Explanation.from_scores(x, np.ones(x.n_words), method="flat") for x in xs]
    r = rho_table(cross_lingual(flat(data["en"]), flat(data["de"]) + flat(data["zh"]))).iloc[0]
    assert r.skipped == 8 and "constant scores in the source (8)" == r.reasons

def test_true_words_score_highest():
    d = parallel_data("controlled-xnli", n=20)
    def both(xs): return truth_explanations(xs) + random_explanations(xs)
    others = [e for l in d if l != "en" for e in both(d[l])]
    r = rho_table(cross_lingual(both(d["en"]), others)).set_index("method")
    assert r.low["truth"] > .9 and r.high["random"] < .2 and r.langs["truth"] == 6

def test_only_same_predictions(clf, data, cells):
    same = same_predictions(clf, data)
    df = cross_lingual(cells["en"], cells["de"], only=same)
    assert ((df.note == "predictions differ") == [("de", i) not in same for i in df.instance]).all()

def test_steps_table_chooses_the_best(clf, data):
    t = steps_table(clf, {l: xs[:2] for l, xs in data.items()}, steps=(8, 2))
    assert len(t) == 8 and t.steps.tolist() == [2, 8]*4
    for (o, a), g in t.groupby(["output", "aggregation"]):
        chosen = g[g.chosen_by_rho]
        assert len(chosen) == 1 and chosen.rho.iloc[0] == pytest.approx(g.rho.max())
        assert chosen_steps(t)[a, o] == chosen.steps.iloc[0]

def test_wrong_links_cost(data):
    d = parallel_data("controlled-xnli", ["de", "fr"], n=15)
    gold, size = link_table(d), {(l, x.id): x.n_words for l, xs in d.items() for x in xs}
    t = {s: {k: corrupt_links(v, s, size[k]) for k, v in gold.items()} for s in (0., .3, 1.)}
    true = {l: truth_explanations(xs) for l, xs in d.items()}
    r = aligner_effect(true["en"], true["de"] + true["fr"], t, gold).set_index("links")
    assert r.aer[0.] == 0 and r.change[0.] == 0 and r.rho[0.] > r.rho[.3] + .05 > r.rho[1.] + .2 and r.aer[1.] > .8

def test_separation_is_about_noise_not_scale():
    rng, frames = np.random.default_rng(0), []
    for metric, scale, effect in (("fine", .001, 3.), ("coarse", 10., 0.)):
        for j in range(5):
            values = [scale*(effect*j+rng.standard_normal()) for _ in range(25)]
            frames.append(pd.DataFrame(dict(metric=metric, method=f"m{j}", instance=range(25), value=values)))
    s = separation(pd.concat(frames)).set_index("metric")
    assert s.reliability["fine"] > .98 and s.told_apart["fine"] == 1
    assert s.sd["coarse"] > s.sd["fine"] and s.told_apart["coarse"] < .2

def test_macro_f1_is_sklearns(clf, data):
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 3, 30), rng.integers(0, 3, 30)
    assert resampled_macro_f1(y, p, np.arange(30)[None], True)[0] == pytest.approx(f1_score(y, p, average="macro"))
    t = language_f1(clf, data)
    predicted, gold = clf.predict(data["zh"]).argmax(1), [clf.index(x.label) for x in data["zh"]]
    want = f1_score(gold, predicted, labels=sorted(set(gold)), average="macro", zero_division=0)
    assert t.set_index("lang").f1["zh"] == pytest.approx(want) and (t.n == 4).all()

def test_parallel_data_refuses_unknown_languages():
    with pytest.raises(ValueError, match="language of controlled-xnli"):
        parallel_data("controlled-xnli", ["xx"], n=2)
    with pytest.raises(ValueError, match="controlled-xnli"): parallel_data("controled-xnli", n=2)

# e-XNLI

def test_oracle_threshold():
    b = ex.best_threshold([.9, .6, .5, .3, .2], [1, 0, 1, 1, 0])
    assert b["f1"] == pytest.approx(.857143, abs=1e-6) and b["threshold"] == .3

@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_threshold_is_that_of_the_precision_recall_curve(seed):
    rng = np.random.default_rng(seed)
    s, g = rng.integers(0, 8, 30)/8, rng.random(30) < .4
    if not g.any(): return
    p, r, _ = precision_recall_curve(g, s)
    f, b = 2*p*r/np.maximum(p+r, 1e-12), ex.best_threshold(s, g)
    assert b["f1"] == pytest.approx(f.max()) and b["precision"] == pytest.approx(g[s >= b["threshold"]].mean())

def test_oracle_highlight_scores():
    assert list(ex.highlight_scores([{0, 1, 4}], [{0, 3, 4}]).values()) == pytest.approx([2/3]*3)

def test_highlights_follow_links_and_thresholds_include_themselves():
    assert ex.project_highlights({1}, {(0, 0), (1, 1), (1, 2)}) == {1, 2}
    e = pair_of(3, 1, set(), [3., 4., 0.], [1.])[0]
    assert ex.extract_highlights(e, .6) == {0, 1} and ex.extract_highlights(e, .6, strict=True) == {1}

def test_validation_in_english_is_one_by_construction_and_compares_with_sklearn(clf, data):
    made = ex.make_exnli(clf, data, link_table(data, "gold", joint=False), .2)
    v = ex.validate_exnli(clf, made).set_index("lang")
    assert v["map"]["en"] == pytest.approx(1.) and bool(v.by_construction["en"]) and v["map"]["de"] < 1
    def own_precision(x):
        e, = explain(clf, x, "saliency", output="neg_loss", aggregation="l2")
        gold = np.isin(np.arange(x.n_words), list(x.gold.tokens))
        return average_precision_score(gold, np.round(e.normalised("l2").vector(), 6))
    ap = [own_precision(x) for x in made["de"] if x.gold.tokens]
    assert v["map"]["de"] == pytest.approx(np.mean(ap)) and v.n["de"] == len(ap)

def test_the_method_is_the_papers_unless_told_otherwise(clf, data):
    "Saliency, L2 norm, loss; options of the caller come on top"
    links = link_table(data, "gold", joint=False)
    def marks(**how): return [x.gold.tokens for x in ex.make_exnli(clf, data, links, .2, **how)["en"]]
    assert marks() == marks(method="saliency", options=dict(aggregation="l2", output="neg_loss"))
    assert marks() != marks(method="saliency", options=dict(aggregation="mean"))

def test_true_scores_over_true_links_are_the_true_words_of_the_translation():
    d = parallel_data("controlled-xnli", n=12)
    links = link_table(d, "gold", joint=False)
    for l, xs in d.items():
        if l == "en": continue
        there = [ex.project_highlights(e.gold.tokens, links[l, e.id]) for e in d["en"]]
        s = ex.highlight_scores(there, [x.gold.tokens for x in xs])
        assert s["precision"] > .85 and s["recall"] > .85, (l, s)

def test_human_sample_is_per_label(data):
    t = ex.compare_highlights(data, data, per_label=1)
    assert (t.f1 == 1).all() and set(t.n) == {len({x.label for x in data["en"]})}

# export

OPTIONS = dict(langs=["de", "zh"], n=5)

@pytest.fixture(scope="module")
def exported(clf, tmp_path_factory):
    return export.export_exnli("demo-xnli", clf, out=tmp_path_factory.mktemp("out")/"exnli", **OPTIONS)

def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

def lines(folder, lang): return [json.loads(l) for l in (folder/f"jsonl/{lang}.jsonl").read_text("utf-8").splitlines()]

def row_words(r): return [*r["premise_words"], *r["hypothesis_words"]]

def row_marks(r): # word numbers over both parts
    return {*r["premise_highlights"], *(len(r["premise_words"])+k for k in r["hypothesis_highlights"])}

def test_export_opens_with_datasets(exported, tmp_path):
    import datasets
    every = datasets.load_dataset(str(exported), cache_dir=str(tmp_path))["test"]
    zh = datasets.load_dataset(str(exported), "zh", split="test", cache_dir=str(tmp_path))
    assert sorted(set(every["language"])) == ["de", "en", "zh"] and len(every) == 15
    assert set(zh["language"]) == {"zh"} and len(zh) == 5
    assert list(zh) == lines(exported, "zh")
    english = {r["id"]: r for r in every if r["language"] == "en"}
    for r in zh:
        on = row_marks(english[r["id"]])
        assert row_marks(r) == {j for k, j in r["links"] if k in on}
        assert "".join(row_words(r)) == (r["premise"]+r["hypothesis"]).replace(" ", "")

def test_export_is_read_back_as_data(exported):
    back, rows = load_data("exnli", lang="de", path=exported/"exnli.csv"), lines(exported, "de")
    assert [x.id for x in back] == [r["id"] for r in rows] and any(x.gold.tokens for x in back)
    for x, r in zip(back, rows):
        assert x.label == r["label"]
        assert {x.words[w] for w in x.gold.tokens} == {row_words(r)[k] for k in row_marks(r)}

def test_export_repeats_byte_by_byte_and_has_no_folder_of_this_machine(exported, clf, tmp_path):
    again = export.export_exnli("demo-xnli", clf, out=tmp_path/"b", **OPTIONS)
    assert contents(again) == contents(exported)
    folders = [str(p).encode() for p in (tmp_path, Path.home(), Path(export.__file__).parents[2])]
    assert not any(f in v for v in contents(exported).values() for f in folders)

def test_export_refuses_to_overwrite(exported, clf, tmp_path):
    before = contents(exported)
    with pytest.raises(ValueError, match="there already"): export.export_exnli("demo-xnli", clf, out=exported, **OPTIONS)
    assert contents(exported) == before
    mine = tmp_path/"mine"
    mine.mkdir()
    (mine/"thesis.txt").write_text("keep me")
    with pytest.raises(ValueError, match="not made by"):
        export.export_exnli("demo-xnli", clf, out=mine, overwrite=True, **OPTIONS)
    assert (mine/"thesis.txt").read_text() == "keep me"
    export.export_exnli("demo-xnli", clf, out=exported, overwrite=True, **OPTIONS)
    assert contents(exported) == before

def test_a_broken_export_leaves_nothing(clf, tmp_path, monkeypatch):
    def fail(*a): raise OSError("disk full")
    monkeypatch.setattr(export, "write_whole", fail)
    with pytest.raises(OSError, match="disk full"): export.export_exnli("demo-xnli", clf, out=tmp_path/"new", **OPTIONS)
    assert list(tmp_path.iterdir()) == []

def test_a_broken_replacement_leaves_the_old_export(tmp_path, monkeypatch):
    out, real = tmp_path/"x", os.replace
    export._write(out, {"README.md": "old", "data/en.parquet": b"1"})
    def fail(a, b):
        if Path(a).name == "new": raise OSError("disk full")
        real(a, b)
    monkeypatch.setattr(export.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"): export._write(out, {"README.md": "new"})
    monkeypatch.setattr(export.os, "replace", real)
    assert (out/"README.md").read_text() == "old" and (out/"data/en.parquet").is_file() and os.listdir(tmp_path) == ["x"]
    export._write(out, {"README.md": "new"})
    assert (out/"README.md").read_text() == "new" and os.listdir(out) == ["README.md"] and os.listdir(tmp_path) == ["x"]

@pytest.mark.parametrize("kw, text", [
    (dict(data="demo-xnil"), "did you mean 'demo-xnli'"),
    (dict(aligner="statistcal"), "did you mean 'statistical'"),
    (dict(aligner="awesome"), "needs model="),
    (dict(method="salience"), "did you mean 'saliency'"),
    (dict(langs=["xx"]), "language of demo-xnli"),
    (dict(data={"de": []}), "with 'en'")])
def test_export_checks_first(clf, tmp_path, kw, text):
    with pytest.raises(ValueError, match=text):
        export.export_exnli(**{**dict(data="demo-xnli", model=clf, out=tmp_path/"x"), **kw})
    assert not (tmp_path/"x").exists()

def test_a_missing_extra_is_a_plain_error(clf, tmp_path, monkeypatch):
    def missing(): raise ImportError("pip install it")
    monkeypatch.setattr(sys.modules["xfeval.crosslingual.static"], "use_table", missing)
    with pytest.raises(ValueError, match="aligner 'static' cannot be used: pip install it"):
        export.export_exnli("demo-xnli", clf, "static", tmp_path/"x")

def test_card_says_what_it_must(exported):
    card = (exported/"README.md").read_text("utf-8")
    for t in ("CC BY 4.0", "cc-by-4.0", "machine-generated", "config_name: zh", "tiny-bert", "threshold", "statistical",
              "saliency, aggregation l2, output neg_loss", "Skipped", "Against the highlights of the source",
              "f1_all_words", "## Warnings", "not checked by people"): assert t in card, t

def test_marking_every_word_is_the_floor_of_the_card():
    "Its F1 is 2p/(1+p) where p is the share of highlighted words"
    data = parallel_data("demo-xnli", OPTIONS["langs"], OPTIONS["n"])
    table = export._highlight_check(data, data, 0).set_index("lang")
    for l, xs in data.items():
        p = sum(len(x.gold.tokens) for x in xs)/sum(x.n_words for x in xs)
        assert table.f1[l] == 1. and table.f1_all_words[l] == pytest.approx(2*p/(1+p))

# scripts

SCRIPTS = {
    "en": ("The boy sleeps", "He is awake"),
    "ar": ("الولد نائم", "هو مستيقظ"),
    "ur": ("لڑکا سو رہا ہے۔", "وہ جاگ رہا ہے۔"),
    "hi": ("लड़का सो रहा है।", "वह जाग रहा है।"),
    "th": ("เด็กชายนอนหลับ", "เขาตื่นอยู่"),
    "zh": ("男孩在睡觉。", "他醒着。")}
PARTNERS = { # of boy, sleeps, He, awake
    "ar": ("الولد", "نائم", "هو", "مستيقظ"),
    "ur": ("لڑکا", "سو", "وہ", "جاگ"),
    "hi": ("लड़का", "सो", "वह", "जाग"),
    "th": ("เด็กชาย", "นอนหลับ", "เขา", "ตื่น"),
    "zh": ("男孩", "睡觉", "他", "醒")}

def scripted():
    "One pair in six scripts, with links from words to the pieces of the translation"
    e = Instance.from_text(SCRIPTS["en"], "contradiction", "en", "a")
    out = {"en": [e]}
    for l, phrases in PARTNERS.items():
        x, links = Instance.from_text(SCRIPTS[l], "contradiction", l, "a"), set()
        for word, phrase in zip(("boy", "sleeps", "He", "awake"), phrases):
            k = e.words.index(word)
            p = int(e.part_of[k])
            start, first = x.texts[p].index(phrase), sum(x.sizes[:p])
            links |= {(k, j) for j, (a, b) in enumerate(x.offsets[p], first) if a < start+len(phrase) and b > start}
        out[l] = [x.replace(links=frozenset(links))]
    return out

@pytest.mark.parametrize("aligner", ["gold", "statistical"])
def test_scripts_survive_the_whole_way(aligner, tmp_path):
    data = scripted()
    clf = untrained(data, width=16, layers=1)
    out = export.export_exnli(data, clf, aligner, tmp_path/"x", threshold=0., validate=True)
    page = (out/"viewer.html").read_text("utf-8")
    assert data["th"][0].n_words > 4 and data["zh"][0].n_words > 4
    for l, (x,) in data.items():
        r, = lines(out, l)
        assert (r["premise"], r["hypothesis"]) == SCRIPTS[l] and tuple(row_words(r)) == x.words
        if aligner == "gold" and l != "en": assert row_marks(r) == {j for _, j in x.links}
        marked = [x.words[k] for k in sorted(row_marks(r))]
        assert marked or aligner != "gold"
        for w in marked: assert f">{w}</mark>" in page, (l, w)
        assert f'<p lang="{l}" dir="{"rtl" if l in ("ar", "ur") else "auto"}">' in page
        assert r["premise_highlighted"].replace("*", "") == r["premise"]

def test_viewer_escapes():
    bad = '<script>alert("x")</script>'
    x = Instance.from_words(([bad], ["&amp;"]), "neutral", id=bad, gold=Gold(tokens={0}))
    german = x.replace(lang="de", links=frozenset({(0, 0)}))
    page = export.exnli_html({"en": [x], "de": [german]}, title=bad, about=bad)
    assert bad not in page and "&lt;script&gt;" in page and "&amp;amp;" in page

# real data

THAI = (data_root() or Path("missing"))/"xnli/xnli_validation_th.tsv"
MBERT = Path(__file__).parents[1]/"data/models/tiny-mbert-xnli/card.json"

@pytest.mark.skipif(not THAI.is_file(), reason="needs XNLI validation files under XFEVAL_DATA/xnli")
def test_real_xnli_in_hard_scripts(tmp_path):
    import datasets
    data = parallel_data("xnli", ["ar", "hi", "th", "ur", "zh"], n=12, split="validation")
    clf = untrained(data, width=16, layers=1, max_length=512)
    out = export.export_exnli(data, clf, out=tmp_path/"x", threshold=.15, validate=False)
    d = datasets.load_dataset(str(out), cache_dir=str(tmp_path/"cache"))["test"]
    assert len(d) == 72
    for l, xs in data.items():
        rows = [r for r in d if r["language"] == l]
        assert [(r["premise"], r["hypothesis"]) for r in rows] == [x.texts for x in xs], l
        assert [tuple(r["premise_words"]) for r in rows] == [x.parts[0] for x in xs], l
        assert sum(len(r["premise_highlights"]) for r in rows) > 10, l

@pytest.mark.skipif(not MBERT.is_file(), reason="needs the embedded model tiny-mbert-xnli")
def test_trained_model_agrees_across_languages_more_than_chance():
    from xfeval.models.store import load_model
    clf, d = load_model("tiny-mbert-xnli"), parallel_data("controlled-xnli", ["de", "es"], n=12)
    f = cross_lingual_faithfulness(clf, d, "integrated_gradients", steps=8)
    en, other = (explain(clf, xs, "integrated_gradients", steps=8) for xs in (d["en"], d["de"]+d["es"]))
    assert rho_table(f).low[0] > rho_table(null_rho(en, other, draws=2)).high[0]
