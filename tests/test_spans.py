"Word graphs, Louvain, contiguous spans and baselines"
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance
from xfeval.explainers.louvain import backends, bounded_louvain, graph, louvain, modularity
from xfeval.explainers.baselines import random_spans, snli_lengths, trivial_block
from xfeval.explainers.spans import (combined, contiguous, runs, span_interactions, span_options, span_scores)
from xfeval.explainers.pairs import directed_weights, graph_weights, negatives, pair_items, pair_scores

few = settings(max_examples=40, deadline=None, derandomize=True)
sizes, seeds = st.integers(1, 9), st.integers(0, 10**6)

def close(a, b, tol=1e-9): np.testing.assert_allclose(a, b, rtol=0, atol=tol)

W, P = np.full((7, 7), .01), [0]*4+[1]*3
for (i, j), x in {(0, 5): .9, (1, 5): .7, (3, 5): .8, (2, 4): .6, (2, 6): .5}.items(): W[i, j] = W[j, i] = x

def symmetric(x): return x+x.T

kinds_of_weights = [
    lambda r, shape: r.random(shape),
    lambda r, shape: r.normal(size=shape),
    lambda r, shape: r.integers(0, 3, shape).astype(float),
    lambda r, shape: np.ones(shape),
    lambda r, shape: r.random(shape)*10.**r.integers(-12, 12, shape),
    lambda r, shape: symmetric(r.random(shape)),
    lambda r, shape: r.choice([.1, .2, .3, 1/3], shape),
    lambda r, shape: -r.random(shape)]

def weights(a, b, seed, kind=0): return kinds_of_weights[kind](np.random.default_rng(seed), (a+b, a+b))

def test_worked_communities():
    for seed in (None, *range(20)): assert louvain(W, P, seed=seed) == [(0, 1, 3, 5), (2, 4, 6)]
    assert louvain(W, P, backend="python-louvain") == [(0, 1, 3, 5), (2, 4, 6)]
    assert bounded_louvain(graph_weights(W, P), P) == [(0, 1, 3, 5), (2, 4, 6)]

def test_worked_spans():
    mean = span_interactions(louvain(W, P), pair_scores(W), P)
    union = span_interactions(louvain(W, P), pair_scores(W), P, norm="union")
    keys = [((0, 1), (5, 5)), ((3, 3), (5, 5)), ((2, 2), (4, 4)), ((2, 2), (6, 6))]
    assert list(mean) == keys
    close([mean[k] for k in keys], [.8, .8, .6, .5])
    close([union[k] for k in keys], [.533333, .4, .3, .25], 1e-6)
    assert list(union)[0] == keys[0]
    close(list(span_interactions(louvain(W, P), pair_scores(W), P, per="sides").values()), [.8, .8, .55, .55])

def test_every_word_has_edges(): # the reference loops stop one short on both parts
    g = graph(W, P)
    assert g.number_of_edges() == 2*4*3 and g.has_edge(3, 6) and g.has_edge(6, 3) and not g.has_edge(0, 1)

def test_direction():
    cond = np.array([[0, 2.5], [2., 0]]) # row i, column j: phi_{i|j}
    w = directed_weights(cond)
    assert w[0, 1] == 2. and w[1, 0] == 2.5 and graph(w, [0, 1])[0][1]["weight"] == 2.
    assert pair_items(pair_scores(w), [0, 1]) == {(0, 1): 2.25}

@few
@given(sizes, sizes, seeds, st.integers(0, 7), st.sampled_from(negatives), st.sampled_from([None, 0, 7]))
def test_it_ends_and_partitions(a, b, seed, kind, negative, order):
    w, p = weights(a, b, seed, kind), [0]*a+[1]*b
    def by_louvain(backend): return louvain(w, p, negative=negative, backend=backend, seed=order)
    def by_runs(_): return contiguous(w, p, negative=negative)
    for search, how in ((by_louvain, "networkx"), (by_louvain, "python-louvain"), (by_runs, None)):
        c = search(how)
        assert sorted(i for x in c for i in x) == (list(range(a+b)) if c else []) and c == search(how)
    items, _ = span_scores(w, p, negative=negative)
    assert items and np.isfinite(list(items.values())).all()
    assert all(0 <= s0 <= e0 < a <= s1 <= e1 < a+b for (s0, e0), (s1, e1) in items)

@few
@given(sizes, sizes, seeds, st.integers(0, 1))
def test_bounded_equals_networkx(a, b, seed, kind):
    w = graph_weights(weights(a, b, seed, kind), p := [0]*a+[1]*b)
    if w is None: return
    mine, theirs = bounded_louvain(w, p, seed=seed), louvain(w, p, seed=seed)
    assert theirs.notes == () # networkx itself answered, under the guard
    q = [modularity(w, c) for c in (mine, theirs)]
    assert mine == theirs or max(map(abs, q)) < 1e-9

def test_guard_fires_and_says_so():
    c = louvain(W, P, limit=0)
    assert c == louvain(W, P) and "did not end" in c.notes[0] and louvain(W, P).notes == ()
    assert "did not end" in span_scores(W, P, limit=0)[1][0]

@few
@given(sizes, sizes, seeds)
def test_modularity_is_networkx(a, b, seed):
    w = graph_weights(weights(a, b, seed), p := [0]*a+[1]*b); c = louvain(w, p)
    close(modularity(w, c), nx.community.modularity(graph(w, p), [set(x) for x in c]))

def test_backends_agree_on_symmetric_weights(): # two heuristics for one objective: equal on average, never far apart
    q = []
    for seed in range(60):
        a, b = np.random.default_rng(seed).integers(2, 10, 2)
        w, p = weights(a, b, seed, 5)**4, [0]*a+[1]*b
        g = graph_weights(w, p)
        q.append([modularity(g, louvain(w, p, backend=k)) for k in backends])
    q = np.array(q)
    assert abs(q.mean(0)[0]-q.mean(0)[1]) < .005 and np.abs(q[:, 0]-q[:, 1]).max() < .1
    assert q.min() > -1e-9 and q.mean() > .1

@few
@given(sizes, sizes, seeds, st.integers(0, 6))
def test_contiguous_is_contiguous_and_gains(a, b, seed, kind):
    w, p = weights(a, b, seed, kind), np.array([0]*a+[1]*b)
    g, c = graph_weights(w, p), contiguous(w, p)
    if g is None:
        assert c == []
        return
    assert all(len(runs([i for i in x if p[i] == s])) <= 1 for x in c for s in (0, 1))
    assert modularity(g, c) >= modularity(g, [(i,) for i in range(a+b)])-1e-12

def test_contiguous_finds_planted_spans():
    w = np.full((9, 9), .02); p = [0]*5+[1]*4
    for a, b in (((0, 1, 2), (5, 6)), ((3, 4), (7, 8))): w[np.ix_(a, b)] = w[np.ix_(b, a)] = 1.
    assert contiguous(w, p) == [(0, 1, 2, 5, 6), (3, 4, 7, 8)]
    assert list(span_scores(w, p, "contiguous")[0]) == [((0, 2), (5, 6)), ((3, 4), (7, 8))]

def test_scaling_does_not_matter():
    w = weights(6, 5, 3); p = [0]*6+[1]*5
    assert louvain(w, p) == louvain(w*1e-7, p) and contiguous(w, p) == contiguous(w*1e6, p)

def test_negative_weights():
    w = np.zeros((4, 4)); w[0, 2], w[1, 3], w[0, 3] = .5, .4, -.9
    assert louvain(w, [0, 0, 1, 1]) == [(0, 2), (1, 3)]
    assert louvain(-np.abs(w), [0, 0, 1, 1]) == louvain(w, [0, 0, 1, 1], negative="abs")
    assert graph_weights(w, [0, 0, 1, 1], "shift").min() == 0
    assert span_scores(-np.ones((2, 2)), [0, 1])[0] == {((0, 0), (1, 1)): -1.}

def test_zero_one_word_and_nan():
    items, notes = span_scores(np.zeros((5, 5)), [0, 0, 1, 1, 1])
    assert items == {((0, 0), (2, 2)): 0.} and "stands in" in notes[0]
    assert list(span_scores(np.ones((2, 2)), [0, 1])[0]) == [((0, 0), (1, 1))]
    assert louvain(np.zeros((2, 2)), [0, 1]) == [] == contiguous(np.zeros((2, 2)), [0, 1])
    bad = W.copy(); bad[0, 5] = np.nan
    for f in (louvain, contiguous, span_scores):
        with pytest.raises(ValueError, match="nan"): f(bad, P)
        with pytest.raises(ValueError, match="two parts"): f(np.ones((3, 3)), [0, 0, 0])
        with pytest.raises(ValueError, match="shape"): f(np.ones((3, 3)), [0, 1])
    within = W.copy(); within[0, 1] = np.nan
    assert louvain(within, P) == louvain(W, P)

bad_options = [(dict(backend="networkxx"), "networkx"), (dict(negative="clp"), "clip"),
               (dict(resolution=0), "positive")]

@pytest.mark.parametrize("kw, words", bad_options)
def test_bad_options(kw, words):
    with pytest.raises(ValueError, match=words): louvain(W, P, **kw)

def test_unknown_options():
    with pytest.raises(ValueError, match="seed"): span_scores(W, P, sed=3)
    with pytest.raises(ValueError, match="louvain"): span_scores(W, P, "louvian")
    with pytest.raises(ValueError, match="mean"): span_scores(W, P, norm="meen")
    with pytest.raises(ValueError, match="runs"): span_scores(W, P, per="run")

@pytest.mark.parametrize("kw, words", [*bad_options, (dict(sed=3), "seed"), (dict(search="louvian"), "louvain"),
                                       (dict(norm="meen"), "mean"), (dict(per="run"), "runs"),
                                       (dict(search="contiguous", seed=3), "option of contiguous")])
def test_bad_options_are_refused_before_any_search(kw, words, monkeypatch):
    def searched(*args, **kwargs): raise AssertionError("a search to check options")
    for name in ("louvain", "contiguous"): monkeypatch.setattr(f"xfeval.explainers.spans.{name}", searched)
    with pytest.raises(ValueError, match=words): span_options(**kw)
    assert span_options(negative="abs") == dict(search="louvain", per="runs", norm="mean", negative="abs")

def test_word_indices_and_gaps():
    items, _ = span_scores(W, P, words=[0, 1, 2, 3, 10, 11, 12])
    assert ((0, 1), (11, 11)) in items
    c = contiguous(np.ones((4, 4)), [0, 0, 1, 1], words=[0, 2, 5, 6])
    assert not any(0 in x and 1 in x for x in c)

def test_runs(): assert runs([4, 1, 2, 7]) == [(1, 2), (4, 4), (7, 7)] and runs([]) == []

def hug(): return Instance.from_words([["Two", "women", "are", "embracing"], ["They", "hug", "."]], id="hug")

def test_combined():
    x, scores = hug(), {((0, 1), (4, 4)): .9, ((3, 3), (5, 5)): .5}
    s = Explanation.from_scores(x, scores, kind="span", method="louvain", base="shapley")
    t = Explanation.from_scores(x, [.1, .2, .3, .9, .2, .8, 0])
    c = combined(s, t)
    assert c.items == (0, 1, 4, 3, 5, 2, 6) and set(c.take(3)) == set(s.T(1))
    assert (c.kind, c.method, c.base) == ("token", "combined", "shapley")
    assert combined(s, t, k=2, budget=4).items == (0, 1, 4, 3) and combined(s, t, budget=2).items == (0, 1)
    for bad in ((t, s), (s, s)):
        with pytest.raises(ValueError, match="span and a token"): combined(*bad)
    other = Explanation.from_scores(Instance.from_words([["a"], ["b"]], id="x"), [1, 2])
    with pytest.raises(ValueError, match="two instances"): combined(s, other)

def span_lengths(items): return [tuple(e-s+1 for s, e in i) for i in items]

def test_random_baselines():
    assert random_spans(P, 1) == random_spans(P, 1) != random_spans(P, 2)
    lengths = np.array(span_lengths(random_spans([0]*30+[1]*30, 0, count=400)))
    for k, share in snli_lengths.items(): assert abs((lengths == k).mean()-share) < .07
    assert set(span_lengths(random_spans(P, 0, [(3, 2)], 3))) == {(3, 2)}
    assert len(random_spans([0, 1], 0, count=9)) == 1
    Explanation.from_scores(hug(), random_spans(P, 5), kind="span")
    with pytest.raises(ValueError, match="positive"): random_spans(P, 0, [(0, 1)])

def test_trivial():
    def marked(n, block): return np.flatnonzero(trivial_block(n, block)).tolist()
    assert [marked(20, 0), marked(20, 1), marked(30, 2)] == [[0, 1], [2, 3], [6, 7, 8]]
    assert np.argsort(-trivial_block(20, 1), kind="stable")[:2].tolist() == [2, 3] and trivial_block(0).shape == (0,)
    with pytest.raises(ValueError, match="percent"): trivial_block(5, 0, 0)
