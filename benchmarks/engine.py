"""How close is the engine to the bare model? 64 instances x 128 coalitions on MiniLM, pooled, against the same rows already tensorised in ideal batches.

Run with `make bench`. Prints a ratio measured in one run, both sides interleaved; the absolute times depend on the machine and are printed for orientation only."""
import argparse, os, time

import numpy as np
import torch

from xfeval.data import load_data
from xfeval.engine import Engine, Job, token_batches
from xfeval.models import load_model


def coalitions(n, k, rng):
    "`k` different coalitions of `n` players"
    rows = np.unique(rng.random((4*k, n)) < .5, axis=0)
    rng.shuffle(rows)
    return rows[~rows.all(1)][:k]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", default="minilm-nli"); p.add_argument("--instances", type=int, default=64); p.add_argument("--coalitions", type=int, default=128)
    p.add_argument("--repeats", type=int, default=3); p.add_argument("--device", default="cpu"); p.add_argument("--threads", type=int, default=os.cpu_count())
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    clf = load_model(a.model, device=a.device)
    data = [x for x in load_data("demo-nli", n=None) if x.n_words >= 11][:a.instances]
    rng = np.random.default_rng(0)
    asks = {x.id: coalitions(x.n_words, a.coalitions, rng) for x in data}
    encs = [clf.encode(x) for x in data for _ in asks[x.id]]
    rows = [r for x in data for r in asks[x.id]]
    budget = Engine(clf).token_budget
    ideal = [clf.batch([encs[i] for i in b], [rows[i] for i in b], "mask") for b in token_batches([len(e.ids) for e in encs], budget)]

    def bare():
        with torch.inference_mode():
            for b in ideal: clf.forward(b)

    def engine():
        e = Engine(clf, shard=len(data))
        e.run([Job(x, lambda n, x=x: (lambda: (yield asks[x.id]))(), target=0) for x in data])
        assert e.stats["run"] == len(rows)

    times = {"bare": [], "engine": []}
    for k in range(a.repeats + 1):
        for name, f in (("bare", bare), ("engine", engine)):
            t = time.perf_counter(); f()
            if k: times[name].append(time.perf_counter() - t)
    b, e = (float(np.median(times[k])) for k in ("bare", "engine"))
    print(f"{len(rows)} rows of {clf.name}: bare model {b:.2f} s, engine {e:.2f} s, ratio {e/b:.3f} (goal: at most 1.15), {len(rows)/e:.0f} rows/s")


if __name__ == "__main__": main()
