"""How close is the engine to the bare model, and what does the short last layer save?

64 instances x 128 coalitions on MiniLM, pooled, against the same rows already tensorised in ideal batches; and one
batch of equal texts through the model with a whole and with a short last layer.
Run with `make bench`. Prints ratios measured in one run, both sides interleaved; the absolute times depend on the
machine and are printed for orientation only."""
import argparse, os, time

import numpy as np
import torch

from xfeval.core.text import Instance
from xfeval.data.datasets import load_data
from xfeval.engine.run import Engine
from xfeval.engine.rows import Job
from xfeval.models.store import load_model
from xfeval.models.forward import token_batches


def coalitions(n, k, rng):
    "`k` different coalitions of `n` players"
    rows = np.unique(rng.random((4*k, n)) < .5, axis=0)
    rng.shuffle(rows)
    return rows[~rows.all(1)][:k]


def interleaved(repeats, **functions):
    "Median seconds of each function, called in turn, after one round to warm up"
    times = {name: [] for name in functions}
    for k in range(repeats + 1):
        for name, f in functions.items():
            start = time.perf_counter()
            f()
            if k: times[name].append(time.perf_counter() - start)
    return [float(np.median(t)) for t in times.values()]


def engine_against_bare(clf, n_instances, n_coalitions, repeats):
    "The engine on open questions, against the model on tensors"
    data = [x for x in load_data("demo-nli", n=None) if x.n_words >= 11][:n_instances]
    rng = np.random.default_rng(0)
    asks = {x.id: coalitions(x.n_words, n_coalitions, rng) for x in data}
    encs = [e for x in data for e in [clf.encode(x)]*len(asks[x.id])]
    rows = [r for x in data for r in asks[x.id]]
    batches = token_batches([len(e.ids) for e in encs], Engine(clf).token_budget)
    ideal = [clf.batch([encs[i] for i in b], [rows[i] for i in b], "mask") for b in batches]

    @torch.inference_mode()
    def bare():
        for b in ideal: clf.forward(b)

    def ask(x):
        def make(n): return (yield asks[x.id])
        return make

    def engine():
        e = Engine(clf, shard=len(data))
        e.run([Job(x, ask(x), target=0) for x in data])
        assert e.stats["run"] == len(rows)

    b, e = interleaved(repeats, bare=bare, engine=engine)
    print(f"{len(rows)} rows of {clf.name}: bare model {b:.2f} s, engine {e:.2f} s, ratio {e/b:.3f} (goal: at most 1.15), "
          f"{len(rows)/e:.0f} rows/s")


def short_against_whole(clf, n_tokens, n_rows, repeats):
    "One batch through the model and through its view with a short last layer"
    words = n_tokens - clf.templates[1].n_special
    b = clf.batch([clf.encode(Instance.from_text("man "*words))]*n_rows)

    @torch.inference_mode()
    def whole(): return clf._run(b, None, None)

    @torch.inference_mode()
    def short(): return clf._run(b, None, None, clf._quickest(b))

    gap = (whole() - short()).abs().max().item()
    w, s = interleaved(repeats, whole=whole, short=short)
    print(f"{n_rows} rows of {b.ids.shape[1]} tokens of {clf.name}: whole last layer {w*1e3:.0f} ms, "
          f"short {s*1e3:.0f} ms, {w/s:.2f} x, largest difference of logits {gap:.1e}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", default="minilm-nli")
    p.add_argument("--instances", type=int, default=64)
    p.add_argument("--coalitions", type=int, default=128)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--only-layer", action="store_true", help="measure the short last layer only")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    clf = load_model(a.model, device=a.device)
    short_against_whole(clf, 28, 64, 5*a.repeats)
    if not a.only_layer: engine_against_bare(clf, a.instances, a.coalitions, a.repeats)


if __name__ == "__main__": main()
