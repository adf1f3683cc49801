"""Accuracy per row: how far is an estimate from the exact Shapley values and interaction indices after so many model rows?

All 2^n coalitions of a few short texts are asked once. Every estimator then plays on the stored game, ours and those of
shap, captum and shapiq, each called as its documentation says, with its variance reduction switched on where it has one.
Prints a table, writes `accuracy.json` and `accuracy.png`.

    python benchmarks/accuracy.py                 # the full comparison, some minutes
    python benchmarks/accuracy.py --quick         # a minute, to see that it works
"""
from xfeval.explainers.interactions import interaction_of, shapley_interaction
from xfeval.explainers.shapley import every_coalition, kernel_shap, shapley_of
import argparse, contextlib, io, json, os, time, warnings
from importlib import metadata
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
warnings.filterwarnings("ignore")

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from xfeval.core.text import Instance
from xfeval.core.game import run_game
from xfeval.core.utils import write_whole
from xfeval.data.datasets import load_data
from xfeval.engine.run import Engine
from xfeval.engine.rows import Job
from xfeval.models.store import load_model

HERE = Path(__file__).resolve().parent
BUDGETS = (64, 128, 256, 512, 1024)
DATASETS = {"tiny-bert-nli": "controlled-nli", "minilm-nli": "demo-nli"}
OURS = "xfeval"


def shortened(x, words):
    "The pair with its first part cut so that `words` words are left in all"
    first, second = x.parts
    keep = words - len(second)
    if keep < 3: return None
    return Instance.from_words([first[:keep], second], id=f"{x.id}-{words}")


def short_pairs(dataset, words, count):
    "`count` pairs of `words` words"
    pool = load_data(dataset, split="test", n=400, seed=0) if dataset == "controlled-nli" else load_data(dataset, n=None)
    pairs = (shortened(x, words) for x in pool)
    return [x for x, _ in zip((x for x in pairs if x is not None), range(count))]


class Game:
    "A stored game that counts how many rows are asked"
    def __init__(self, values):
        self.values, self.n, self.asked = values, len(values).bit_length()-1, 0

    def __call__(self, z):
        z = np.atleast_2d(np.asarray(z) > .5)
        self.asked += len(z)
        return self.values[z@(1 << np.arange(self.n))]

    def tensor(self, z):
        "The same for captum"
        return torch.as_tensor(self(z.numpy()), dtype=torch.float64)


def stored_games(clf, texts):
    "The values of all coalitions of each text, asked once"
    def every(n): return (yield every_coalition(n))
    return [Game(np.asarray(v, float)) for v in Engine(clf).run([Job(x, every) for x in texts])]


# ours

def kernel_shap(estimator):
    "Our Shapley values by one of the estimators"
    def run(game, rows, seed): return run_game(kernel_shap(game.n, seed, rows-2, estimator), game)
    return run


def interaction(estimator):
    "Our interaction indices by one of the estimators"
    def run(game, rows, seed):
        _, index = run_game(shapley_interaction(game.n, seed, rows-2, estimator), game)
        return index[np.triu_indices(game.n, 1)]
    return run


# peers

def shap_kernel(game, rows, seed):
    "shap's KernelExplainer, without the selection of features"
    import shap
    np.random.seed(seed)
    explainer = shap.KernelExplainer(game, np.zeros((1, game.n)))
    game.asked = 0
    return explainer.shap_values(np.ones((1, game.n)), nsamples=rows-2, l1_reg=False, silent=True)[0]


def shap_permutation(game, rows, seed):
    "shap's PermutationExplainer"
    import shap
    explainer = shap.PermutationExplainer(game, np.zeros((1, game.n)), seed=seed)
    return explainer(np.ones((1, game.n)), max_evals=max(rows, 2*game.n+1), silent=True).values[0]


def captum_kernel(game, rows, seed):
    "captum's KernelShap"
    from captum.attr import KernelShap
    torch.manual_seed(seed)
    ones = torch.ones(1, game.n, dtype=torch.float64)
    return KernelShap(game.tensor).attribute(ones, n_samples=rows-2, perturbations_per_eval=64)[0].numpy()


def captum_sampling(game, rows, seed):
    "captum's ShapleyValueSampling, as many orders as the rows pay for"
    from captum.attr import ShapleyValueSampling
    torch.manual_seed(seed)
    ones = torch.ones(1, game.n, dtype=torch.float64)
    orders = max(1, (rows-2)//game.n)
    return ShapleyValueSampling(game.tensor).attribute(ones, n_samples=orders, perturbations_per_eval=64)[0].numpy()


def shapiq(name, order=1, **options):
    "One of shapiq's approximators"
    def run(game, rows, seed):
        import shapiq
        cls = getattr(shapiq.approximator, name)
        found = cls(n=game.n, random_state=seed, **options).approximate(rows, game)
        if order == 1: return found.get_n_order_values(1)
        return found.get_n_order_values(2)[np.triu_indices(game.n, 1)]
    return run


PAIRED, INDEX = dict(pairing_trick=True), dict(index="SII", max_order=2)

VALUES = {
    "xfeval kriging": kernel_shap("kriging"),
    "xfeval regression": kernel_shap("regression"),
    "shap KernelExplainer": shap_kernel,
    "shap PermutationExplainer": shap_permutation,
    "captum KernelShap": captum_kernel,
    "captum ShapleyValueSampling": captum_sampling,
    "shapiq KernelSHAP": shapiq("KernelSHAP", **PAIRED),
    "shapiq UnbiasedKernelSHAP": shapiq("UnbiasedKernelSHAP", **PAIRED),
    "shapiq kADDSHAP": shapiq("kADDSHAP", max_order=2, **PAIRED),
    "shapiq RegressionFSII": shapiq("RegressionFSII", max_order=1, **PAIRED),
    "shapiq PermutationSamplingSV": shapiq("PermutationSamplingSV"),
    "shapiq StratifiedSamplingSV": shapiq("StratifiedSamplingSV"),
    "shapiq OwenSamplingSV": shapiq("OwenSamplingSV"),
    "shapiq SVARM": shapiq("SVARM", **PAIRED),
    "shapiq ProxySPEX": shapiq("ProxySPEX", index="SV", max_order=1),
}

INDICES = {
    "xfeval kriging": interaction("kriging"),
    "xfeval quadratic": interaction("quadratic"),
    "shapiq KernelSHAPIQ": shapiq("KernelSHAPIQ", 2, **INDEX, **PAIRED),
    "shapiq inconsistent KernelSHAPIQ": shapiq("InconsistentKernelSHAPIQ", 2, **INDEX, **PAIRED),
    "shapiq SHAPIQ": shapiq("SHAPIQ", 2, **INDEX, **PAIRED),
    "shapiq SVARMIQ": shapiq("SVARMIQ", 2, **INDEX, **PAIRED),
    "shapiq PermutationSamplingSII": shapiq("PermutationSamplingSII", 2, **INDEX),
    "shapiq ProxySPEX": shapiq("ProxySPEX", 2, **INDEX),
}

SLOW = {"Shapley values": {"shapiq SPEX": shapiq("SPEX", index="SV", max_order=1)}, # made for many more words: half a minute
        "interaction indices": {"shapiq SPEX": shapiq("SPEX", 2, **INDEX)}}        # per call, refuses small budgets


# measuring

def one_error(run, game, true, rows, seed):
    "Squared error relative to the size of the truth, and what it cost; why it failed otherwise"
    game.asked, start = 0, time.process_time()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            got = np.asarray(run(game, min(rows, 2**game.n), seed), float)
    except Exception as e:
        return dict(error=None, failed=f"{type(e).__name__}: {e}".split("\n")[0][:120])
    seconds = time.process_time()-start
    if got.shape != true.shape or not np.isfinite(got).all(): return dict(error=None, failed="no finite values")
    return dict(error=float(((got-true)**2).mean()/(true**2).mean()), asked=game.asked, seconds=seconds)


def measure(name, game, budgets, seeds):
    "Every estimator at every budget on one stored game"
    truth = {"Shapley values": shapley_of(game.values, game.n),
             "interaction indices": interaction_of(game.values, game.n)[np.triu_indices(game.n, 1)]}
    out = []
    for what, methods in (("Shapley values", VALUES), ("interaction indices", INDICES)):
        for method, run in methods.items():
            for rows in budgets:
                for seed in range(seeds):
                    case = dict(model=name, what=what, method=method, words=game.n, rows=rows, seed=seed)
                    out.append(case | one_error(run, game, truth[what], rows, seed))
                    if out[-1].get("failed", "").startswith(("ImportError", "ModuleNotFoundError")): break
    return out


def compare(clf, words, count, budgets, seeds):
    "Every estimator on the games of `count` pairs of each number of words"
    texts = [x for w in words for x in short_pairs(DATASETS[clf.name], w, count)]
    games_of = stored_games(clf, texts)
    with threadpool_limits(1): return [r for g in games_of for r in measure(clf.name, g, budgets, seeds)]


def table(runs):
    "Root mean squared error in percent of the size of the exact values; a method that failed anywhere is left out there"
    d = pd.DataFrame(runs)
    by = ["what", "model", "method", "rows"]
    error = d.groupby(by, sort=False).error.agg(lambda e: 100*np.sqrt(e.mean()) if e.notna().all() else np.nan)
    order = d[["what", "model", "method"]].drop_duplicates()
    return error.unstack("rows").loc[list(order.itertuples(index=False, name=None))]


def verdicts(errors):
    "Ours against the best peer at each budget"
    out = []
    for (what, model), d in errors.groupby(level=["what", "model"], sort=False):
        d = d.droplevel(["what", "model"])
        mine, peers = d.loc["xfeval kriging"], d[~d.index.str.startswith(OURS)]
        for rows in d.columns:
            best = peers[rows].idxmin()
            ok = mine[rows] <= peers[rows][best]*(1+1e-6) + 1e-4
            out.append(dict(what=what, model=model, rows=int(rows), ours=float(mine[rows]), best_peer=best,
                            theirs=float(peers[rows][best]), no_worse=bool(ok)))
    return pd.DataFrame(out)


def curves(errors):
    "One record per line of a figure"
    def plain(row): return [None if np.isnan(e) else round(float(e), 4) for e in row]
    return [dict(what=k[0], model=k[1], method=k[2], error=plain(row)) for k, row in zip(errors.index, errors.to_numpy())]


def draw(errors, path):
    "Error against rows, one panel per model and quantity"
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    panels = list(errors.groupby(level=["what", "model"], sort=False))
    fig, axes = plt.subplots(1, len(panels), figsize=(5*len(panels), 5.2), squeeze=False)
    for ax, ((what, model), d) in zip(axes[0], panels):
        for method, e in d.droplevel(["what", "model"]).iterrows():
            mine = method.startswith(OURS)
            e = e[e > 1e-3]
            if not len(e): continue
            ax.plot(e.index, e, marker="o", ms=4, lw=2.5 if mine else 1, ls="-" if mine else "--", label=method)
        ax.set(xscale="log", yscale="log", ylim=(None, 400), title=f"{what}, {model}", xlabel="model rows",
               ylabel="error in percent of the exact values" if ax is axes[0, 0] else None)
        ax.set_xticks(errors.columns, [str(c) for c in errors.columns])
        ax.minorticks_off()
        ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(.5, -.13), ncols=2)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    p.add_argument("--words", nargs="+", type=int, default=[8, 10, 12], help="lengths of the texts")
    p.add_argument("--texts", nargs="+", type=int, default=[6, 6], help="texts of each length, for each model")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    p.add_argument("--slow", action="store_true", help="also estimators that take half a minute per call (SPEX)")
    p.add_argument("--quick", action="store_true", help="one text of 8 words, two budgets, one seed")
    p.add_argument("--out", default=str(HERE/"accuracy.json"))
    o = p.parse_args()
    if o.quick: o.words, o.texts, o.seeds, o.budgets, o.models = [8], [1], 1, [32, 64], o.models[:1]
    if o.slow:
        VALUES.update(SLOW["Shapley values"])
        INDICES.update(SLOW["interaction indices"])
    runs, counts = [], dict(zip(o.models, o.texts + o.texts[-1:]*len(o.models)))
    for model, count in counts.items():
        runs += compare(load_model(model), o.words, count, o.budgets, o.seeds)
        print(f"{model}: done", flush=True)
    errors = table(runs)
    judged = verdicts(errors)
    print("\nroot mean squared error in percent of the size of the exact values, by model rows")
    for key, d in errors.groupby(level=["what", "model"], sort=False):
        print(f"\n{key[0]}, {key[1]}\n" + d.droplevel(["what", "model"]).round(2).to_string(na_rep="-"))
    print("\n" + judged.round(2).to_string(index=False))
    why = {r["method"]: r["failed"] for r in runs if r.get("failed")}
    for method, reason in why.items(): print(f"{method} failed somewhere: {reason}")
    packages = {k: metadata.version(k) for k in ("shap", "captum", "shapiq")}
    found = dict(budgets=o.budgets, seeds=o.seeds, words=o.words, texts=counts, packages=packages, curves=curves(errors),
                 verdicts=judged.to_dict("records"), failed=why)
    write_whole(o.out, json.dumps(found, indent=1) + "\n")
    draw(errors, Path(o.out).with_suffix(".png"))
    print(f"\n{judged.no_worse.sum()} of {len(judged)} budgets: no worse than the best peer")


if __name__ == "__main__": main()
