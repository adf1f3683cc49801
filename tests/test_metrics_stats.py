"Intervals, tests, summaries and tables of diagnosticity"
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from xfeval.stats.intervals import bootstrap_interval
from xfeval.stats.tests import compare, holm
from xfeval.board.compare import compare_methods, method_means, rank_agreement
from xfeval.board.diagnosticity import diagnosticity_table, truth_table
from xfeval.board.summarise import summarise

def table(n=30, seed=0, methods=(("good", .3), ("fair", .1), ("random", 0.))):
    rng = np.random.default_rng(seed)
    return pd.DataFrame([dict(instance=f"x{i}", method=m, metric=k, part="", value=sign*(gain+rng.normal(0, .1)),
                              note="", direction=d)
                         for i in range(n) for m, gain in methods for k, sign,
                         d in (("comp", 1, "higher"), ("suff", -1, "lower"))])

@pytest.mark.parametrize("method", ["percentile", "bca", "basic"])
def test_interval_against_scipy_and_theory(method):
    x = np.random.default_rng(0).exponential(size=200)
    lo, hi = bootstrap_interval(x, method=method, n_resamples=4000)
    ref = stats.bootstrap((x,), np.mean, method="BCa" if method == "bca" else method, n_resamples=4000,
                          rng=np.random.default_rng(9)).confidence_interval
    assert abs(lo-ref.low) < .03 and abs(hi-ref.high) < .03 and lo < x.mean() < hi
    assert abs((hi-lo) - 2*1.96*x.std(ddof=1)/math.sqrt(200)) < .05

def test_interval_edges():
    assert bootstrap_interval([2, 2, 2, np.nan]) == (2, 2) and all(map(math.isnan, bootstrap_interval([1.])))
    assert all(map(math.isnan, bootstrap_interval([])))
    assert bootstrap_interval([1, 2, 3], seed=1) == bootstrap_interval([1, 2, 3], seed=1)
    wide, narrow = bootstrap_interval(range(30), .99), bootstrap_interval(range(30), .5)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    with pytest.raises(ValueError, match="bca"): bootstrap_interval([1, 2], method="bcaa")
    with pytest.raises(ValueError, match="between 0 and 1"): bootstrap_interval([1, 2], level=95)

@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm(p):
    q = holm(p)
    assert (q >= np.array(p)-1e-15).all() and (q <= 1).all()
    assert (np.diff(q[np.argsort(p, kind="stable")]) >= -1e-15).all()
    assert min(1, min(p)*len(p)) == pytest.approx(q.min())
def test_holm_by_hand(): np.testing.assert_allclose(holm([.01, .04, .03, np.nan]), [.03, .06, .06, np.nan])

def test_paired_tests_are_scipys():
    rng = np.random.default_rng(1)
    a = rng.normal(.1, 1, 40)
    b = rng.normal(0, 1, 40)
    a[3] = np.nan
    ok = np.isfinite(a); r = compare(a, b)
    assert r["n"] == 39 and r["skipped"] == 1 and r["p"] == pytest.approx(stats.wilcoxon(a[ok], b[ok]).pvalue)
    assert r["difference"] == pytest.approx((a-b)[ok].mean())
    assert compare(a, b, "ranksum")["p"] == pytest.approx(stats.mannwhitneyu(a[ok], b[ok]).pvalue)
    assert compare(b+1, b)["effect"] == 1 and compare(b, b+1)["effect"] == -1
    assert compare(b, b, "bootstrap")["p"] == 1 == compare(b, b)["p"]
    assert compare(b+5+rng.normal(0, .1, 40), b, "bootstrap")["p"] < .001
    null = [compare(rng.normal(size=25), rng.normal(size=25), "bootstrap", n_resamples=400)["p"] for _ in range(200)]
    assert .01 < np.mean(np.array(null) < .05) < .12

def test_mcnemar():
    a, b = np.r_[np.ones(8), np.zeros(2), np.ones(5)], np.r_[np.zeros(8), np.ones(2), np.ones(5)]
    r = compare(a, b, "mcnemar")
    assert r["p"] == pytest.approx(stats.binomtest(8, 10).pvalue) and r["effect"] == pytest.approx(.3)
    with pytest.raises(ValueError, match="0 or 1"): compare([.5, 1], [0, 1], "mcnemar")
    with pytest.raises(ValueError, match="did you mean 'mcnemar'"): compare([1, 1], [0, 1], "mcnemmar")
    with pytest.raises(ValueError, match="equal length"): compare([1, 1], [0])

def test_summary_counts_what_is_missing():
    df = table(5)
    df.loc[[0, 6], ["value", "note"]] = np.nan, "empty gold"
    df.loc[12, ["value", "note"]] = np.nan, "no gold"
    df.loc[18, "note"] = "no positive score"
    s = summarise(df, ["method", "metric"]).set_index(["method", "metric"]).loc["good", "comp"]
    assert (s.n, s.skipped, s.rows) == (2, 3, 5) and s.reasons == "empty gold (2); no gold (1)"
    assert s.remarks == "no positive score (1)"
    x = df[(df.method == "good") & (df.metric == "comp")].value.dropna()
    assert s["mean"] == pytest.approx(x.mean())
    gone = df.assign(value=np.nan, note="")
    s = summarise(gone, "method")
    assert s["mean"].isna().all() and (s.n == 0).all() and (s.reasons == "not a number").all()

def test_draws_of_one_instance_are_one_observation():
    df = table(10)
    many = pd.concat([df]*8, ignore_index=True)
    a, b = (summarise(d, ["method", "metric"]) for d in (df, many))
    assert (a.n == b.n).all() and np.allclose(a["low"], b["low"]) and (b["rows"] == 80).all()

def test_summary_does_not_depend_on_the_order_of_rows():
    df = table(12)
    a = summarise(df).set_index(["method", "metric", "part"])
    b = summarise(df.sort_values("method", kind="stable")).set_index(["method", "metric", "part"])
    pd.testing.assert_frame_equal(a.sort_index(), b.sort_index())

def test_methods_are_compared_within_metrics():
    c = compare_methods(table())
    assert len(c) == 6 and set(c.metric) == {"comp", "suff"}
    for _, g in c.groupby("metric"): np.testing.assert_allclose(g.p_holm, holm(g.p))
    g = c.set_index(["metric", "a", "b"])
    assert g.loc["comp", "good", "random"].effect > .9 and g.loc["suff", "good", "random"].effect < -.9
    assert g.loc["comp", "good", "random"].p_holm < .001
    with pytest.raises(ValueError, match="rndom"): compare_methods(table(), baseline="rndom")

def test_rank_agreement_knows_directions():
    r = rank_agreement(table(60))
    assert (r.to_numpy() == 1).all() and list(method_means(table()).columns) == ["comp", "suff"]
    turned = table(60)
    turned.loc[turned.metric == "suff", "direction"] = "higher"
    assert rank_agreement(turned).loc["comp", "suff"] == -1
    values = dict(a=(1, 2, 2, 4), b=(1, 3, 2, 2))
    m = pd.DataFrame([dict(method=k, metric=c, value=v, direction="higher")
                      for c, vs in values.items() for k, v in zip("wxyz", vs)])
    assert rank_agreement(m).loc["a", "b"] == pytest.approx(stats.kendalltau((1, 2, 2, 4), (1, 3, 2, 2)).statistic)

def test_diagnosticity_table():
    df = table(40)
    d = diagnosticity_table(df).set_index(["metric", "method"])
    for m in ("comp", "suff"):
        assert d.loc[m, "good"].diagnosticity > d.loc[m, "fair"].diagnosticity > .5
        assert d.loc[m, "good"].low <= d.loc[m, "good"].diagnosticity <= d.loc[m, "good"].high
    u, v = (df[(df.method == k) & (df.metric == "comp")].value.to_numpy() for k in ("fair", "random"))
    assert d.loc["comp", "fair"].diagnosticity == pytest.approx((u > v).mean())
    df.loc[(df.instance == "x0") & (df.method == "good"), "value"] = np.nan
    assert diagnosticity_table(df).set_index(["metric", "method"]).loc["comp",
                                                                       "good"][["n", "skipped"]].tolist() == [39, 1]
    tied = table(20).assign(value=.5)
    t = diagnosticity_table(tied)
    assert (t.diagnosticity == 0).all() and (t.ties == 1).all()
    assert (diagnosticity_table(tied, ties="half").diagnosticity == .5).all()

def test_truth_table():
    rng = np.random.default_rng(0)
    df = pd.DataFrame([dict(instance=f"x{i}", metric=m, part="", grade=g, direction=d,
                            value=s*(1-g)+rng.normal(0, .4)) for i in range(80) for g in (0, .25, .5, 1.) for m, s,
                       d in (("up", 1, "higher"), ("down", -1, "lower"), ("none", 0, "higher"))])
    t = truth_table(df).set_index(["metric", "grade"]).diagnosticity
    assert t["up"].is_monotonic_increasing and t["down"].is_monotonic_increasing and t["up", 1.] > .9
    assert abs(t["none", 1.]-.5) < .2
    with pytest.raises(ValueError, match="no truth"): truth_table(df[df.grade > 0])
