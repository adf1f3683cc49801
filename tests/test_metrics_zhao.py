"Zhao and Aletras: zeroing, soft variants, model seeds, profiles; models without a mask token; one check of options"
from xfeval.core.utils import check_options, options_of
from xfeval.explainers.games import occlusion
from xfeval.explainers.lime import lime
import itertools, json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

torch = pytest.importorskip("torch")
from xfeval.core.game import Query
from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance
from xfeval.engine.run import Engine
from xfeval.engine.rows import Job
from xfeval.explainers import base as methods_base
from xfeval.explainers.explain import explain
from xfeval.metrics import base as metrics_base
from xfeval.metrics.evaluate import evaluate
from xfeval.metrics.diagnosticity import profile_features, profile_table, profiles
from xfeval.metrics.soft import sigma_grid, soft_variants, variant
from xfeval.board.compare import compare_methods, relation
from xfeval.board.diagnosticity import diagnosticity_table, trust, truth_table, wins
from xfeval.board.summarise import stratified_mean
from xfeval.models.classifier import Classifier
from xfeval.truth.tiny import new_tiny
from xfeval.models.encoding import value_of

WORDS = "the a man woman dog plays reads guitar book music in park not and person outside".split()
LABELS = ["yes", "no", "maybe"]

def model(arch, **kw):
    return new_tiny(arch, [" ".join(WORDS)], LABELS, init="lively", width=32, max_length=96, seed=2, **kw)
def text(n=8, seed=0, **kw):
    return Instance.from_words(np.random.default_rng(seed).choice(WORDS, n).tolist(), id=f"t{n}-{seed}", **kw)
def scored(x, seed=0, method="mine"):
    return Explanation.from_scores(x, np.random.default_rng(seed).normal(size=x.n_words), method=method)

# zero="code" (AMB-22)
@pytest.mark.parametrize("arch", ["bert", "roberta", "gpt2"])
def test_published_zeroing_sets_every_id_to_zero(arch):
    torch.set_num_threads(1)
    clf = model(arch)
    x = text()
    e = clf.encode(x)
    none = np.zeros((1, len(e.players)), bool)
    b = clf.batch([e], none, "id_zero")
    assert (b.ids == 0).all() and b.mask.all() and len(b.ids[0]) == len(e)
    one = none.copy()
    one[0, 2] = True
    ids = clf.batch([e], one, "id_zero").ids[0].numpy()
    kept = (e.word < 0) | (e.slot == 2)
    assert (ids[kept] == e.ids[kept]).all() and (ids[~kept] == 0).all()
    full = clf.batch([e], ~none, "id_zero").ids[0].numpy()
    assert (full == e.ids).all()

def test_published_zeroing_keeps_the_question():
    clf = model("bert")
    x = Instance.from_words([["the", "man", "reads"], ["a", "book"]], fixed=(1,))
    e = clf.encode(x)
    ids = clf.batch([e], np.zeros((1, 3), bool), "id_zero").ids[0].numpy()
    query = e.word >= 3
    assert (ids[query] == e.ids[query]).all() and (ids[~query] == 0).all()

def test_zero_code_is_what_the_metric_divides_by():
    clf = model("bert")
    x = text(seed=3)
    ex = scored(x)
    e = clf.encode(x)
    t = int(clf.predict([x]).argmax())
    def p(ids): return float(value_of(clf.forward(clf.batch([e], ids[0], ids[1])).detach().numpy(), "prob_top", t)[0])
    with torch.no_grad(): full, zero = p((None, "mask")), p((np.zeros((1, e.instance.n_words), bool), "id_zero"))
    top = ex.flat().items[0]
    keep = np.zeros((1, x.n_words), bool)
    keep[0, top] = True
    with torch.no_grad(): one = p((keep, "pad"))
    want = np.clip(1 - max(0, full-one)/(full-zero), 0, 1) if full > zero else np.nan
    d = evaluate(clf, ex,
                 [("normalised_sufficiency", dict(zero="code", bins=(.01,))),
                  ("normalised_sufficiency", dict(bins=(.01,)))])
    if full > zero: assert d.value[0] == pytest.approx(want, abs=1e-5)
    else: assert d.note[0].startswith("zeroed text")
    with pytest.raises(ValueError, match="did you mean 'code'"):
        evaluate(clf, ex, {"normalised_sufficiency": {"zero": "coda"}})

def test_zero_code_differs_from_pad_somewhere():
    clf = model("bert")
    ex = [scored(text(seed=s), s) for s in range(6)]
    a, b = (evaluate(clf, ex, {"normalised_comprehensiveness": dict(zero=z, eps=1e-4)}).value
            for z in ("code", "pad"))
    assert not np.allclose(a, b)

# models without a mask token
def test_a_model_without_a_mask_token_is_refused_before_anything_runs():
    clf = model("gpt2")
    clf.mask_id = None
    x = text()
    ex = scored(x)
    assert clf.absences == ("pad", "delete", "zero_embedding")
    rows = clf.rows
    with pytest.raises(ValueError,
                       match="metric 'deletion' removes words by absent='mask', which tiny-gpt2 cannot do: "
                             "pass metrics=.*'absent': 'pad'.*possible are pad, delete, zero_embedding"):
        evaluate(clf, ex, ["aopc_sufficiency", "deletion"])
    with pytest.raises(ValueError, match="zero='mask'"):
        evaluate(clf, ex, {"normalised_sufficiency": {"zero": "mask"}})
    with pytest.raises(ValueError,
                       match="method 'shapley' removes words by absent='mask'.*'pad' or 'delete' or 'zero_embedding'"):
        explain(clf, x, "shapley")
    assert clf.rows == rows
    assert np.isfinite(evaluate(clf, ex, {"deletion": {"absent": "pad"}}).value).all()
    assert len(explain(clf, x, "occlusion")) == 1

def test_the_engine_predicts_without_a_mask_token():
    clf = model("gpt2")
    clf.mask_id = None
    x = text()
    np.testing.assert_allclose(Engine(clf).predict([x]), clf.predict([x]), atol=1e-5)
    def gen(n): return (yield Query(np.ones((1, n), bool), absent="delete"))
    assert Engine(clf).run([Job(x, gen)])[0][0] == pytest.approx(clf.predict([x]).max(), abs=1e-5)

def test_neither_mask_nor_padding():
    clf = model("gpt2")
    clf.mask_id = clf.pad_id = None
    assert clf.absences == ("delete", "zero_embedding")
    with pytest.raises(ValueError, match="'absent': 'delete'"): evaluate(clf, scored(text()), "normalised_curve")

def test_a_function_cannot_be_soft():
    clf = Classifier.from_function(lambda ts: np.tile([.6, .4], (len(ts), 1)), ["a", "b"])
    ex = scored(text())
    with pytest.raises(ValueError, match="scales embeddings"): evaluate(clf, ex, "soft_sufficiency")
    assert evaluate(clf, ex, {"aopc_sufficiency": {}}).value[0] == 0

# one check of options
@pytest.mark.parametrize("call",
                         [lambda: check_options(lime, dict(sampels=3), "method 'lime'"),
                          lambda: metrics_base.check_metric_options("infidelity", dict(n_sampels=3))])
def test_one_message_for_unknown_options(call):
    with pytest.raises(ValueError,
                       match=r"unknown option '\w*sampels' of .*: allowed are .*; did you mean '\w*samples'\?"):
        call()

def test_options_are_what_has_a_default():
    assert "rng" not in options_of(lime) and "n" not in options_of(lime)
    assert options_of(occlusion) == {}

# soft variants
def test_soft_variants_cover_the_grid_and_have_names():
    v = soft_variants()
    assert len({(m, variant(o)) for m, o in v}) == len(v) == 2*(len(sigma_grid) + 4) == 22
    assert variant(json.dumps(dict(perturb="gaussian", sigma=.5))) == "gaussian 0.5" and variant({}) == "bernoulli"

def test_soft_variants_run_and_differ():
    clf = model("bert")
    ex = [scored(text(seed=s), s) for s in range(3)]
    d = evaluate(clf, ex, soft_variants(sigmas=(.05, 1.), n_draws=2, eps=1e-4))
    d["variant"] = d.options.map(variant)
    assert d.value.notna().all() and d.groupby(["metric", "variant"]).size().eq(3).all()
    w = d.pivot_table(index=["metric", "instance"], columns="variant", values="value")
    assert np.allclose(w["gaussian 1"], w["gaussian_std"]) and not np.allclose(w["gaussian 0.05"], w["bernoulli"])

# several model seeds
def seeded(n=30, k=3):
    rng = np.random.default_rng(0)
    methods = (("good", .4), ("fair", .1), ("random", 0.), ("random", 0.))
    judged = (("up", 1, "higher"), ("down", -1, "lower"))
    cells = itertools.product(range(n), range(k), methods, judged)
    return pd.DataFrame([dict(dataset="ab"[i % 2], instance=f"x{i}", model_seed=s, method=m, metric=q, part="",
                              direction=d, value=sign*(gain + .1*s + rng.normal(0, .2)))
                         for i, s, (m, gain), (q, sign, d) in cells])

def test_pairs_are_formed_within_a_seed():
    df = seeded()
    t = diagnosticity_table(df, by="metric", seeds="model_seed").set_index(["metric", "method"])
    each = pd.DataFrame([diagnosticity_table(g, by="metric").set_index(["metric", "method"]).diagnosticity for _,
                         g in df.groupby("model_seed")])
    for key in t.index:
        assert t.loc[key].diagnosticity == pytest.approx(each[key].mean())
        assert t.loc[key].seed_sd == pytest.approx(each[key].std(ddof=1)) and t.loc[key].seeds == 3
        assert t.loc[key].n == 30
    far = df.assign(value=df.value + 100*df.model_seed*np.where(df.direction == "lower", -1,
                                                                1)) # a shift between models must not matter
    assert diagnosticity_table(far, by="metric",
                               seeds="model_seed").diagnosticity.tolist() == t.diagnosticity.tolist()
    assert diagnosticity_table(far, by="metric").diagnosticity[0] != t.diagnosticity.iloc[0]

def test_wins_are_shares_of_draws():
    df = seeded(4, 1)
    w = wins(df, by="metric")
    assert len(w) == 4*2*2 and set(w.value) <= {0, .5, 1}
    one = df[(df.metric == "up") & (df.instance == "x1")]
    g, r = one[one.method == "good"].value.iloc[0], one[one.method == "random"].value
    assert w[(w.metric == "up") & (w.method == "good") & (w.instance == "x1")].value.iloc[0] == (g > r).mean()
    with pytest.raises(ValueError, match="did you mean 'random'"): wins(df, random="randon")
    with pytest.raises(ValueError, match="model_seed"): wins(df.drop(columns="model_seed"), seeds="model_seed")

def test_metrics_are_compared_in_pairs():
    df = seeded(60)
    df.loc[(df.metric == "down"), "value"] = np.random.default_rng(1).normal(size=(df.metric == "down").sum())
    c = compare_methods(wins(df, by="metric", seeds="model_seed"), over="metric", by="method").set_index("method")
    assert c.loc["good"].difference > .2 and c.loc["good"].p_holm < .01 and c.loc["good"].n == 60

def test_strata_weigh_the_same():
    df = pd.DataFrame(dict(dataset=["a"]*30 + ["b"]*3, instance=range(33), value=[0., 1, 1]*10 + [0., 0, 0]))
    s = stratified_mean(df)
    assert s["value"] == pytest.approx(1/3) and s["n"] == 33 and s["low"] < s["value"] < s["high"]
    assert stratified_mean(df.assign(value=np.nan))["n"] == 0 and np.isnan(stratified_mean(df[:1])["low"])
    wide = stratified_mean(pd.concat([df.assign(value=df.value)]*5))
    assert wide == s # copies of an instance are one observation

# profiles
def test_profiles_by_data_set():
    x, y = text(10, 1), text(12, 2)
    t = profile_table({"one": [scored(x, 0, "m"), scored(y, 1, "m")], "two": [scored(y, 2, "m"), scored(y, 3, "k")]})
    assert t[["dataset", "method", "n"]].values.tolist() == [["one", "m", 2], ["two", "m", 1], ["two", "k", 1]]
    p = profiles({"one": [scored(x, 0, "m"), scored(y, 1, "m")]})
    assert set(profile_features) <= set(p) and p.instance.tolist() == [x.id, y.id]
    np.testing.assert_allclose(t.loc[0, list(profile_features)].astype(float), p[list(profile_features)].mean())
    np.testing.assert_allclose(p[["function", "punctuation", "number", "content"]].sum(axis=1), 1)

def test_relation_is_spearmans_and_says_when_it_cannot_tell():
    rng = np.random.default_rng(0)
    t = pd.DataFrame(dict(a=rng.random(60), b=rng.random(60), c=2., d=[0.]*59 + [1.], unit=np.repeat(range(20), 3)))
    t["y"] = t.a - .3*rng.random(60)
    r = relation(t, list("abcd"), "y", n_resamples=300).set_index("feature")
    assert r.rho["a"] == pytest.approx(stats.spearmanr(t.a, t.y).statistic) and r.low["a"] > .5
    assert r.low["b"] < 0 < r.high["b"] and r.p_holm["a"] < .01
    assert r.note["c"] == "constant" and r.note["d"] == "too rare for an interval" and np.isnan(r.low["d"])
    assert relation(t[:3], ["a"], "y").note[0] == "fewer than four rows"
    with pytest.raises(ValueError, match="column"): relation(t, ["z"], "y")

def test_rows_of_one_unit_are_drawn_together():
    rng = np.random.default_rng(1)
    one = pd.DataFrame(dict(a=rng.random(25), y=rng.random(25), u=range(25)))
    many = pd.concat([one]*6)
    def width(r): return (r.high - r.low)[0]
    assert width(relation(many, ["a"], "y", unit="u",
                          n_resamples=300)) == pytest.approx(width(relation(one, ["a"], "y", unit="u",
                                                                            n_resamples=300)), abs=.15)
    assert width(relation(many, ["a"], "y", n_resamples=300)) < .6*width(relation(one, ["a"], "y", n_resamples=300))

# which metrics to trust
def test_trust_follows_the_intervals():
    def row(metric, grade, low, value, high):
        return dict(metric=metric, grade=grade, diagnosticity=value, low=low, high=high, ties=0., n=50)
    t = pd.DataFrame([row("sharp", .25, .55, .6, .7), row("sharp", 1., .9, .95, 1.), row("blunt", .25, .4, .5, .6),
                      row("blunt", 1., .9, .95, 1.), row("weak", .25, .2, .3, .4), row("weak", 1., .6, .7, .8),
                      row("open", .25, .3, .5, .7), row("open", 1., .4, .6, .8), row("tied", .25, 0., .1, .2),
                      row("tied", 1., .1, .2, .3)])
    assert trust(t, by="metric").set_index("metric").reading.to_dict() == dict(sharp="trust it",
                                                                               blunt="only for large differences",
                                                                               weak="only for large differences",
                                                                               open="cannot tell",
                                                                               tied="ties or prefers the wrong one")
    assert trust(t[t.metric == "sharp"], by="metric", clear=.92).reading[0] == "only for large differences"

def test_trust_reads_truth_tables_of_several_models():
    rng = np.random.default_rng(0)
    df = pd.DataFrame([dict(model=m, instance=f"x{i}", metric=k, part="", grade=g, direction="higher",
                            value=s*(1-g)+rng.normal(0, .1)) for m in "ab" for i in range(40) for g in (0, .25, 1.)
                       for k, s in (("good", 1.), ("noise", 0.))])
    r = trust(truth_table(df, by=["model", "metric"]), by=["model", "metric"]).set_index(["model", "metric"]).reading
    assert r["a", "good"] == r["b", "good"] == "trust it" and r["a", "noise"] != "trust it"

# the paper's own tables, read by the predicates of its claims
def test_claims_recounted_on_the_published_tables():
    from xfeval.papers.claims import check_claims
    from xfeval.papers.published import published
    v = check_claims("zhao2023",
                     {f"zhao2023_table0{k}": published(f"zhao2023_table0{k}") for k in (2, 3, 6)}).set_index("id")
    assert v.ours["zhao2023-soft-better"] == "16 of 18"
    assert v.ours["zhao2023-comprehensiveness-first"] == "10 of 10"
    assert v.verdict["zhao2023-less-variance"] == "yes"
    # the text exchanges the names of the two exceptions, and NS varies as much over attributions
    assert v.verdict["zhao2023-exception-ag"] == v.verdict["zhao2023-exception-mrc"] == "no"
    assert v.ours["zhao2023-tasks-vary-more"] == "3 of 4" and v.verdict["zhao2023-tasks-vary-more"] == "no"
