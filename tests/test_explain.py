"Explanations of all kinds on real architectures: equal to peers, complete, independent of the batch"
import json, warnings

import numpy as np
import pytest
import torch

from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance
from xfeval.engine.run import Engine, engine_for
from xfeval.engine.rows import Job
from xfeval.explainers import attention as att
from xfeval.explainers import gradients as grads
from xfeval.core.utils import options_of
from xfeval.explainers.base import methods
from xfeval.explainers.explain import explain, list_methods, score, to_kind
from xfeval.explainers.exchange import from_captum, from_ferret, from_shap, from_tokens
from xfeval.models.classifier import Classifier
from xfeval.truth.tiny import new_tiny
from xfeval.models.forward import value_of

LABELS = ["entailment", "neutral", "contradiction"]
TEXTS = [["A man plays the guitar in a park .", "A person makes music ."],
         ["Two dogs run .", "Animals sleep in the old house ."],
         ["Dogs sleep .", "Dogs sleep ."]]
DATA = [Instance.from_text(t, id=str(i), label="neutral") for i, t in enumerate(TEXTS)]
ARCHS = ["bert", "bart", "gpt2"]
QUICK = dict(budget=60, samples=12, steps=6)


@pytest.fixture(scope="module", params=ARCHS)
def clf(request): return new_tiny(request.param, sum(TEXTS, []), LABELS, init="lively", seed=3)


@pytest.fixture(scope="module")
def bert(): return new_tiny("bert", sum(TEXTS, []), LABELS, init="lively", seed=3)


def quick(m, kind, sizes=QUICK):
    "The options of a method that make it cheap"
    known = options_of(methods["token" if kind == "token" else "pair"][m])
    return {k: v for k, v in sizes.items() if k in known}


def names(kind):
    "All methods of a kind but the one that asks for every coalition"
    return [m for m in methods[kind] if m != "exact_shapley"]


def difference(a, b):
    "Largest difference of the scores of two explanations of the same items"
    assert set(a.items) == set(b.items)
    other = dict(b)
    return max((abs(s - other[i]) for i, s in a), default=0)


@pytest.mark.parametrize("kind", ["token", "pair"])
def test_batch_equals_single_for_every_method(clf, kind):
    for m in names(kind):
        together = explain(clf, DATA, m, kind, engine=Engine(clf), **quick(m, kind))
        alone = [explain(clf, x, m, kind, engine=Engine(clf), **quick(m, kind))[0] for x in reversed(DATA)][::-1]
        assert max(map(difference, together, alone)) < 1e-5, (clf.name, m)


def sentences(count):
    "Pairs of sentences of many lengths, all from the words of the texts"
    words, r = " ".join(sum(TEXTS, [])).replace(".", "").split(), np.random.default_rng(0)
    texts = [[" ".join(r.choice(words, r.integers(1, 12))) + " ." for _ in range(2)] for _ in range(count)]
    return [Instance.from_text(t, id=f"s{i}", label="neutral") for i, t in enumerate(texts)]


@pytest.mark.parametrize("kind", ["token", "pair"])
def test_sixty_four_at_once_equal_one_by_one(bert, kind):
    data, sizes = sentences(64), dict(budget=20, samples=4, steps=3)
    for m in names(kind):
        own = quick(m, kind, sizes)
        together = explain(bert, data, m, kind, engine=Engine(bert), **own)
        alone = [explain(bert, x, m, kind, engine=Engine(bert), **own)[0] for x in data]
        gaps = [difference(a, b) for a, b in zip(together, alone)]
        assert max(gaps) < 1e-5, m


def test_several_span_searches_at_once(bert):
    searches = [{}, dict(backend="python-louvain"), dict(search="contiguous")]
    together = explain(bert, DATA, "attention", ["pair", "span", "combined"], span=searches)
    assert [e.kind for e in together[:7]] == ["pair"] + ["span"]*3 + ["token"]*3
    for i, search in enumerate(searches):
        for kind, first in (("span", 1), ("combined", 4)):
            alone = explain(bert, DATA, "attention", kind, span=search)
            assert [dict(e) for e in together[first + i::7]] == [dict(e) for e in alone]
    with pytest.raises(ValueError, match="at least one search"): explain(bert, DATA, "attention", "span", span=[])
    with pytest.raises(ValueError, match="serch"): explain(bert, DATA, "attention", "span", span=[{}, dict(serch="x")])


def test_interaction_index_shares_the_rows_of_shapley_values(bert):
    engine = Engine(bert)
    explain(bert, DATA, "shapley", budget=24, engine=engine)
    before = engine.stats["run"]
    explain(bert, DATA, "shapley_interaction", "pair", budget=24, engine=engine)
    assert engine.stats["run"] == before


def test_loss_does_not_depend_on_the_batch(bert):
    "BUG-37: the mean loss of a batch scales every gradient by the size of the batch"
    for m in ("saliency", "integrated_gradients", "input_x_gradient"):
        together = explain(bert, DATA, m, output="neg_loss", **quick(m, "token"))
        alone = [explain(bert, x, m, output="neg_loss", **quick(m, "token"))[0] for x in DATA]
        assert max(map(difference, together, alone)) < 1e-5, m


def test_one_part_for_every_token_method(clf):
    x = Instance.from_text("Two dogs run in the park .", id="single", label="neutral")
    for m in names("token"):
        e = explain(clf, x, m, **quick(m, "token"))[0]
        assert set(e.items) == set(range(x.n_words)) and np.isfinite(e.scores).all(), (clf.name, m)
    for kind in ("pair", "span", "combined"):
        with pytest.raises(ValueError, match="need two parts"): explain(clf, x, "shapley", kind)


def test_a_model_that_never_changes_its_mind_gives_equal_scores():
    f = Classifier.from_function(lambda texts: np.full((len(texts), 2), .5), ["no", "yes"])
    x = Instance.from_text(["good film", "bad film"], id="flat")
    for m in ("shapley", "shapley_sampling", "occlusion", "lime", "lime_pruthi", "sobol"):
        e = explain(f, x, m, **quick(m, "token"))[0]
        assert e.items == (0, 1, 2, 3) and not e.scores.any(), m
    spans = explain(f, x, "shapley_interaction", "span")[0]
    assert spans.items == (((0, 0), (2, 2)),) and "stands in" in " ".join(spans.notes)


def test_every_method_gives_every_kind_it_claims(clf):
    for k in ("span", "combined"):
        for m in ("shapley", "attention", "integrated_gradients", "random"):
            ex = explain(clf, DATA, m, k, **quick(m, k))
            assert len(ex) == 3 and all(len(e) > 0 for e in ex)
    e = explain(clf, DATA[0], "shapley", "span", budget=60)[0]
    assert e.kind == "span" and e.base == "shapley" and e.forwards > 0 and e.target in LABELS


def ends(clf, x, target, output="prob_top"):
    def gen(n): return (yield np.vstack([np.ones(n, bool), np.zeros(n, bool)]))
    v = Engine(clf).run([Job(x, gen, output, target=target)])[0]
    return v[0] - v[1]


def test_shapley_is_complete(clf):
    for x, e in zip(DATA, explain(clf, DATA, "shapley", budget=100)):
        assert abs(e.scores.sum() - ends(clf, x, clf.index(e.target))) < 1e-5


@pytest.mark.parametrize("output", ["prob_top", "logit_top", "neg_loss"])
def test_integrated_gradients_are_complete(clf, output):
    encs = clf.encode_all(DATA); t = clf.predict(DATA).argmax(1)
    for a in grads.integrated_gradients(clf, encs, t, output, None, steps=200): assert abs(a.facts["delta"]) < 5e-3


def test_conductance_is_complete(clf):
    encs = clf.encode_all(DATA); t = clf.predict(DATA).argmax(1)
    _, deltas = grads.conductance(clf, encs, t, "logit_top", steps=200, layers=[len(clf.layers)-1])
    assert max(abs(d[0]) for d in deltas) < .05, "all paths run through the last layer (of BART: the decoder's)"


def test_conductance_equals_captum_at_many_steps(bert):
    from captum.attr import LayerConductance
    enc = bert.encode(DATA[0]); t = int(bert.predict([DATA[0]]).argmax())
    b = bert.batch([enc]); view = bert.as_module(b, "logit_top", np.array([t]))
    E, B = (torch.tensor(v[0])[None] for v in (bert.embeddings([enc]), bert.baselines([enc], "pad")))
    theirs = LayerConductance(view, bert.layers[0]).attribute(E, B, n_steps=300, method="riemann_middle")
    theirs = (theirs[0] if isinstance(theirs, tuple) else theirs)[0].sum(-1).detach().numpy()
    ours, _ = grads.conductance(bert, [enc], [t], "logit_top", steps=300, layers=[0])
    np.testing.assert_allclose(ours[0][0], theirs, atol=5e-3)


def test_integrated_gradients_equal_captum(clf):
    from captum.attr import IntegratedGradients
    encs = clf.encode_all(DATA); t = clf.predict(DATA).argmax(1)
    ours = grads.integrated_gradients(clf, encs, t, "logit_top", None, steps=20)
    for i, e in enumerate(encs):
        view = clf.as_module(clf.batch([e]), "logit_top", t[[i]])
        E, B = (torch.tensor(v[0])[None] for v in (clf.embeddings([e]), clf.baselines([e], "pad")))
        theirs = IntegratedGradients(view).attribute(E, B, n_steps=20)[0].detach().numpy().sum(-1)
        np.testing.assert_allclose(ours[i].values, clf.to_words(e, theirs), atol=1e-4)


def test_saliency_equals_captum(clf):
    from captum.attr import Saliency
    e = clf.encode(DATA[0]); t = clf.predict([DATA[0]]).argmax(1)
    E = torch.tensor(clf.embeddings([e])[0])[None].requires_grad_()
    theirs = Saliency(clf.as_module(clf.batch([e]), "logit_top", t)).attribute(E)[0].detach().numpy()
    ours = explain(clf, DATA[0], "saliency", aggregation="l2")[0].vector()
    np.testing.assert_allclose(ours, clf.to_words(e, np.sqrt((theirs**2).sum(-1))), atol=1e-5)


def test_input_x_gradient_equals_captum(clf):
    from captum.attr import InputXGradient
    e, t = clf.encode(DATA[0]), clf.predict([DATA[0]]).argmax(1)
    E = torch.tensor(clf.embeddings([e])[0])[None].requires_grad_()
    theirs = InputXGradient(clf.as_module(clf.batch([e]), "logit_top", t)).attribute(E)[0].detach().numpy()
    ours = explain(clf, DATA[0], "input_x_gradient")[0].vector()
    np.testing.assert_allclose(ours, clf.to_words(e, theirs.sum(-1)), atol=1e-4)


NOISY = [("smooth_grad", "smoothgrad"), ("square_grad", "smoothgrad_sq"), ("var_grad", "vargrad")]

@pytest.mark.parametrize("name, kind", NOISY)
def test_noisy_gradients_equal_captum(bert, monkeypatch, name, kind):
    "The same noise through captum's noise tunnel"
    from captum.attr import NoiseTunnel, Saliency
    e, t = bert.encode(DATA[0]), bert.predict([DATA[0]]).argmax(1)
    E = torch.tensor(bert.embeddings([e])[0])[None]
    noise = .1*np.random.default_rng(7).standard_normal((5, *E.shape[1:]), np.float32)*(e.slot >= 0)[:, None]
    monkeypatch.setattr(torch, "normal", lambda mean, std: torch.tensor(noise).reshape(std.shape))
    def view(x): return bert.as_module(bert.batch([e]*len(x)), "logit_top", np.repeat(t, len(x)))(x)
    tunnel = NoiseTunnel(Saliency(view))
    theirs = tunnel.attribute(E, nt_type=kind, nt_samples=5, stdevs=.1, abs=False)[0].detach().numpy()
    rngs = [np.random.default_rng(7)]
    ours = getattr(grads, name)(bert, [e], t, "logit_top", rngs, samples=5, stdev=.1, aggregation="sum")[0].values
    np.testing.assert_allclose(ours, bert.to_words(e, theirs.sum(-1)), rtol=1e-3, atol=1e-3)


def test_shapley_sampling_equals_captum(bert):
    from captum.attr import ShapleyValueSampling
    x, n = DATA[1], DATA[1].n_words
    t, enc = int(bert.predict([x]).argmax()), bert.encode(x)
    perms = np.array([np.random.default_rng(s).permutation(n) for s in range(4)])
    def f(z): return torch.tensor(value_of(bert.logits([enc]*len(z), z.bool().numpy(), "pad"), "prob_top", t))
    s = ShapleyValueSampling(f)
    s.permutation_generator = lambda *a: (p.tolist() for p in perms)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = s.attribute(torch.ones(1, n), torch.zeros(1, n), n_samples=4)[0].numpy()
    ours = explain(bert, x, "shapley_sampling", permutations=perms)[0].vector()
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def short_game(bert):
    "A text of five words and its game, words masked"
    x = Instance.from_text(["Two dogs run", "Animals sleep"], id="short")
    t, enc = int(bert.predict([x]).argmax()), bert.encode(x)
    def game(z): return value_of(bert.logits([enc]*len(z), np.asarray(z).astype(bool), "mask"), "prob_top", t)
    return x, game


def test_kernel_shap_equals_shap_and_exact_when_enumerated(bert):
    import shap
    x, f = short_game(bert)
    theirs = shap.KernelExplainer(f, np.zeros((1, 5))).shap_values(np.ones((1, 5)), nsamples=30, silent=True)[0]
    ours = explain(bert, x, "shapley")[0].vector()
    np.testing.assert_allclose(ours, explain(bert, x, "exact_shapley")[0].vector(), atol=1e-6)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_interaction_index_equals_shapiq(bert):
    import shapiq
    x, game = short_game(bert)
    theirs = shapiq.ExactComputer(game=game, n_players=5)("SII", order=2)
    for (p, q), s in explain(bert, x, "shapley_interaction", "pair")[0]: assert abs(s - theirs[(p, q)]) < 1e-5


def test_positions_and_types_are_added_once(bert):
    "BUG-31: the output of the embedding layer fed back as input applies positions, types and layer norm twice"
    e = bert.encode(DATA[0]); b = bert.batch([e])
    assert torch.allclose(bert.embed(b)[0], bert.model.get_input_embeddings()(b.ids)[0])
    z = bert.as_module(b, "probs")(bert.embed(b)).detach().numpy()
    np.testing.assert_allclose(z, bert.predict([DATA[0]]), atol=1e-5)


def test_repeated_words_have_their_own_gradients(bert):
    "BUG-23: gradients gathered by token id are summed over all occurrences"
    x = Instance.from_text(["dogs run dogs sleep", "dogs"], id="r")
    v = explain(bert, x, "saliency", aggregation="l2")[0].vector()
    assert len({round(v[i], 5) for i in (0, 2, 4)}) == 3


def test_head_choice_reads_the_state_after_the_last_layer(bert):
    "BUG-01, BUG-02, BUG-03: wrong layer, transposed product, bias added"
    e, got = bert.encode(DATA[0]), []
    def keep(module, args, result):
        state = result[0] if isinstance(result, tuple) else result
        got.append(state[0, 0].detach().numpy())
    hook = bert.layers[-1].register_forward_hook(keep)
    bert.logits([e])
    hook.remove()
    np.testing.assert_allclose(bert.head_state([e])[0], got[0], atol=1e-5)
    W = (bert.model.classifier.weight @ bert.model.bert.pooler.dense.weight).detach().numpy()
    np.testing.assert_allclose(bert.head_weight(), W, atol=1e-5)
    np.testing.assert_allclose(att.head_scores([1, -2, 3, -1], [.5, .2, -.1, -.6], 2), [.3, .5])
    heads = att.choose_heads(bert, [e], [1], 4, "classifier", None)
    assert heads[0] == np.argmax(att.head_scores(got[0], W[1], 4)), "the most important head, not the least (BUG-04)"


def test_scaled_attention_uses_the_gradient(bert):
    "BUG-22: attention multiplied by itself"
    e = bert.encode(DATA[0]); (A, G), = att.attention_gradients(bert, [e], [0], "logit_top")
    eps, base = 1e-3, bert.logits([e])[0, 0]
    def bump(l, p, kind):
        if l == len(bert.layers)-1: q = p.clone(); q[:, 1, 0, 2] += eps; return q
    with bert.hooked_attention(bump): up = bert.logits([e])[0, 0]
    assert abs((up - base)/eps - G[1, 0, 2]) < 5e-2
    np.testing.assert_allclose(A, bert.attentions([e])[0][-1], atol=1e-5)


def test_attention_attribution_is_complete_per_layer(clf):
    encs = clf.encode_all(DATA[:2]); t = clf.predict(DATA[:2]).argmax(1)
    _, gaps = att.attention_attribution(clf, encs, t, "logit_top", steps=100, layers=[0])
    assert max(gaps) < .02


def test_edges_one_word_repeated_truncated_equal(clf):
    one = Instance.from_text(["dogs", ""], id="one")
    spans = explain(clf, one, "shapley", "span")[0]
    assert len(explain(clf, one, "shapley")[0]) == 1 and spans.items == ()
    assert any("no span pairs" in n for n in spans.notes)
    long = Instance.from_text(["dogs run " * 60, "A man ."], id="long")
    e = explain(clf, long, "saliency")[0]
    assert len(e) == len(clf.encode(long).players) < long.n_words and any("did not fit" in n for n in e.notes)
    empty = Instance.from_text(["", ""], id="empty")
    assert explain(clf, empty, "occlusion")[0].items == ()


def test_nan_is_an_error_not_a_score():
    model = new_tiny("bert", sum(TEXTS, []), LABELS, init="lively", seed=4)
    with torch.no_grad(): model.model.classifier.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="nan"): explain(model, DATA[0], "occlusion")
    with pytest.raises(ValueError, match="not a number"): explain(model, DATA[0], "saliency", target="neutral")


def test_targets_and_outputs(bert):
    a = explain(bert, DATA, "occlusion", target="entailment")
    b = explain(bert, DATA, "occlusion", target=["entailment"]*3)
    assert [e.scores.tolist() for e in a] == [e.scores.tolist() for e in b]
    assert {e.target for e in explain(bert, DATA, "occlusion", output="neg_loss")} == {"neutral"}
    with pytest.raises(ValueError, match="did you mean 'entailment'"): explain(bert, DATA, target="entailmen")
    with pytest.raises(ValueError, match="2 targets for 3"): explain(bert, DATA, target=["neutral", "neutral"])
    unlabelled = DATA[0].replace(label=None)
    with pytest.raises(ValueError, match="has no label"): explain(bert, unlabelled, "occlusion", output="neg_loss")


def test_refusals_come_first(bert):
    refused = [(dict(method="shaply"), "did you mean 'shapley'"), (dict(kind="spans"), "did you mean 'span'"),
               (dict(absent="masc"), "did you mean 'mask'"), (dict(output="prob"), "prob_top"),
               (dict(method="lime", kind="pair"), "has no pair form"), (dict(method="saliency", stepz=3), "stepz"),
               (dict(kind="span", span=dict(serch="x")), "serch|search")]
    for bad, match in refused:
        with pytest.raises(ValueError, match=match): explain(bert, DATA, **bad)
    f = Classifier.from_function(lambda texts: np.full((len(texts), 2), .5), ["no", "yes"])
    with pytest.raises(ValueError, match="only a function"): explain(f, Instance.from_text("a b"), "saliency")
    assert len(explain(f, Instance.from_text("good film"), "occlusion")[0]) == 2


def test_explanations_survive_json(bert):
    for kind in ("token", "pair", "span"):
        e = explain(bert, DATA[0], "shapley", kind, budget=40)[0]
        assert Explanation.from_dict(json.loads(json.dumps(e.to_dict()))) == e


def test_scores_of_other_tools(bert):
    import shap
    x = DATA[1]
    tokens = ["Two ", "dogs ", "run ", ". ", "Animals ", "sleep ", "in ", "the ", "old ", "house ", "."]
    ex = shap.Explanation(values=np.arange(22.).reshape(11, 2), data=np.array(tokens))
    np.testing.assert_allclose(from_shap(x, ex, target=1).vector(), np.arange(1, 22, 2.))
    with pytest.raises(ValueError, match="say which"): from_shap(x, ex)
    enc = bert.encode(x)
    g = bert.grad([enc], "logit_top", [0])[0]
    ours = from_captum(bert, x, torch.tensor(g)[None], "l2").vector()
    np.testing.assert_allclose(ours, bert.to_words(enc, np.sqrt((g**2).sum(-1))), atol=1e-6)
    with pytest.raises(ValueError, match="do not fit"): from_captum(bert, x, np.ones(3))
    film = Instance.from_text("unbelievable film")
    r = from_tokens(film, ["[CLS]", "un", "##believ", "##able", "film", "[SEP]"], [9, 1, 2, 3, 4, 9])
    np.testing.assert_allclose(r.vector(), [6, 4])


def test_list_methods_names_everything():
    t = list_methods()
    assert {"token", "pair"} == set(t.kind) and len(t) >= 25 and (t.description != "").all() and (t.cost >= 0).all()
    assert t.set_index(["method", "kind"]).cost["occlusion", "token"] == 26
    assert list_methods(4).set_index(["method", "kind"]).cost["exact_shapley", "token"] == 16


@pytest.mark.parametrize("kind", ["token", "pair"])
def test_declared_costs_are_the_rows_that_a_model_runs(bert, kind):
    layers = dict(layers=len(bert.layers)) # only attention attribution costs more with more layers
    for m in names(kind):
        bert.__dict__.pop("_gradients", None)
        own = quick(m, kind)
        e = explain(bert, DATA[0], m, kind, engine=Engine(bert), **own)[0]
        counts_layers = m in ("scaled_attention", "integrated_gradients") and methods[kind].info(m)["needs"] == "attention"
        declared = methods[kind].info(m)["cost"](DATA[0].n_words, **own, **layers)
        assert e.forwards == declared + counts_layers, m # one row for a whole call, to count the layers


def test_scores_become_explanations_of_every_kind(bert):
    pairs, tokens = (score(bert, DATA[1], "shapley", k, budget=40)[0] for k in ("pair", "token"))
    assert (pairs.kind, tokens.kind) == ("pair", "token") and tokens.values.shape == (DATA[1].n_words,)
    by_hand = [to_kind(tokens, "token"), to_kind(pairs, "pair"), to_kind(pairs, "span"), to_kind(pairs, "combined", tokens=tokens)]
    at_once = explain(bert, DATA[1], "shapley", ["token", "pair", "span", "combined"], budget=40)
    for a, b in zip(by_hand, at_once): assert a.replace(seconds=0) == b.replace(seconds=0)
    with pytest.raises(ValueError, match="pair explanations need pair scores"): to_kind(tokens, "pair")
    with pytest.raises(ValueError, match="needs the scores of words too"): to_kind(pairs, "combined")
    with pytest.raises(ValueError, match="did you mean 'span'"): to_kind(pairs, "spans")
