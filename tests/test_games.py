"Coalition games: oracles, properties, and equality with captum, shap and shapiq"
import json
from itertools import permutations
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as hypothesis_given, settings, strategies as st

from xfeval.core.game import run_game
from xfeval.explainers.kriging import Kriging
from xfeval.explainers.interactions import bivariate_shapley, interaction_of, shapley_interaction
from xfeval.core.utils import check_options
from xfeval.explainers.base import methods
from xfeval.explainers.baselines import random_scores
from xfeval.explainers.games import occlusion
from xfeval.explainers.shapley import (coalitions, estimators, every_coalition, exact_shapley, kernel_budget,
                                       kernel_projection, kernel_regression, kernel_shap, kernel_weights, shapley_of,
                                       shapley_sampling)
from xfeval.explainers.lime import lime, lime_fit, lime_pruthi, lime_weights, lime_zaman, sobol

games = {name: fn for name, fn in methods["token"].items() if methods["token"].info(name)["style"] == "game"}
games |= dict(bivariate_shapley=bivariate_shapley, shapley_interaction=shapley_interaction)

def cost(name, n, kind="token", **options):
    "Rows that a method asks for, as it was registered"
    return methods[kind].info(name)["cost"](n, **options)

known = Path(__file__).parent/"oracles.json"
oracles = json.loads(known.read_text()) if known.exists() else {}

def close(a, b, tol=1e-9): np.testing.assert_allclose(a, b, rtol=0, atol=tol)

def worked(Z): return .5 + 2*Z[:, 0] + 1*Z[:, 1] + 3*(Z[:, 0] & Z[:, 1])

def table(v): return lambda Z: v[Z@(1 << np.arange(Z.shape[1]))]

def random_game(n, seed): return np.random.default_rng(seed).normal(size=2**n)

def smooth_game(n, seed):
    r = np.random.default_rng(seed)
    a, b = r.normal(size=(n, 16))*2/np.sqrt(n), r.normal(size=16)
    return 1/(1+np.exp(-np.tanh(every_coalition(n)@a + r.normal(size=16)*.5)@b))

def given_of(v, n):
    "Conditional Shapley values, given the presence and given the absence of a player, by their definition"
    weight, Z = np.array([1/(n*comb(n-1, s)) for s in range(n)]), every_coalition(n)
    size, present, absent = Z.sum(1), np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        for r in np.flatnonzero(~Z[:, i]):
            d = weight[size[r]]*(v[r | 1 << i]-v[r])
            present[i] += d*Z[r]
            absent[i] += d*~Z[r]
    np.fill_diagonal(present, 0)
    np.fill_diagonal(absent, 0)
    return present, absent

def first(out):
    "The values of the words, whether or not a matrix comes with them"
    return out[0] if isinstance(out, tuple) else out

# the numbers of the specification

def test_worked_shapley():
    close(run_game(exact_shapley(3), worked), [3.5, 2.5, 0])
    for e in estimators: close(run_game(kernel_shap(3, estimator=e), worked), [3.5, 2.5, 0])
    if oracles: close(run_game(kernel_shap(3), worked), oracles["kernel_shap_full_enum"])

def test_worked_bivariate():
    want = [[0, 2.5, 2], [2, 0, 1.5], [0, 0, 0]]
    for e in estimators:
        phi, given = run_game(bivariate_shapley(3, estimator=e), worked)
        close(phi, [3.5, 2.5, 0]); close(given, want)
    pair = (given+given.T)/2
    close([pair[0, 1], pair[0, 2], pair[1, 2]], [2.25, 1, .75])
    if oracles: close(given, oracles["bivariate_phi_i_given_j"])

def test_worked_diagonal_is_the_value_of_the_conditioned_game():
    Z, w = coalitions(3); n = 3
    raw = kernel_regression(Z, w, worked(Z)[:, None]*Z, np.zeros(n), np.full(n, 6.5))
    close(raw, [[4.5, 2.5, 2], [2, 4, 1.5], [0, 0, 3]])

def test_kernel_weights_of_four(): close(kernel_weights(4)[1:4], [.25, .125, .25])

def test_all_permutations_are_exact():
    close(run_game(shapley_sampling(3, permutations=list(permutations(range(3)))), worked), [3.5, 2.5, 0])

def test_additive_conditional_values_are_half():
    u = np.array([1., -2, .5, 0, 3])
    phi, given = run_game(bivariate_shapley(5), lambda Z: 7 + Z@u)
    close(phi, u); close(given, np.where(np.eye(5, dtype=bool), 0, u[:, None]/2))

def test_dummy_condition_is_not_half():
    _, given = run_game(bivariate_shapley(3), worked)
    assert abs(given[0, 2]-3.5/2) > .2

def test_lime_of_an_additive_game():
    u = np.array([1., -2, .5, 0]); Z = every_coalition(4)
    close(lime_fit(Z, 3+Z@u, lime_weights(Z), model="linear"), u)
    close(lime_fit(Z, 3+Z@u, lime_weights(Z, "text"), model="linear"), u)

def test_lime_settings():
    assert cost("lime_zaman", 30) == 50 and cost("lime_pruthi", 30) == 60 and cost("lime_zaman", 30, samples=25) == 25
    u = np.zeros(20); u[[3, 11]] = 2, -3
    assert np.count_nonzero(run_game(lime_pruthi(20, 0), lambda Z: Z@u)) <= 4
    z = run_game(lime_zaman(20, 0), lambda Z: Z@u)
    assert set(np.argsort(-np.abs(z))[:2]) == {3, 11} and np.count_nonzero(z) < 20

# properties

ns, seeds = st.integers(1, 6), st.integers(0, 10**6)
few = settings(max_examples=25, deadline=None, derandomize=True)

@few
@hypothesis_given(st.integers(1, 9), seeds, st.integers(2, 80), st.sampled_from(estimators))
def test_efficiency(n, seed, budget, estimator):
    v = random_game(n, seed)
    close(run_game(kernel_shap(n, seed, budget, estimator), table(v)).sum(), v[-1]-v[0], 1e-9)
    close(run_game(shapley_sampling(n, seed, samples=3), table(v)).sum(), v[-1]-v[0], 1e-9)
    close(run_game(bivariate_shapley(n, seed, budget, estimator), table(v))[0].sum(), v[-1]-v[0], 1e-9)

@few
@hypothesis_given(ns, seeds)
def test_full_enumeration_is_exact(n, seed):
    v = random_game(n, seed)
    true = shapley_of(v, n)
    for e in estimators: close(run_game(kernel_shap(n, seed, estimator=e), table(v)), true, 1e-7)
    phi, given = run_game(bivariate_shapley(n, seed), table(v))
    close(phi, true, 1e-8)
    close(given, given_of(v, n)[0], 1e-8)
    phi, index = run_game(shapley_interaction(n, seed), table(v))
    close(phi, true, 1e-8)
    close(index, index.T)
    close(np.diag(index), 0)

@few
@hypothesis_given(st.integers(2, 6), seeds)
def test_conditions_add_up(n, seed):
    v = random_game(n, seed); present, absent = given_of(v, n); phi = shapley_of(v, n)
    off = ~np.eye(n, dtype=bool)
    close((present+absent)[off], np.repeat(phi[:, None], n, 1)[off])
    without = run_game(bivariate_shapley(n), lambda Z: -table(v)(~Z))[1] # the dual game swaps presence and absence
    close(without[off], absent[off], 1e-8)

@few
@hypothesis_given(st.integers(2, 6), seeds)
def test_dummy_symmetry_additivity(n, seed):
    v, u = random_game(n, seed), random_game(n, seed+1)
    dummy = v[np.arange(2**n) & ~1]
    close(shapley_of(dummy, n)[0], 0)
    close(interaction_of(dummy, n)[0], 0)
    close(run_game(kernel_shap(n, 0), table(dummy))[0], 0, 1e-8)
    swapped = every_coalition(n)[:, [1, 0, *range(2, n)]]
    phi = run_game(kernel_shap(n, 0), table(v+table(v)(swapped)))
    close(phi[0], phi[1], 1e-8)
    Z, w = coalitions(n, seed, 12)
    projection = kernel_projection(Z, w)
    def fit(x): return kernel_regression(Z, w, table(x)(Z), x[0], x[-1], projection)
    close(fit(v+2*u), fit(v)+2*fit(u), 1e-8)

@few
@hypothesis_given(st.integers(2, 8), seeds, st.integers(4, 60))
def test_permutation_equivariance(n, seed, budget):
    v, (Z, w) = random_game(n, seed), coalitions(n, seed, budget)
    order = np.random.default_rng(seed).permutation(n)
    a = kernel_regression(Z, w, table(v)(Z), v[0], v[-1])
    b = kernel_regression(Z[:, order], w, table(v)(Z), v[0], v[-1])
    close(a[order], b, 1e-7)

@few
@hypothesis_given(st.integers(2, 10), seeds, st.integers(2, 300))
def test_coalitions(n, seed, budget):
    Z, w = coalitions(n, seed, budget)
    size = Z.sum(1)
    assert len(Z) == kernel_budget(n, budget) <= budget and len(np.unique(Z, axis=0)) == len(Z)
    assert (w > 0).all() and size.min() >= 1 and size.max() < n
    assert {z.tobytes() for z in Z} == {(~z).tobytes() for z in Z}
    again, weights = coalitions(n, seed, budget)
    assert (Z == again).all() and (w == weights).all()

def test_coalitions_of_long_texts():
    for law in ("kernel", "leverage"):
        Z, w = coalitions(200, 0, 600, law)
        assert Z.shape == (600, 200) and len(np.unique(Z, axis=0)) == 600
    u = np.random.default_rng(0).normal(size=40)
    close(run_game(kernel_shap(40, 0, 80), lambda Z: 1+Z@u), u, 1e-8)
    Z, _ = coalitions(200)
    assert len(Z) == 2448 and (np.bincount(Z.sum(1), minlength=201)[[1, 199]] == 200).all()

def test_sampled_values_approach_exact():
    n, v = 11, smooth_game(11, 3)
    true = shapley_of(v, n)
    def mse(e, b, s): return ((run_game(kernel_shap(n, s, b, e), table(v))-true)**2).mean()
    def rmse(e, b): return np.sqrt(np.mean([mse(e, b, s) for s in range(4)])/(true**2).mean())
    assert rmse("regression", 1000) < rmse("regression", 60)/2
    assert rmse("kriging", 126) < rmse("regression", 126) and rmse("kriging", 510) < rmse("regression", 510)/1.5

def test_antithetic_reduces_the_error():
    n, v = 8, smooth_game(8, 1)
    true = shapley_of(v, n)
    def mse(a, s): return ((run_game(shapley_sampling(n, s, samples=10, antithetic=a), table(v))-true)**2).mean()
    assert np.mean([mse(True, s) for s in range(40)]) < np.mean([mse(False, s) for s in range(40)])

@few
@hypothesis_given(st.integers(2, 11), seeds, st.integers(30, 120))
def test_additive_games_have_no_interaction(n, seed, budget):
    u, budget = np.random.default_rng(seed).normal(size=n), max(budget, 3*n)
    phi, index = run_game(shapley_interaction(n, seed, budget), lambda Z: 2+Z@u)
    close(phi, u, 1e-6)
    close(index, 0, 1e-5)

def test_kriging_gradient_and_closed_forms():
    from xfeval.explainers.kriging import _reml, _trend
    r = np.random.default_rng(0)
    z = np.unique(r.random((40, 6)) < .5, axis=0)
    y, s = r.normal(size=len(z)), r.normal(size=6)*.3-1
    args = (2.*z-1, y, _trend(z), .5, 1e-6)
    def slope(e): return (_reml(s+1e-5*e, *args)[0]-_reml(s-1e-5*e, *args)[0])/2e-5
    close(_reml(s, *args)[1], [slope(e) for e in np.eye(6)], 1e-3)
    v, Z, asked = smooth_game(6, 0), every_coalition(6), np.r_[0, 63, 5:30]
    k = Kriging(Z[asked], v[asked])
    fitted, (phi, given, index) = k(Z), k.shapley()
    close(phi, shapley_of(fitted, 6), 1e-9)
    close(given, given_of(fitted-fitted[0], 6)[0], 1e-9)
    close(index, interaction_of(fitted, 6), 1e-9)

def test_sobol():
    u = np.array([2., -1, 0, .5])
    close(run_game(sobol(4, samples=16), lambda Z: Z@u), u**2/(u**2).sum())
    close(run_game(sobol(3, samples=8), lambda Z: 1.*(Z[:, 0]^Z[:, 1])), [1, 1, 0])
    sampled = run_game(sobol(10, 0, samples=400), lambda Z: Z@np.arange(10.))
    close(sampled, np.arange(10.)**2/285, .06)

def test_random_scores():
    assert (run_game(random_scores(50, 1), worked) == run_game(random_scores(50, 1), worked)).all() and cost("random", 9) == 0
    assert 0 <= run_game(random_scores(50, 1, "uniform"), worked).min()

# edges and errors

@pytest.mark.parametrize("name", list(games))
def test_edges(name):
    for n in (0, 1, 2, 5):
        asked = []
        def value(Z):
            asked.append(len(Z))
            return Z.sum(1)**1.5
        out = run_game(games[name](n), value)
        pair = dict(bivariate_shapley="shapley", shapley_interaction="shapley_interaction").get(name)
        assert first(out).shape == (n,) and sum(asked) == (cost(pair or name, n, "pair" if pair else "token") if n else 0)
        for part in out if isinstance(out, tuple) else (out,): assert np.isfinite(part).all()

by_shapley = ["exact_shapley", "shapley_sampling", "shapley", "bivariate_shapley", "shapley_interaction"]

@pytest.mark.parametrize("name", ["occlusion", *by_shapley])
def test_one_player(name): close(first(run_game(games[name](1), lambda Z: 2.+3*Z[:, 0])), [3.])

@pytest.mark.parametrize("name", [m for m in games if m != "random"])
def test_constant_and_nan(name):
    def broken(Z): return np.where(Z.sum(1) == 3, np.nan, 1.)
    close(first(run_game(games[name](4), lambda Z: np.ones(len(Z)))), 0)
    with pytest.raises(ValueError, match="not a finite number"): run_game(games[name](4), broken)

@pytest.mark.parametrize("make, words", [
    (lambda: kernel_shap(4, 0, 1), "budget"),
    (lambda: kernel_shap(4, 0, estimator="krigin"), "kriging"),
    (lambda: kernel_shap(4, 0, law="levrage"), "leverage"),
    (lambda: shapley_sampling(4, samples=0), "samples"),
    (lambda: shapley_sampling(4, permutations=[[0, 1, 2]]), "order 0 to 3"),
    (lambda: exact_shapley(30), "20 players"),
    (lambda: lime(4, model="laso"), "lasso"),
    (lambda: lime(4, keep=1.5), "keep"),
    (lambda: occlusion(-1), "0 or more"),
    (lambda: random_scores(3, law="norml"), "normal")])
def test_bad_options(make, words):
    with pytest.raises(ValueError, match=words): run_game(make(), worked)

def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="budget"): check_options(kernel_shap, dict(budgett=3))
    with pytest.raises(ValueError, match="shapley_sampling"): methods["token"]["shapley_samplin"]
    with pytest.raises(ValueError): check_options(occlusion, dict(window=2))

# peers

def test_captum_shapley_sampling():
    torch, captum = pytest.importorskip("torch"), pytest.importorskip("captum.attr")
    n, m, v = 7, 6, smooth_game(7, 5)
    orders = np.stack([np.random.default_rng(s).permutation(n) for s in range(m)])
    def f(x): return torch.tensor(table(v)(x.numpy() > .5))
    peer = captum.ShapleyValueSampling(f)
    peer.permutation_generator = lambda k, s: (o.tolist() for o in orders)
    theirs = peer.attribute(torch.ones(1, n), baselines=torch.zeros(1, n), n_samples=m).numpy()[0]
    close(run_game(shapley_sampling(n, permutations=orders), table(v)), theirs, 1e-5)

def test_captum_lime():
    torch, captum = pytest.importorskip("torch"), pytest.importorskip("captum.attr")
    n, v, seen = 8, smooth_game(8, 5)*3, []
    def f(x):
        seen.append(x.numpy() > .5)
        return torch.tensor(table(v)(seen[-1]), dtype=torch.float64)
    torch.manual_seed(0)
    theirs = captum.Lime(f).attribute(torch.ones(1, n), baselines=torch.zeros(1, n), n_samples=50).numpy()[0]
    Z = np.vstack(seen)[-50:]
    close(lime_fit(Z, table(v)(Z), lime_weights(Z)), theirs, 1e-4)
    assert np.abs(theirs).max() > .05

@pytest.mark.parametrize("n, budget", [(5, 30), (8, 60), (10, 150)])
def test_shap_kernel_explainer(n, budget):
    shap, v = pytest.importorskip("shap"), smooth_game(n, 2)
    np.random.seed(0)
    peer = shap.KernelExplainer(lambda x: table(v)(x > .5), np.zeros((1, n)))
    theirs = peer.shap_values(np.ones((1, n)), nsamples=budget, l1_reg=False, silent=True)[0]
    Z, w = peer.maskMatrix[:peer.nsamplesAdded] > .5, peer.kernelWeights[:peer.nsamplesAdded]
    close(kernel_regression(Z, w, table(v)(Z), v[0], v[-1]), theirs, 1e-8)
    if budget >= 2**n-2: close(run_game(kernel_shap(n), table(v)), theirs, 1e-8)

@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_shapiq_exact(n):
    shapiq, v = pytest.importorskip("shapiq"), random_game(n, n)
    peer = shapiq.ExactComputer(game=lambda Z: table(v)(np.atleast_2d(np.asarray(Z, bool))), n_players=n)
    sv = peer("SV", 1).get_n_order_values(1)
    close(run_game(exact_shapley(n), table(v)), sv)
    close(run_game(kernel_shap(n), table(v)), sv, 1e-8)
    phi, index = run_game(shapley_interaction(n), table(v))
    close(index, peer("SII", 2).get_n_order_values(2))
    close(phi, sv)

def test_shapiq_kernel():
    shapiq, n, v = pytest.importorskip("shapiq"), 6, smooth_game(6, 9)
    def f(Z): return table(v)(np.atleast_2d(Z))
    theirs = shapiq.KernelSHAP(n=n, random_state=0).approximate(2**n, f)
    close(run_game(kernel_shap(n), table(v)), theirs.get_n_order_values(1), 1e-5)
