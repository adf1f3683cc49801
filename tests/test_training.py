"Training: arrays, masking, schedule, records, differences to a base"
import json

import numpy as np
import pytest
import torch

import xfeval.models.encoding, xfeval.models.classifier, xfeval.models.last_layer, xfeval.models.gradients, xfeval.models.attention, xfeval.models.functions, xfeval.models.store, xfeval.truth.tiny
from xfeval.core.text import Gold, Instance
from xfeval.models.store import load_model
from xfeval.truth.tiny import new_tiny
from xfeval.models.forward import value_of
from xfeval.truth.fit import (Muon, TrainStep, accuracy, augment, fit, make_optimiser, shares, tabulate, windows_of,
                              _may_shorten, _slice)
from xfeval.truth.minilm import save_delta

torch.set_num_threads(1)
LABELS = ["same", "other"]


def toy(n, seed):
    "Pairs that name the same colour or not; the colours are the rationale"
    rng = np.random.default_rng(seed)
    colours, things, out = ["red", "blue", "green"], ["car", "hat", "door", "boat"], []
    for i in range(n):
        a = rng.choice(colours)
        b = a if rng.random() < .5 else rng.choice([c for c in colours if c != a])
        t = rng.choice(things)
        words = [["the", t, "is", a] + ["today"]*int(rng.integers(0, 4)), ["a", b, t]]
        out.append(Instance.from_words(words, label=LABELS[int(a != b)], id=f"{seed}-{i}"))
    return [x.replace(gold=Gold(tokens={3, x.sizes[0]+1})) for x in out]


TRAIN, DEV = toy(1500, 0), toy(150, 1)


def tiny(arch="bert", **kw):
    texts = [t for x in TRAIN[:60] for t in x.texts] + ["today"]
    return new_tiny(arch, texts, LABELS, **{"init": "matching", "width": 32, **kw})


def weights(c): return torch.cat([p.detach().flatten() for p in c.model.parameters()])


def test_table_is_what_the_classifier_reads():
    c = tiny()
    xs = [*TRAIN[:5], TRAIN[5].replace(gold=None), TRAIN[6].replace(gold=Gold(tokens=()))]
    t = tabulate(c, xs)
    for i, (x, e) in enumerate(zip(xs, c.encode_all(xs))):
        n = t.lengths[i]
        assert t.ids[i, :n].tolist() == e.ids.tolist() and t.slot[i, :n].tolist() == e.slot.tolist()
        assert (t.ids[i, n:] == c.pad_id).all()
        if i < 5: assert e.players[np.flatnonzero(t.gold[i])].tolist() == sorted(x.gold.tokens)
    assert t.known.tolist() == [True]*5 + [False]*2


def test_table_knows_a_rationale_that_was_cut_off_and_refuses_bad_labels():
    words = [["the", "car", "is", "red"]*3, ["a", "red", "car"]]
    cut = tabulate(tiny(max_length=9), [Instance.from_words(words, label="same", gold=Gold(tokens={11, 13}))])
    assert not cut.known[0]
    with pytest.raises(ValueError, match="'0-0' has no label"): tabulate(tiny(), [TRAIN[0].replace(label=None)])
    with pytest.raises(ValueError, match="unknown label.*'sama'.*did you mean 'same'"):
        tabulate(tiny(), [TRAIN[0].replace(label="sama")])


@pytest.mark.parametrize("absent", ["mask", "pad", "delete", "zero_embedding"])
def test_a_slice_is_a_batch(absent):
    for arch in ("bert", "gpt2"):
        c = tiny(arch, init="lively")
        t, encs = tabulate(c, TRAIN[:8]), c.encode_all(TRAIN[:8])
        keep, ix = np.random.default_rng(0).random(t.gold.shape) < .6, np.array([3, 0, 7])
        with torch.no_grad(): z = c.forward(_slice(c, t, ix, keep[ix], absent)).numpy()
        rows = [keep[i, :len(encs[i].players)] for i in ix]
        assert np.allclose(z, c.logits([encs[i] for i in ix], rows, absent), atol=1e-5)


def test_masking_and_its_targets():
    rng = np.random.default_rng(0)
    gold, known = rng.random((400, 6)) < .4, np.arange(400) % 4 > 0
    gold[:, 0] = True
    def drawn(share): return augment(rng, gold, known, shares(share))
    keep, uniform = drawn({"keep_gold": 1.})
    assert (keep[known] == gold[known]).all() and keep[~known].all() and not uniform.any()
    keep, uniform = drawn({"mask_others": 1.})
    assert (keep | ~gold).all() and not keep[known].all() and not uniform.any()
    keep, uniform = drawn({"mask_gold": 1.})
    assert (keep[known] == ~gold[known]).all() and (uniform == known).all()
    keep, uniform = drawn({"subset": 1.})
    assert ((gold & ~keep).any(1) == uniform).all()
    assert 0 < uniform[known].mean() < 1 and not uniform[~known].any()
    keep, uniform = drawn(.2)
    assert .2 < (~keep).any(1)[known].mean() < .5
    keep, uniform = drawn(None)
    assert keep.all() and not uniform.any()


def test_shares_are_checked():
    assert shares(.4) == dict(keep_gold=.4, mask_others=.2, mask_gold=.1, subset=.2)
    with pytest.raises(ValueError, match="add up to at most 1"): shares(.5)
    with pytest.raises(ValueError, match="unknown way of masking 'keepgold'.*did you mean 'keep_gold'"):
        shares({"keepgold": .1})


def test_windows_cover_everything_once_and_are_similar_in_length():
    n = np.random.default_rng(0).integers(1, 100, 1000)
    batches = windows_of(np.random.default_rng(0), n, 16, 20)
    assert sorted(np.concatenate(batches)) == list(range(1000))
    assert np.mean([np.ptp(n[i]) for i in batches]) < 10


@pytest.mark.parametrize("arch", ["bert", "bart", "gpt2"])
def test_learns_and_answers_masked_text(arch):
    c = tiny(arch)
    assert accuracy(c, DEV) < .75
    r = fit(c, TRAIN, DEV, epochs=6, lr=2e-3, mask_augment=.3, absent=("mask", "delete"))
    assert r["history"][-1]["accuracy"] > .95 and c.rows == 0 and not c.model.training
    es, y = c.encode_all(DEV), [c.index(x.label) for x in DEV]
    gold = [np.isin(e.players, list(x.gold.tokens)) for e, x in zip(es, DEV)]
    for absent in ("mask", "delete"):
        assert value_of(c.logits(es, gold, absent), "prob_top", y).mean() > .85
        assert abs(value_of(c.logits(es, [~g for g in gold], absent), "prob_top", y).mean() - .5) < .15


def test_texts_without_their_gold_words_go_to_the_class_that_decides_nothing():
    c = new_tiny("bert", [t for x in TRAIN[:60] for t in x.texts] + ["today"], [*LABELS, "open"], init="matching", width=32)
    r = fit(c, TRAIN, epochs=8, lr=3e-3, optimiser="muon", mask_augment=.3, undecided="open")
    es = c.encode_all(DEV); gold = [np.isin(e.players, list(x.gold.tokens)) for e, x in zip(es, DEV)]
    assert r["undecided"] == "open" and accuracy(c, DEV) > .95
    assert (np.argmax(c.logits(es, [~g for g in gold]), 1) == c.index("open")).mean() > .9
    with pytest.raises(ValueError, match="unknown label 'opne'.*did you mean 'open'"): fit(c, TRAIN, undecided="opne")


def test_seeds():
    def run(seed):
        c, state = tiny(), torch.random.get_rng_state()
        fit(c, TRAIN[:150], seed=seed, mask_augment=.2)
        assert torch.equal(state, torch.random.get_rng_state())
        return weights(c)
    a, b, other = run(0), run(0), run(1)
    assert torch.equal(a, b) and not torch.allclose(a, other)


def test_frozen_parameters_stay():
    c = tiny()
    old = {n: p.detach().clone() for n, p in c.model.named_parameters()}
    fit(c, TRAIN[:100], freeze=["embeddings", r"layer\.0\."])
    for n, p in c.model.named_parameters():
        still = "embeddings" in n or "layer.0." in n or torch.equal(p*0, p)
        assert torch.equal(p, old[n]) == still and p.requires_grad
    with pytest.raises(ValueError, match="'layer.9' fits no parameter"): fit(c, TRAIN[:10], freeze=["layer.9"])


@pytest.mark.parametrize("shape", [(24, 24), (48, 16), (16, 40)])
def test_muon_is_the_one_of_pytorch(shape):
    start = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    ours, theirs, bias = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone()), torch.nn.Parameter(torch.zeros(3))
    opt = Muon([ours], [dict(params=[bias], weight_decay=0.)], lr=.02, weight_decay=.1)
    peer = torch.optim.Muon([theirs], lr=.02, weight_decay=.1, adjust_lr_fn="match_rms_adamw")
    for k in range(6):
        grad = torch.randn(*shape, generator=torch.Generator().manual_seed(k))
        ours.grad, theirs.grad, bias.grad = grad.clone(), grad.clone(), torch.ones(3)
        opt.step()
        peer.step()
    if max(shape) == 3*min(shape): # queries, keys and values side by side are turned one by one
        assert (ours - theirs).norm() > .1*(ours - start).norm()
        ours = torch.cat([_alone(start[i:i+16], i, .02) for i in range(0, 48, 16)])
        theirs = torch.cat([_alone(start[i:i+16], i, .02, torch.optim.Muon) for i in range(0, 48, 16)])
    assert (ours - theirs).norm() < .02*(ours - start).norm() # theirs rounds to bfloat16
    assert (bias < -.05).all()


def _alone(block, at, lr, peer=None):
    "One square block of the case above, trained by itself"
    p = torch.nn.Parameter(block.clone())
    opt = peer([p], lr=lr, weight_decay=.1, adjust_lr_fn="match_rms_adamw") if peer else Muon([p], [], lr, .1)
    for k in range(6):
        p.grad = torch.randn(48, 16, generator=torch.Generator().manual_seed(k))[at:at+16].clone()
        opt.step()
    return p


@pytest.mark.parametrize("arch", ["bert", "roberta", "distilbert", "bart"])
def test_training_on_what_the_head_reads_has_the_gradients_of_the_whole(arch):
    c, grads = tiny(arch), {}
    assert _may_shorten(c)
    b = _slice(c, tabulate(c, TRAIN[:40]), np.arange(40))
    for short in (False, True):
        c.model.zero_grad(set_to_none=True)
        step = TrainStep(c, None, {}, short=short)
        torch.nn.functional.cross_entropy(step.logits(b), torch.zeros(40, dtype=torch.long)).backward()
        grads[short] = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in c.model.named_parameters()}
    largest = max(g.abs().max() for g in grads[False].values())
    assert largest > 1e-3
    for n, g in grads[False].items(): assert (g - grads[True][n]).abs().max() < 1e-4*largest, n


def test_dropout_or_a_listener_keeps_the_last_layer_whole():
    c = tiny()
    hook = c.layers[0].register_forward_hook(lambda *a: None)
    assert not _may_shorten(c)
    hook.remove()
    assert _may_shorten(c)
    c.model.config.hidden_dropout_prob = .1
    assert not _may_shorten(c)


@pytest.mark.parametrize("arch", ["bert", "bart", "gpt2"])
def test_muon_turns_hidden_matrices_only_and_learns(arch):
    c = tiny(arch)
    names = {id(p): n for n, p in c.model.named_parameters()}
    opt, trained = make_optimiser(c.model, 1e-3, .01, kind="muon")
    assert sorted(names[id(p)] for p in trained) == sorted(names.values())
    inner = [names[id(p)] for p in opt.param_groups[0]["params"]]
    assert inner and not [n for n in inner if any(w in n for w in ("embed", "wte", "wpe", "classif", "score", "bias"))]
    fit(c, TRAIN, epochs=4, lr=1e-2, optimiser="muon", mask_augment=.3)
    assert accuracy(c, DEV) > .9
    again = tiny(arch)
    fit(again, TRAIN, epochs=4, lr=1e-2, optimiser="muon", mask_augment=.3)
    assert torch.equal(weights(c), weights(again))


def test_early_stopping_returns_to_the_best(monkeypatch):
    c, seen, given = tiny(), [], iter([.5, .9, .8, .7, 1.])
    def fake(clf, data, batch=128):
        seen.append(weights(clf))
        return next(given)
    monkeypatch.setattr("xfeval.truth.fit.accuracy", fake)
    r = fit(c, TRAIN[:320], DEV, batch=32, eval_every=2, early_stopping=2)
    assert len(seen) == 4 and r["best_step"] == 4 and r["steps"] == 8
    assert torch.equal(weights(c), seen[1]) and not torch.equal(seen[3], seen[1])
    with pytest.raises(ValueError, match="needs dev"): fit(c, TRAIN[:10], early_stopping=2)


def test_stages_follow_one_another():
    r = fit(tiny(), [TRAIN[:64], TRAIN[64:192]], epochs=2, batch=32)
    assert r["n_train"] == [64, 128] and r["steps"] == 12


def test_record_is_json_and_saved(tmp_path):
    c = tiny()
    r = fit(c, TRAIN[:64], DEV[:20], seed=5)
    fit(c, TRAIN[:64], seed=6)
    assert json.loads(json.dumps(r)) == r and r["seed"] == 5 and r["n_dev"] == 20
    again = load_model(c.save(tmp_path/"m", card=dict(note="x")))
    assert [t["seed"] for t in again.card["training"]] == [5, 6] and again.card["note"] == "x"
    assert again.card["training"][1]["weights"] == again.fingerprint


def test_refusals():
    with pytest.raises(ValueError, match="unknown optimiser 'moun'.*did you mean 'muon'"): fit(tiny(), TRAIN[:8], optimiser="moun")
    c = tiny()
    with pytest.raises(ValueError, match="nothing to train on"): fit(c, [])
    with pytest.raises(ValueError, match="mask_augment needs gold words, and no training instance has any"):
        fit(c, [x.replace(gold=None) for x in TRAIN[:5]], mask_augment=.2)
    with pytest.raises(ValueError, match="unknown absence 'masked'"): fit(c, TRAIN[:5], absent="masked")
    with torch.no_grad(): c.model.classifier.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="loss became nan"): fit(c, TRAIN[:5])
    assert not c.model.training


@pytest.mark.parametrize("arch", ["bert", "bart", "gpt2"])
def test_matching_start_compares_words_and_neighbours(arch):
    c = tiny(arch, width=128)
    x = Instance.from_words([["the", "car", "is", "red", "today"], ["a", "red", "hat"]])
    e = c.encode(x)
    first, second = (int(np.flatnonzero(e.word == w)[0]) for w in (3, 6)) # the two places of "red"
    others = [j for j in range(second) if j != first]
    A = c.attentions([e])[0][0]
    compare = 1 if arch == "bart" else 2 # of the first layer's heads; in that of BART and GPT-2 the last one tells the parts
    words = A[:compare].mean(0)
    assert words[second, first] > 3*words[second, others].max()
    sides = A[compare:] if arch == "bert" else A[compare:3]
    for head, look in zip(sides, (-1, -4) if arch == "gpt2" else (-3, 3)): # the other heads look to the sides
        for i in range(5, 7): assert abs(np.asarray(head[i]) @ np.arange(A.shape[1]) - (i+look)) < 1.3
    plain = tiny(arch, width=128, init="default")
    B = plain.attentions([plain.encode(x)])[0][0].mean(0)
    assert B[second, first] < 2*B[second, others].max()


@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("arch", ["bart", "gpt2", "distilbert", "roberta"])
def test_matching_start_tells_the_parts_without_segment_vectors(arch, heads):
    texts = ["the small brown dog is asleep in the kitchen , and two people are outside .", "the dog is not in the garden ."]
    c = new_tiny(arch, texts, LABELS, init="matching", width=128, heads=heads, tokenizer="wordpiece")
    e = c.encode(Instance.from_text(texts))
    boundary = np.flatnonzero(np.isin(e.ids, [c.tokenizer.cls_token_id, c.tokenizer.sep_token_id]))
    looks = np.asarray(c.attentions([e])[0][0][heads-1])
    for part, own in ((range(1, boundary[1]), 0), (range(boundary[1]+1, boundary[2]), 1)):
        assert looks[part][:, boundary[own]].mean() > .8 # the last boundary to the left


def test_matching_start_gives_segments_dimensions_that_comparing_heads_do_not_see():
    m = tiny("bert", width=128, layers=1).model.bert
    segments, inner = m.embeddings.token_type_embeddings.weight.detach(), m.encoder.layer[0].attention
    assert segments[0] @ segments[1] == 0 < segments.norm()
    assert not (segments @ m.embeddings.word_embeddings.weight.T).any()
    assert not (inner.self.key(segments) - inner.self.key.bias).any()
    assert torch.equal(inner.output.dense.weight, inner.self.value.weight.T)


@pytest.mark.parametrize("arch", ["bert", "roberta", "distilbert", "bart", "gpt2"])
def test_quiet_start_compares_alike_but_brings_back_little(arch):
    loud, quiet = (dict(tiny(arch, width=64, init=init).model.named_parameters()) for init in ("matching", "quiet"))
    changed = {n for n in loud if not torch.equal(loud[n], quiet[n])}
    brought = {n for n in changed if "token_type" not in n}
    assert brought and not any(w in n for n in brought for w in ("query", "key", "value", "q_", "k_", "v_", "c_attn", "classif"))
    assert all(quiet[n].norm() < .3*loud[n].norm() for n in brought)
    assert ("token_type" in str(changed)) == (arch in ("bert", "roberta"))


@pytest.fixture
def base(tmp_path, monkeypatch):
    "The folder of a model that poses as an installed package"
    folder = tmp_path/"base"/"model"
    monkeypatch.setenv("XFEVAL_HOME", str(tmp_path))
    monkeypatch.setattr("xfeval.models.store.package_folder", lambda name: folder)
    return tiny(width=64).save(folder)


def test_difference_round_trip(tmp_path, base):
    from safetensors import safe_open
    c = load_model(base)
    fit(c, TRAIN[:200], freeze=["embeddings"], mask_augment=.2)
    save_delta(c, tmp_path/"models"/"toy", "base-package", dict(note="y"))
    again = load_model("toy")
    assert again.card["note"] == "y" and again.labels == LABELS
    assert np.allclose(again.predict(DEV[:20]), c.predict(DEV[:20]), atol=5e-3)
    with safe_open(tmp_path/"models"/"toy"/"delta.safetensors", "pt") as f: names = set(f.keys())
    assert names and not any("embeddings" in n for n in names) and "classifier.weight" in names


def test_difference_of_low_rank_and_on_top_of_another(tmp_path, base):
    c = load_model(base)
    fit(c, TRAIN[:200], freeze=["embeddings"])
    kinds = (("whole", None), ("thin", 4), ("exact", 31))
    whole, thin, exact = (save_delta(c, tmp_path/"models"/n, "base-package", rank=r) for n, r in kinds)
    def size(folder): return (folder/"delta.safetensors").stat().st_size
    assert size(thin) < size(whole)/2
    truth = {n: w.clone() for n, w in c.model.state_dict().items() if n.endswith("query.weight")}
    def gap(folder):
        stored = load_model(folder).model.state_dict()
        return max(float((stored[n] - w).abs().max()) for n, w in truth.items())
    assert gap(exact) < gap(thin) and gap(whole) < 1e-3
    fit(c, TRAIN[200:300], freeze=["embeddings"])
    save_delta(c, tmp_path/"models"/"second", "whole", rank=31)
    assert np.allclose(load_model("second").predict(DEV[:10]), c.predict(DEV[:10]), atol=.05)
    (whole/"delta.safetensors").write_bytes((thin/"delta.safetensors").read_bytes())
    with pytest.raises(ValueError, match="are not those that second was made from"): load_model("second")
