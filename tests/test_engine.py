"The engine: batched equals single, nothing is run twice, nothing is lost when things break"
import os, signal, subprocess, sys, textwrap, warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from xfeval.core.game import Query
from xfeval.core.text import Instance
from xfeval.engine.run import Engine
from xfeval.engine.rows import Job
from xfeval.truth.tiny import new_tiny
from xfeval.models.classifier import token_batches

LABELS = ["entailment", "neutral", "contradiction"]
WORDS = "a the man woman dog cat runs sleeps plays guitar music in park red two three not outside with old".split()


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    def pick(k): return " ".join(rng.choice(WORDS, k))
    return [Instance.from_text([pick(rng.integers(1, 20)), pick(rng.integers(1, 9))], id=str(i)) for i in range(n)]


@pytest.fixture(scope="module")
def clf(): return new_tiny("bert", [" ".join(WORDS)], LABELS, seed=1)


def fixed(rows):
    "A job that asks for these rows and returns the answer"
    def make(n): return (yield rows)
    return make


def occlusion(n):
    v = yield np.vstack([np.ones((1, n), bool), ~np.eye(n, dtype=bool)])
    return v[0] - v[1:]


@pytest.mark.parametrize("arch", ["bert", "roberta", "distilbert", "bart", "gpt2"])
def test_pool_equals_one_by_one(arch):
    clf = new_tiny(arch, [" ".join(WORDS)], LABELS, seed=2)
    data = texts(40)
    pooled = Engine(clf).predict(data)
    single = np.concatenate([Engine(clf, token_budget=1).predict([x]) for x in data])
    backwards = Engine(clf, shard=7, token_budget=300).predict(data[::-1])[::-1]
    np.testing.assert_allclose(pooled, single, atol=1e-5)
    np.testing.assert_allclose(pooled, backwards, atol=1e-5)


@pytest.mark.parametrize("absent", ["mask", "pad", "delete", "zero_embedding"])
def test_absences_equal_one_by_one(clf, absent):
    data = texts(12, 3)
    a = Engine(clf).run([Job(x, occlusion, absent=absent) for x in data])
    b = [Engine(clf, token_budget=1).run([Job(x, occlusion, absent=absent)])[0] for x in data]
    for u, v in zip(a, b): np.testing.assert_allclose(u, v, atol=1e-5)


def test_same_coalitions_from_five_generators_run_once(clf):
    x = texts(3)[1]
    n = x.n_words
    rows = np.unique(np.random.default_rng(0).random((4000, n)) < .5, axis=0)
    rows = rows[~rows.all(1)][:500]
    assert len(rows) == 500
    e = Engine(clf)
    e.run([Job(x, fixed(rows), target=0) for _ in range(5)])
    assert e.stats["asked"] == 2500 and e.stats["run"] == 500


def test_each_instance_is_encoded_once(clf, monkeypatch):
    data, seen, plain = texts(6), [], clf.encode_all
    def encode_all(instances):
        instances = list(instances)
        seen.extend(x.id for x in instances)
        return plain(instances)
    monkeypatch.setattr(clf, "encode_all", encode_all, raising=False)
    e = Engine(clf, shard=2)
    encs = e.encode([*data, *data[::-1]])
    assert seen == [x.id for x in data] and [a is b for a, b in zip(encs, encs[::-1])] == [True]*12
    p = e.predict(encs[:6])
    found = e.run([Job(x, occlusion, absent=a, enc=c) for a in ("mask", "delete") for x, c in zip(data, encs)])
    assert seen == [x.id for x in data], "nothing is encoded again"
    e.run([Job(x, occlusion, absent=a) for a in ("mask", "delete") for x in data])
    assert seen == 2*[x.id for x in data], "without encodings, once per text"
    np.testing.assert_array_equal(p, Engine(clf, shard=2).predict(data))
    jobs = [Job(x, occlusion, absent=a) for a in ("mask", "delete") for x in data]
    for u, v in zip(found, Engine(clf, shard=2).run(jobs)): np.testing.assert_allclose(u, v, atol=1e-6)


def test_full_input_is_one_row_for_every_absence(clf):
    x = texts(1)[0]
    e = Engine(clf)
    e.run([Job(x, fixed(np.ones((2, x.n_words), bool)), absent=a) for a in ("mask", "pad", "delete", "zero_embedding")])
    assert e.stats["run"] == 1


def test_cached_second_run_in_a_new_process_runs_nothing(clf, tmp_path):
    clf.save(tmp_path/"model")
    script = textwrap.dedent("""
        import sys, numpy as np
        from xfeval.models import load_model
        from xfeval.engine import Engine, Job
        from xfeval.core import Instance
        def occlusion(n):
            v = yield np.vstack([np.ones((1, n), bool), ~np.eye(n, dtype=bool)])
            return v[0] - v[1:]
        e = Engine(load_model(sys.argv[1]), cache=sys.argv[2])
        data = [Instance.from_text([t, "the dog runs"]) for t in ("a man sleeps", "two cat plays music")]
        v = e.run([Job(x, occlusion) for x in data])
        print(e.stats["run"], np.concatenate(v).tobytes().hex())""")
    command = [sys.executable, "-c", script, str(tmp_path/"model"), str(tmp_path/"cache")]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    first, second = (r.stdout.split() for r in runs)
    assert int(first[0]) > 0 and int(second[0]) == 0 and first[1] == second[1]


def test_killed_process_leaves_a_readable_cache(clf, tmp_path):
    clf.save(tmp_path/"model")
    script = textwrap.dedent("""
        import os, signal, sys, numpy as np
        from xfeval.models import load_model
        from xfeval.engine import Engine, Job
        from xfeval.core import Instance
        clf = load_model(sys.argv[1]); calls = 0
        plain = clf.logits
        def logits(*a):
            global calls
            calls += 1
            if calls > 6: os.kill(os.getpid(), signal.SIGKILL)
            return plain(*a)
        clf.logits = logits
        def ask(n): return (yield np.ones((1, n), bool))
        data = [Instance.from_text(["a man " * k, "dog"]) for k in range(1, 20)]
        Engine(clf, cache=sys.argv[2], shard=2, token_budget=1).run([Job(x, ask, target=0) for x in data])""")
    command = [sys.executable, "-c", script, str(tmp_path/"model"), str(tmp_path/"cache")]
    r = subprocess.run(command, capture_output=True)
    assert r.returncode == -signal.SIGKILL
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        e = Engine(clf, cache=tmp_path/"cache", shard=2)
        data = [Instance.from_text(["a man "*k, "dog"]) for k in range(1, 20)]
        resumed = e.predict(data)
    assert e.stats["run"] == 19 - 6, "the three finished shards of two were kept"
    np.testing.assert_allclose(resumed, Engine(clf).predict(data), atol=1e-5)


damages = dict(short=lambda b: b[:-5], empty=lambda b: b"", zeros=lambda b: b"\x00"*len(b),
               flipped=lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:])


@pytest.mark.parametrize("damage", damages.values(), ids=damages)
def test_damaged_cache_file_is_dropped_with_one_warning(clf, tmp_path, damage):
    data = texts(4)
    good = Engine(clf, cache=tmp_path).run([Job(x, occlusion) for x in data])
    f, = tmp_path.rglob("*.safetensors")
    f.write_bytes(damage(f.read_bytes()))
    with pytest.warns(UserWarning, match="dropped damaged cache file") as w: e = Engine(clf, cache=tmp_path)
    assert len(w) == 1 and not f.exists()
    again = e.run([Job(x, occlusion) for x in data])
    assert e.stats["run"] > 0
    for u, v in zip(good, again): np.testing.assert_array_equal(u, v)
    assert Engine(clf, cache=tmp_path).run([Job(data[0], occlusion)]) is not None


def test_full_disk_costs_a_warning_not_the_run(clf, tmp_path, monkeypatch):
    def full(*a): raise OSError(28, "No space left on device")
    monkeypatch.setattr("xfeval.engine.rows.write_whole", full)
    with pytest.warns(UserWarning, match="No space left on device"): v = Engine(clf, cache=tmp_path).predict(texts(3))
    np.testing.assert_allclose(v, Engine(clf).predict(texts(3)), atol=1e-6)


def test_cache_in_a_place_that_cannot_be_made(clf, tmp_path):
    (tmp_path/"file").write_text("x")
    with pytest.warns(UserWarning, match="cannot be written"): e = Engine(clf, cache=tmp_path/"file")
    assert e.predict(texts(2)).shape == (2, 3)


def test_two_engines_share_a_cache(clf, tmp_path):
    data = texts(6)
    a, b = Engine(clf, cache=tmp_path, shard=2), Engine(clf, cache=tmp_path, shard=2)
    a.predict(data[:4])
    b.predict(data[2:])
    assert a.stats["run"] == 4 and b.stats["run"] == 2
    assert Engine(clf, cache=tmp_path).predict(data).shape == (6, 3)


def test_rows_forgotten_during_a_round_are_still_answered(clf):
    data = texts(8)
    e = Engine(clf)
    e.cache.max_rows = 4
    e.predict(data[:4])
    np.testing.assert_allclose(e.predict(data), Engine(clf).predict(data), atol=1e-5)


def test_models_do_not_share_rows(clf, tmp_path):
    other = new_tiny("bert", [" ".join(WORDS)], LABELS, seed=9)
    x = texts(1)
    p, q = Engine(clf, cache=tmp_path).predict(x), Engine(other, cache=tmp_path).predict(x)
    assert np.abs(p - q).max() > 1e-4


def test_out_of_memory_halves_the_batch(clf, monkeypatch):
    plain, sizes = clf.logits, []
    def logits(encs, rows, absent):
        if len(encs) > 3: raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        sizes.append(len(encs))
        return plain(encs, rows, absent)
    data = texts(10)
    want = Engine(clf).predict(data)
    monkeypatch.setattr(clf, "logits", logits, raising=False)
    np.testing.assert_allclose(Engine(clf).predict(data), want, atol=1e-5)
    assert max(sizes) <= 3


def test_other_errors_are_not_swallowed(clf, monkeypatch):
    def broken(*a): raise RuntimeError("shape mismatch")
    monkeypatch.setattr(clf, "logits", broken, raising=False)
    with pytest.raises(RuntimeError, match="shape mismatch"): Engine(clf).predict(texts(2))


def test_shards_make_values_independent_of_resume(clf, tmp_path):
    data = texts(12)
    def jobs(xs): return [Job(x, occlusion) for x in xs]
    plain = Engine(clf, shard=4).run(jobs(data))
    Engine(clf, shard=4, cache=tmp_path).run(jobs(data[:8]))
    resumed = Engine(clf, shard=4, cache=tmp_path).run(jobs(data))
    for u, v in zip(plain, resumed): np.testing.assert_array_equal(u, v)


def test_plan_counts_what_run_runs(clf):
    data = texts(5)
    e = Engine(clf)
    assert e.plan([Job(x, occlusion) for x in data], timed=False)["rows"] == sum(x.n_words + 1 for x in data)
    e.run([Job(x, occlusion) for x in data])
    assert e.stats["run"] == sum(x.n_words + 1 for x in data)
    assert e.plan([Job(x, occlusion) for x in data], timed=False)["rows"] == 0


def test_soft_rows_are_remembered_by_seed(clf):
    x = texts(1)[0]
    q = np.full((2, x.n_words), .5, np.float32)
    asks = [fixed(Query(q, "soft_bernoulli", "probs", seed=seed)) for seed in (1, 1, 5)]
    e = Engine(clf)
    a, b, c = e.run([Job(x, ask, target=0) for ask in asks])
    assert e.stats["run"] == 4
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 0 and np.abs(a[0] - a[1]).max() > 0


def test_bad_requests_are_refused(clf):
    x = texts(1)[0]
    with pytest.raises(ValueError, match="columns"): Engine(clf).run([Job(x, fixed(np.ones((1, x.n_words+1), bool)))])
    with pytest.raises(ValueError, match="did you mean 'mask'"): Job(x, occlusion, absent="masc")
    with pytest.raises(ValueError, match="unknown label"):
        Engine(clf).run([Job(x.replace(label="yes"), occlusion, output="neg_loss")])
    with pytest.raises(ValueError, match="boolean"): Query(np.ones((1, 2)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=80), st.integers(1, 700))
def test_token_batches_partition_and_respect_the_budget(lengths, budget):
    batches = token_batches(lengths, budget)
    assert sorted(i for b in batches for i in b) == list(range(len(lengths)))
    for b in batches: assert len(b) == 1 or len(b)*max(max(1, lengths[i]) for i in b) <= budget
