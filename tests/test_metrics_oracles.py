"Worked numbers of the specification (tests/oracles.json), one test each, on toy games"
import json, math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold, Instance
from xfeval.metrics.base import Context, average_precision, metric_value, share_count
from xfeval.metrics.erasure import aopc, decile_rationales
from xfeval.metrics.soft import code_bins, normalised, paper_bins
from xfeval.metrics.diagnosticity import diagnosticity
from xfeval.metrics.unified import budgets, matched_sets, random_entropy
from xfeval.stats.values import note_of
import xfeval.metrics.plausibility # registers its metrics

O = json.loads((Path(__file__).parent/"oracles.json").read_text())

def close(a, b, eps=1e-9):
    np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), atol=eps, rtol=0)

X = Instance.from_words([["a", "b", "c", "d"], ["e", "f", "g"]], id="x")
SPANS = Explanation(X, "span", [((0, 1), (4, 4)), ((2, 2), (4, 4)), ((3, 3), (5, 5))], [.9, .7, .5], base="shapley")
TWO = Explanation(X, "span", [((0, 1), (4, 4)), ((2, 2), (4, 4))], [.9, .5])
FIVE = Instance.from_words(list("abcde"), id="five", gold=Gold(tokens={0, 3}))
W = np.array([.4, .2, -.1, .1, .1])
def PROB(rows): return .1 + np.asarray(rows, float) @ W
FERRET = Context(Explanation.from_scores(FIVE, [.5, .3, -.1, .2, .1]))
def gold(ex, **g): return Context(ex.replace(instance=ex.instance.replace(gold=Gold(**g))))
def fixed_labels(*y): return lambda rows: np.array([1, *y])

# B.1
def test_theta(): assert list(budgets(Context(SPANS))) == O["theta"]

@pytest.mark.parametrize("rule", ["floor", "ceil", "truncate"])
def test_theta_overflow(rule):
    pairs = Explanation(X, "pair", [(0, 4), (2, 6), (1, 4)], [.9, .8, .7])
    assert list(pairs.take(3, rule)) == O["theta3_modes"][rule]
    assert list(matched_sets(Context(pairs, theta=(3,)), k=1, overflow=rule)[0]) == O["theta3_modes"][rule]

def test_unified_comprehensiveness():
    close(metric_value("unified_comprehensiveness", Context(SPANS), fixed_labels(1, 0, 0)), O["unified_comp"])

def test_unified_sufficiency_both_readings():
    r = metric_value("unified_sufficiency", Context(SPANS), fixed_labels(0, 1, 1))
    close([r["preserved"], r["flip_rate"]], [O["unified_suff_eq3"], O["unified_suff_fliprate"]])

def test_matched_and_incremental_steps():
    ctx = Context(Explanation.from_scores(X, [.7, .6, .5, .4, .3, .2, .1]), reference=SPANS)
    def game(rows): return np.where((~rows).sum(1) >= 3, 0, 1)
    close(metric_value("unified_comprehensiveness", ctx, game), O["comp_matched"])
    close(metric_value("unified_comprehensiveness", ctx, game, steps="incremental"), O["comp_incremental"])

def test_the_right_words_are_masked():
    seen = []
    def game(rows): seen.append(rows); return np.ones(len(rows), int)
    metric_value("unified_comprehensiveness", Context(SPANS), game)
    assert [set(np.flatnonzero(~r)) for r in seen[0]] == [set(), {0, 1, 4}, {0, 1, 2, 4}, {0, 1, 2, 3, 4, 5}]
    seen.clear()
    metric_value("unified_sufficiency", Context(SPANS), game)
    assert [set(np.flatnonzero(r)) for r in seen[0]] == [set(range(7)), {0, 1, 4}, {0, 1, 2, 4}, {0, 1, 2, 3, 4, 5}]

# B.2
@pytest.mark.parametrize("args,key",
                         [(([.9, .8, .7, .1], [1, 0, 1, 0]), "ap_basic"), (([.5, .5, .1], [1, 0, 1]), "ap_ties"),
                          (([.9, .8, .7], [1, 0, 1], 3), "ap_interaction_3gold_2hit")])
def test_average_precision(args, key): close(average_precision(*args), O[key])

def test_token_level_flattening():
    close(metric_value("token_agreement", gold(TWO, tokens={1, 2, 4})), O["ap_token_flattened"])
def test_token_gold_from_interactions():
    ctx = gold(TWO, tokens={0}, pairs={(1, 4), (2, 4)})
    close(metric_value("token_agreement", ctx, token_gold="interaction_tokens"), O["ap_token_flattened"])
    assert metric_value("token_agreement", ctx) != metric_value("token_agreement", ctx, token_gold="interaction_tokens")
def test_interactions_token_pairs():
    close(metric_value("interaction_agreement", gold(TWO, pairs={(1, 4), (2, 4), (3, 5)})), O["ap_token_pairs"])
def test_interactions_exact():
    close(metric_value("interaction_agreement", gold(TWO, spans={((1, 1), (4, 4)), ((2, 2), (4, 4))}), match="exact"),
          O["ap_exact_spans"])
def test_interactions_iou_is_one_to_one():
    ctx = gold(TWO, spans={((0, 1), (4, 4))})
    two_like_one = replace(ctx, ex=ctx.ex.replace(items=[((0, 1), (4, 4)), ((1, 1), (4, 4))], scores=[.9, .5]))
    assert metric_value("interaction_agreement", two_like_one, match="iou") == 1
    assert metric_value("interaction_agreement", gold(TWO, spans={((0, 3), (4, 4))}), match="iou") == 1
    assert metric_value("interaction_agreement", gold(TWO, spans={((0, 3), (4, 4))}), match="iou", iou=.6) == 0
def test_budget_cut():
    ex = Explanation.from_scores(X, [.7, .6, .5, .4, .3, .2, .1])
    cut = replace(gold(ex, tokens={0, 6}), reference=TWO)
    close(metric_value("token_agreement", cut), .5)
    close(metric_value("token_agreement", cut, cut="none"), .5 + .5*2/7)
    assert note_of(metric_value("token_agreement", gold(ex, tokens={0, 6})))

# B.4
@pytest.mark.parametrize("scores,k,key",
                         [([.5, .3, .2], None, "entropy_3"), ([.5, .3, .2], 2, "entropy_top2"),
                          ([-.5, .3, .2], None, "entropy_signed")])
def test_complexity(scores, k, key):
    close(metric_value("complexity", Context(Explanation.from_scores(Instance.from_words(list("abc")), scores)), k=k),
          O[key])
def test_complexity_bounds():
    ctx = Context(Explanation.from_scores(Instance.from_words(list("abc")), [1, 2, 3]))
    close(metric_value("complexity_upper", ctx), O["upper_3"])
    assert metric_value("complexity_random", ctx) < O["upper_3"]
    close(random_entropy(14, 20000), O["random_entropy_mean_k14"], 3e-3)
    close(random_entropy(24, 20000), O["random_entropy_mean_k24"], 3e-3)
    for k, gap in O["random_gap_lnk_minus_H"].items():
        close(math.log(int(k))-random_entropy(int(k), 20000), gap, 6e-3)
def test_complexity_counts_the_items_of_the_span_explanation():
    ctx = Context(Explanation.from_scores(X, [.5, .3, .2, .1, .1, .1, .1]), reference=SPANS)
    close(metric_value("complexity", ctx), O["entropy_3"])
def test_complexity_of_zeros():
    ctx = Context(Explanation.from_scores(FIVE, [0]*5))
    assert note_of(metric_value("complexity", ctx)) == "all scores are zero"
    close(metric_value("complexity", ctx, all_zero="upper"), math.log(5))

# B.5
def test_normalised():
    close(normalised(.9, .3, .7, "sufficiency"), O["NS"])
    close(normalised(.9, .3, .6, "comprehensiveness"), O["NC"])
    close(1-max(0, .9-.7), O["S"])
    close(1-max(0, .9-.3), O["S0"])
def test_normalised_in_a_game():
    table = {(1, 1, 1): .9, (1, 0, 0): .7, (0, 0, 0): .3, (0, 1, 1): .6}
    ctx = Context(Explanation.from_scores(Instance.from_words(list("abc")), [3, 2, 1]))
    def game(rows): return np.array([table[tuple(r.astype(int).tolist())] for r in rows])
    close(metric_value("normalised_sufficiency", ctx, game, bins=(.1,)), O["NS"])
    close(metric_value("normalised_comprehensiveness", ctx, game, bins=(.1,)), O["NC"])
    close(metric_value("normalised_sufficiency", ctx, game, bins=(.1,), zero="zero_embedding"), O["NS"])
def test_zero_denominator():
    def flat(rows): return np.full(len(rows), .5)
    for m in ("normalised_sufficiency", "normalised_comprehensiveness", "soft_sufficiency", "soft_comprehensiveness"):
        assert note_of(metric_value(m, FERRET, flat)) == "zeroed text is as convincing as the full text"
    assert metric_value("normalised_sufficiency", FERRET, flat, eps=1e-4) == 1
    assert metric_value("normalised_comprehensiveness", FERRET, flat, eps=1e-4) == 0
def test_rationale_counts():
    want = O["n_remove_20_tokens"]
    assert [share_count(20, p) for p in paper_bins] == want["eraser_like_round_min1"]
    assert [share_count(20, p, "ceil") for p in paper_bins] == want["softfaith_ceil"]
    assert len(code_bins) == 7

@pytest.mark.parametrize("ones", [(0,), (0, 3), (1, 2, 4), (0, 1, 2, 3, 4), ()])
def test_soft_metrics_of_zeros_and_ones_are_the_hard_ones(ones):
    rng = np.random.default_rng(3)
    v = rng.random(32)
    v[31], v[0] = .95, .05
    def game(rows): return v[(np.asarray(rows) > .5) @ (1 << np.arange(5))]
    ex = Explanation.from_scores(FIVE, [float(i in ones) for i in range(5)])
    ctx = Context(ex)
    if len(ones) in (0, 5):
        assert math.isfinite(metric_value("soft_sufficiency", ctx, lambda r: np.asarray(r, float).mean(1)))
    else:
        for soft, hard in (("soft_sufficiency", "normalised_sufficiency"),
                           ("soft_comprehensiveness", "normalised_comprehensiveness")):
            close(metric_value(soft, ctx, game), metric_value(hard, ctx, game, bins=(len(ones)/5,), absent="zero_embedding"))

def test_everything_kept_is_fully_sufficient():
    ctx = Context(Explanation.from_scores(FIVE, [900.]*5))
    close(metric_value("soft_sufficiency", ctx, PROB, scaling="sigmoid"), 1)
    close(metric_value("soft_comprehensiveness", ctx, PROB, scaling="sigmoid"), 1)

@pytest.mark.parametrize("ties,key", [("strict", "diag_strict"), ("ge", "diag_ge"), ("half", "diag_half")])
def test_diagnosticity(ties, key):
    d = diagnosticity([.5, .4, .3], [.4, .4, .5], ties)
    close(d["diagnosticity"], O[key])
    close(d["ties"], 1/3)

# B.6
def test_aopc_divisors():
    d = [.1, .2, .2, .3, .5]
    close(aopc(d), O["aopc_mean"])
    close(aopc(d, "bplus1"), O["aopc_Bplus1"])
def test_eraser_removes_the_right_number_of_words():
    x = Instance.from_words([f"w{i}" for i in range(20)])
    seen = []
    def game(rows): seen.append(rows); return rows.mean(1)
    ctx = Context(Explanation.from_scores(x, np.arange(20, 0, -1.)))
    close(metric_value("eraser_comprehensiveness", ctx, game), np.mean([1, 1, 2, 4, 10])/20)
    assert (~seen[0]).sum(1).tolist() == [0, *O["n_remove_20_tokens"]["eraser_like_round_min1"]]
    close(metric_value("eraser_sufficiency", ctx, game), 1-np.mean([1, 1, 2, 4, 10])/20)
    close(metric_value("eraser_comprehensiveness", ctx, game, divisor="bplus1"), 18/20/6)
def test_ties_go_to_the_first_word():
    seen = []
    def game(rows): seen.append(rows); return rows.mean(1)
    metric_value("comprehensiveness", Context(Explanation.from_scores(FIVE, [.1, .4, .4, .1, .4])), game, share=.2)
    assert np.flatnonzero(~seen[0][1]).tolist() == [1]

# B.7
def test_ferret_rationales(): assert [sorted(r) for r in decile_rationales(FERRET)] == O["ferret_sets"]
def test_ferret_counts(): assert [k*5//10 for k in range(1, 11)] == O["ferret_v"]
def test_ferret_aopc():
    close(metric_value("aopc_comprehensiveness", FERRET, PROB), O["ferret_comp"])
    close(metric_value("aopc_sufficiency", FERRET, PROB), O["ferret_suff"])
    close(metric_value("aopc_comprehensiveness", FERRET, PROB, dedup=False), O["ferret_comp_no_dedup"])
def test_ferret_percent_of_positive():
    assert decile_rationales(FERRET, percent_of="positive",
                             dedup=False) == [(0, 1, 3, 4)[:k*4//10] for k in range(3, 11)]
    assert len(decile_rationales(FERRET, only_positive=False)[-1]) == 5
def test_ferret_no_positive():
    none = Context(Explanation.from_scores(FIVE, [-1, -2, 0, -1, 0]))
    a, b = metric_value("aopc_comprehensiveness", none, PROB), metric_value("aopc_sufficiency", none, PROB)
    assert (a, b) == (0, 1) and note_of(a) == note_of(b) == "no positive score"
def test_ferret_loo():
    from xfeval.core.game import run_game
    from xfeval.metrics.erasure import leave_one_out
    close(run_game(leave_one_out(FERRET), PROB), O["ferret_loo"])
    close(metric_value("taucorr_loo", FERRET, PROB), O["ferret_tau_b"])
    close(metric_value("taucorr_loo", FERRET, PROB, correlation="spearman"), O["ferret_spearman"])
def test_ferret_plausibility():
    close(metric_value("token_iou", FERRET, k=3), O["iou"])
    close(metric_value("token_f1", FERRET, k=3), O["f1"])
    close(metric_value("auprc", FERRET), O["auprc_trapezoid"])
    close(metric_value("token_iou", replace(FERRET, avg_gold=3.9)), O["iou"])
    close(metric_value("token_iou", FERRET), 2/4)

# B.9
def test_map(): close(metric_value("map_plausibility", FERRET), O["ap_same_data"])
