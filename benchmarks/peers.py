"""Side by side with captum, shap, shapiq, ferret and interpreto: same model, same texts, same target, same work.

`make bench` runs everything and writes `benchmarks/results.json`, which `nbs/48_bench.ipynb` shows. Every comparison
warms both sides up and then runs them interleaved, up to five times; the median counts. Peers that cannot live with our
packages run in their own environment: `--setup-peers` creates it (in `XFEVAL_PEERS`, else in the user's cache)."""
import argparse, contextlib, ctypes, gc, json, os, platform, subprocess, sys, time, warnings
from importlib import metadata
from pathlib import Path

for _name, _value in dict(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                          TQDM_DISABLE="1").items(): os.environ.setdefault(_name, _value)
warnings.filterwarnings("ignore")

import numpy as np
import torch

from xfeval.core.game import Query
from xfeval.core.text import Instance
from xfeval.core.utils import write_whole
from xfeval.data.datasets import load_data
from xfeval.engine.run import Engine
from xfeval.engine import token_batches
from xfeval.explainers.explain import explain
from xfeval.explainers.exchange import from_tokens
from xfeval.explainers.gradients import conductance, frozen
from xfeval.metrics.base import metrics as registry
from xfeval.metrics.evaluate import contexts, evaluate
from xfeval.models.store import load_model
from xfeval.models.encoding import value_of

HERE, START = Path(__file__).resolve().parent, time.perf_counter()
OWN = ("xfeval", "limit", "loop", "loop_batched") # sides that call the model through a `Classifier`
items = {} # {number: benchmark}
needs = dict(ferret=["ferret-xai==0.4.2", "captum>=0.7,<0.8", "shap>=0.44,<0.45", "transformers==4.57.*",
                     "pyarrow<20", "setuptools<81"],
             interpreto=["interpreto==0.5.0", "transformers<5"])


def item(number):
    "Decorator that registers a benchmark under its number"
    def add(fn):
        items[number] = fn
        return fn
    return add


# ---- measuring -------------------------------------------------------------------------------------------------------
def peak_mb(reset=False):
    "Peak resident megabytes since the last reset (Linux), or of the GPU"
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        if reset: torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()/1e6
    try:
        if reset:
            with contextlib.suppress(OSError): ctypes.CDLL("libc.so.6").malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(l.split()[1])/1024 for l in lines if l.startswith("VmHWM"))
    except OSError: return float("nan")


class Rows:
    "Counts the rows that reach a model: ours by the classifier's own count, a peer's by a hook, which ours would heed"
    def __init__(self, clf): self.clf, self.rows = clf, 0

    @contextlib.contextmanager
    def counting(self, ours):
        "Start at 0"
        self.rows, before = 0, self.clf.rows
        hook = None if ours else self.clf.model.register_forward_pre_hook(self.see, with_kwargs=True)
        try: yield self
        finally:
            if ours: self.rows = self.clf.rows - before
            else: hook.remove()

    def see(self, module, args, kw):
        x = next((kw[k] for k in ("input_ids", "inputs_embeds") if kw.get(k) is not None), args[0] if args else None)
        if x is not None: self.rows += len(x)


class Side:
    "One of the things compared: how to run it, how to warm it up, and which share of the whole work one run does"
    def __init__(self, run, warm=None, share=1.): self.run, self.warm, self.share = run, warm or run, share


class Race:
    "Runs sides in turn and keeps medians"
    def __init__(self, o, clf): self.o, self.clf, self.seen, self.rivals = o, clf, Rows(clf), {}

    def clock(self): return time.process_time() if self.o.clock == "cpu" else time.perf_counter()

    def once(self, side, ours):
        "One run of a side, with its time, rows and memory; a peer in its own process has measured these itself"
        gc.collect()
        before = peak_mb(True)
        with self.seen.counting(ours):
            t = self.clock()
            result = side.run()
            if torch.cuda.is_available(): torch.cuda.synchronize()
            seconds = self.clock()-t
        mine = dict(result=result, seconds=seconds, rows=self.seen.rows, megabytes=max(0., peak_mb()-before))
        return result if isinstance(result, dict) and {"seconds", "rows"} <= set(result) else mine

    def __call__(self, cap=None, **sides):
        sides = {k: s if isinstance(s, Side) else Side(s) for k, s in sides.items()}
        seconds, out = {k: [] for k in sides}, {}
        for s in sides.values(): s.warm()
        start = time.perf_counter()
        for _ in range(self.o.repeats):
            for k, s in sides.items():
                one = self.once(s, k in OWN)
                seconds[k].append(one["seconds"]/s.share)
                out.setdefault(k, dict(rows=round(one["rows"]/s.share), megabytes=round(one["megabytes"], 1),
                                       result=one["result"]))
            if time.perf_counter()-start > (cap or self.o.cap) or time.perf_counter()-START > 60*self.o.minutes: break
        for k in out:
            out[k].update(seconds=float(np.median(seconds[k])), repeats=len(seconds[k]), share=sides[k].share)
        return out

    def rival(self, peer):
        "The process of a peer with its own environment, or None where it is not installed"
        if peer not in self.rivals:
            python = home()/peer/"bin"/"python"
            self.rivals[peer] = Rival(python, peer, self.o, self.folder()) if python.exists() else None
        return self.rivals[peer]

    def folder(self): # the model as a plain folder that every library can read
        path = home()/f"model-{self.clf.fingerprint}"
        if not (path/"model.safetensors").exists(): self.clf.save(path)
        return path


class Rival:
    "A peer in its own process and environment"
    def __init__(self, python, peer, o, folder):
        self.p = subprocess.Popen([str(python), str(HERE/"rival.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        self.ask(do="start", peer=peer, folder=str(folder), device=o.device, threads=o.threads, clock=o.clock)

    def ask(self, **kw):
        self.p.stdin.write(json.dumps(kw) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        answer = json.loads(line) if line else dict(error="the peer's process ended")
        if "error" in answer: raise RuntimeError(answer["error"])
        return answer

    def close(self):
        self.p.stdin.close()
        try: self.p.wait(20)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()


def home():
    "Where peers' environments live"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home()/".cache")
    return Path(os.environ.get("XFEVAL_PEERS") or cache/"xfeval-peers")


def setup_peers():
    "Create the environments of the peers"
    torch_version = metadata.version("torch").split("+")[0]
    for peer, packages in needs.items():
        python = home()/peer/"bin"/"python"
        if not python.exists(): subprocess.run([sys.executable, "-m", "venv", str(home()/peer)], check=True)
        print(f"installing {peer} into {home()/peer} ...")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"torch=={torch_version}", *packages],
                       check=True)


def record(number,         # of the item
           what, got,      # what was compared, and what the race gave
           peer,           # the side that ours is compared with
           goal=None,      # the ratio to reach
           ours="xfeval", distance=None, ratio=None, met=None, note="",
           less=False,     # must the ratio be at most the goal?
          ):
    "One line of the table; the ratio is peer / ours in seconds unless given"
    if ratio is None and peer in got: ratio = got[peer]["seconds"]/got[ours]["seconds"]
    if met is None and None not in (goal, ratio): met = ratio <= goal if less else ratio >= goal
    measured = {key: {k: v[key] for k, v in got.items()}
                for key in ("seconds", "rows", "megabytes", "repeats", "share")}
    return dict(item=number, what=what, peer=peer, **measured, ratio=ratio, goal=goal, at_most=less,
                met=None if met is None else bool(met), distance=distance, note=note)


# ---- texts -----------------------------------------------------------------------------------------------------------
def corpus(clf, tokens, n, parts=2, whole=False, spread=3):
    "`n` demo texts of about `tokens` sub-words; `whole`: every word is one sub-word; longer ones are joined from several"
    data, out = load_data("demo-nli", n=None), []
    for k in range(len(data)):
        a, b = data[k].texts
        if parts == 1: a, b = f"{a} {b}", None
        j = k
        while len(clf.encode(Instance.from_text([a, b] if b else a)).ids) < tokens-spread and j < k+12:
            j += 1
            a = f"{data[j % len(data)].texts[0]} {a}"
        x = Instance.from_text([a, b] if b else a, id=f"{parts}-{tokens}-{k}")
        e = clf.encode(x)
        if abs(len(e.ids)-tokens) <= spread and not e.truncated and (not whole or len(e.players) == x.n_words == (e.word >= 0).sum()):
            out.append(x)
        if len(out) == n: return out
    raise ValueError(f"only {len(out)} of {n} texts of about {tokens} tokens")


def fragments(clf, words, n):
    "Short texts of a given number of words, each word one sub-word"
    out = []
    for x in load_data("demo-nli", n=None):
        for a in x.texts:
            y = Instance.from_text(a, id=f"short-{words}-{len(out)}")
            e = clf.encode(y)
            if y.n_words == words == (e.word >= 0).sum(): out.append(y)
            if len(out) == n: return out
    return out


def rms(a, b):
    "Root mean squared difference in percent of the size of `b`"
    a, b = np.asarray(a, float), np.asarray(b, float)
    return float(100*np.sqrt(((a-b)**2).mean()/max((b**2).mean(), 1e-30)))


def tops(clf, xs): return clf.predict(xs).argmax(1)


# ---- 1 ferret --------------------------------------------------------------------------------------------------------
FERRET = ["aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo"]

def six(clf, xs, targets, engine, budget, samples):
    "ferret's six explainers, as one call for the games and one for the gradients"
    names = [clf.labels[t] for t in targets]
    g = explain(clf, xs, ["shapley", "lime"], target=names, absent="mask", engine=engine, budget=budget,
                estimator="kriging", samples=samples, draw="count", model="ridge", alpha=1e-3, kernel="text")
    d = explain(clf, xs, ["saliency", "input_x_gradient", "averaged_gradients", "integrated_gradients"], target=names,
                output="logit_top", engine=engine, aggregation="sum")
    return [e for i in range(len(xs)) for e in (*g[2*i:2*i+2], *d[4*i:4*i+4])]

@item(1)
def ferret(race, o):
    "ferret: six explanations and their evaluation"
    clf, r = race.clf, race.rival("ferret")
    if r is None: return [dict(item=1, what="ferret is not installed: --setup-peers", met=None)]
    one, many = corpus(clf, 25, 1, 1, whole=True), corpus(clf, 25, 4 if o.quick else 32, 1, whole=True, spread=6)
    T = lambda xs: dict(texts=[x.texts[0] for x in xs], targets=tops(clf, xs).tolist())
    budget, samples = (32, 40) if o.quick else (126, 160)
    theirs = r.ask(do="explain", **T(one))["result"][0]
    given = [from_tokens(one[0], e["tokens"], e["scores"], method=e["explainer"],
                         target=clf.labels[T(one)["targets"][0]]) for e in theirs]
    ours = lambda: evaluate(clf, given, {m: dict(as_coded=True) for m in FERRET}, engine=Engine(clf))
    got = race(xfeval=ours, ferret=lambda: r.ask(do="evaluate", **T(one)))
    df = got["xfeval"]["result"]
    values = [[float(df[(df.method == e["explainer"]) & (df.metric == m)].value.iloc[0]) for m in FERRET]
              for e in theirs]
    peer = [[s["aopc_compr"], s["aopc_suff"], s["taucorr_loo"]] for s in got["ferret"]["result"][0]]
    out = [record(1, "evaluate six explanations of a text of 25 tokens", got, "ferret", 3,
                  distance=float(np.nanmax(np.abs(np.array(values)-np.array(peer)))),
                  note="distance: largest difference of a metric's value")]

    def both(xs):
        e = Engine(clf)
        ex = six(clf, xs, tops(clf, xs), e, budget, samples)
        return ex, evaluate(clf, ex, FERRET, engine=e)
    def rival(xs):
        a, b = r.ask(do="explain", **T(xs)), r.ask(do="evaluate", **T(xs))
        return dict(result=a["result"], **{k: a[k]+b[k] for k in ("seconds", "rows")},
                    megabytes=max(a["megabytes"], b["megabytes"]))
    got = race(xfeval=lambda: both(one), ferret=Side(lambda: rival(one), lambda: None))
    ig = max(np.abs(np.array(e["scores"])[1:-1]-x.vector()).max()
             for e, x in zip(got["ferret"]["result"][0][2:], got["xfeval"]["result"][0][2:6]))
    out.append(record(1, "explain and evaluate a text of 25 tokens, six explainers", got, "ferret", 2,
                      distance=float(ig), note="distance: largest difference of a gradient score"))
    part = many[:2 if o.quick else 5]
    got = race(cap=1, xfeval=Side(lambda: both(many), lambda: None),
               ferret=Side(lambda: rival(part), lambda: None, len(part)/len(many)))
    out.append(record(1, f"explain and evaluate {len(many)} texts of 25 tokens", got, "ferret", 3,
                      note=f"ferret ran {len(part)} of the texts, scaled: it handles one after the other"))

    short = fragments(clf, 6 if o.quick else 9, 2 if o.quick else 6)
    t = tops(clf, short)
    exact = explain(clf, short, "exact_shapley", target=[clf.labels[i] for i in t], absent="mask", engine=Engine(clf))
    mine, peer = six(clf, short, t, Engine(clf), budget, samples), r.ask(do="explain", **T(short))["result"]
    error = {}
    for name, k in (("shap", 0), ("lime", 1)):
        true = np.concatenate([e.vector() for e in exact])
        error[name] = dict(xfeval=rms(np.concatenate([mine[6*i+k].vector() for i in range(len(short))]), true),
                           ferret=rms(np.concatenate([np.array(p[k]["scores"])[1:-1] for p in peer]), true))
    for name, e in error.items():
        out.append(dict(item=1, what=f"{name} against exact Shapley values, {len(short)} texts of {short[0].n_words} words (error in percent)", peer="ferret", error=e, ratio=e["ferret"]/max(e["xfeval"], 1e-9), goal=1., met=e["xfeval"] <= e["ferret"], note=f"ours with {budget+2} rows and {samples} samples" ))
    return out


# ---- 2, 3, 4 captum --------------------------------------------------------------------------------------------------
class Captum:
    "One text as captum sees it: ids, the same with every word absent, words as features"
    def __init__(self, clf, x, absent="pad"):
        self.clf, self.x, e = clf, x, clf.encode(x)
        self.e = e
        n = len(e.players)
        self.ids, self.types = (torch.as_tensor(v)[None].to(clf.device) for v in (e.ids, e.types))
        gone = clf.batch([e], [np.zeros(n, bool)], absent).ids
        self.base, self.feature = gone, torch.as_tensor(np.where(e.slot < 0, 0, e.slot))[None].to(clf.device)
        self.target = int(clf.predict([x])[0].argmax())
    def __call__(self, ids):
        k = len(ids)
        with torch.inference_mode():
            return self.clf.model(input_ids=ids, attention_mask=torch.ones_like(ids),
                                  token_type_ids=self.types.expand(k, -1)).logits.softmax(-1)[:, self.target]
    def words(self, attr): # of the first sub-word of every player
        a = attr[0].detach().cpu().numpy()
        first = np.unique(self.e.slot[self.e.slot >= 0], return_index=True)[1]
        return a[np.flatnonzero(self.e.slot >= 0)[first]]

def best_size(race, run, sizes=(16, 32, 64, 128)):
    "The fastest number of perturbations per call"
    t = {}
    for s in sizes:
        b = race.clock()
        run(s)
        t[s] = race.clock()-b
    return min(t, key=t.get)

@item(2)
def sampling(race, o):
    "captum ShapleyValueSampling with the same permutations"
    from captum.attr import ShapleyValueSampling
    clf, out = race.clf, []
    for tokens, samples, goals in ((25, 3, (3.5, 1.1)),) if o.quick else ((25, 25, (3.5, 1.1)),
                                                                          (100, 4, (None, None))):
        c = Captum(clf, corpus(clf, tokens, 1)[0])
        n = len(c.e.players)
        rng = np.random.default_rng(0)
        p = np.array([rng.permutation(n) for _ in range(samples)])
        svs = ShapleyValueSampling(c)
        svs.permutation_generator = lambda k, m: (tuple(q) for q in p.tolist())
        run = lambda size, m=samples: svs.attribute(c.ids, c.base, feature_mask=c.feature, n_samples=m,
                                                    perturbations_per_eval=size)
        def ours():
            return explain(clf, c.x, "shapley_sampling", target=clf.labels[c.target], absent="pad",
                           engine=Engine(clf), permutations=p.tolist())[0]
        size = best_size(race, run, (16, 64) if o.quick else (16, 32, 64, 128) if tokens < 50 else (16, 32))
        got = race(xfeval=ours, captum=lambda: run(1), captum_best=lambda: run(size))
        d = float(np.abs(c.words(got["captum"]["result"])-got["xfeval"]["result"].vector()[c.e.players]).max())
        for peer, goal in zip(("captum", "captum_best"), goals):
            out.append(record(2, f"Shapley value sampling, {samples} permutations, {tokens} tokens" + (f", {size} perturbations per call" if peer == "captum_best" else ""), got, peer, goal, distance=d, note="distance: largest difference of a value"))
    return out

@item(3)
def surrogates(race, o):
    "captum KernelShap and Lime"
    from captum._utils.models.linear_model import SkLearnLasso
    from captum.attr import KernelShap, Lime
    clf, m, samples, out = race.clf, 4 if o.quick else 16, 40 if o.quick else 200, []
    cs = [Captum(clf, x) for x in corpus(clf, 25, m)]
    few = cs[:1 if o.quick else 2]
    names = [clf.labels[c.target] for c in cs]
    for name, make, ours in (("KernelShap", KernelShap, dict(method="shapley", budget=samples-2)),
                             ("Lime", lambda c: Lime(c, SkLearnLasso(alpha=.01)),
                              dict(method="lime", samples=samples))):
        def run(some, size):
            torch.manual_seed(0)
            return [c.words(make(c).attribute(c.ids, c.base, feature_mask=c.feature, n_samples=samples,
                                              perturbations_per_eval=size)) for c in some]
        mine = lambda: explain(clf, [c.x for c in cs], target=names, absent="pad", output="prob_top",
                               engine=Engine(clf), **ours)
        size = best_size(race, lambda s: run(cs[:1], s), (16, 64) if o.quick else (32, 64, 128))
        got = race(xfeval=mine, captum=Side(lambda: run(few, 1), lambda: None, len(few)/m),
                   captum_best=Side(lambda: run(cs, size), lambda: run(cs[:1], size)))
        d = np.mean([np.corrcoef(a, e.vector()[c.e.players])[0, 1]
                     for a, e, c in zip(got["captum_best"]["result"], got["xfeval"]["result"], cs) if np.std(a) > 0])
        for peer, goal in (("captum", 3.5), ("captum_best", 1.1)):
            out.append(record(3, f"{name}, {samples} samples, {m} texts of 25 tokens" + (f", {size} perturbations per call" if peer == "captum_best" else ""), got, peer, goal, distance=float(d), note="distance: mean correlation of the scores, which rest on different draws" + ("; captum ran some of the texts, scaled" if peer == "captum" else "")))
    return out

@item(4)
def layers(race, o):
    "captum LayerConductance over all layers"
    from captum.attr import LayerConductance
    clf, out = race.clf, []
    for tokens, goal in ((25, 4),) if o.quick else ((25, 4), (100, None)):
        x = corpus(clf, tokens, 1)[0]
        e = clf.encode(x)
        t = tops(clf, [x])
        steps = 8 if o.quick else 50
        b = clf.batch([e])
        view = clf.as_module(b, "logit_top", t)
        E, B = (torch.tensor(v[0])[None].to(clf.device) for v in (clf.embeddings([e]), clf.baselines([e], "pad")))
        def captum():
            first = lambda a: a[0] if isinstance(a, tuple) else a
            return np.stack([first(LayerConductance(view, l).attribute(E, B, n_steps=steps))[0].detach().sum(-1).cpu().numpy() for l in clf.layers])
        got = race(xfeval=lambda: conductance(clf, [e], t, "logit_top", "pad", steps)[0][0], captum=captum)
        less = got["xfeval"]["megabytes"] <= got["captum"]["megabytes"]
        r = record(4, f"layer conductance, {len(clf.layers)} layers, {steps} steps, {tokens} tokens", got, "captum",
                   goal, distance=rms(got["xfeval"]["result"], got["captum"]["result"]),
                   note="distance: percent of the size of captum's scores; memory must be less, too")
        r["met"] = r["met"] and less if goal else None
        out.append(r)
    return out


# ---- 5 shap ----------------------------------------------------------------------------------------------------------
@item(5)
def shap_(race, o):
    "shap's Partition and Kernel explainers at an equal number of rows"
    import shap
    from transformers import pipeline
    clf, rows = race.clf, 64 if o.quick else 256
    pipe = pipeline("text-classification", model=clf.model, tokenizer=clf.tokenizer, device=clf.device, top_k=None)
    tok, mask = clf.tokenizer, clf.tokenizer.mask_token
    def batched(texts):
        out = []
        for s in range(0, len(texts), 64):
            with torch.inference_mode():
                out.append(clf.model(**tok(list(map(str, texts[s:s+64])), return_tensors="pt",
                                           padding=True).to(clf.device)).logits.softmax(-1).cpu().numpy())
        return np.concatenate(out)
    piped = lambda texts: np.array([[dict((d["label"], d["score"]) for d in r)[l]
                                     for l in clf.model.config.id2label.values()]
                                    for r in pipe(list(map(str, texts)))])
    def partition(f, x):
        return shap.Explainer(f, shap.maskers.Text(tok), silent=True)([x.texts[0]], max_evals=rows,
                                                                      batch_size=64).values[0]
    def kernel(f, x, t):
        words = np.array(x.words)
        np.random.seed(0)
        return shap.KernelExplainer(lambda Z: f([" ".join(np.where(z > .5, words, mask)) for z in Z])[:, t],
                                    np.zeros((1, len(words)))).shap_values(np.ones((1, len(words))), nsamples=rows-2,
                                                                           l1_reg=False, silent=True)[0]
    # KernelExplainer is a regression like one of ours; the other one stays in the table, too
    ours = [("Partition", "kriging"), ("Kernel", "regression"), ("Kernel", "kriging")]
    mine = lambda xs, ts, estimator: explain(clf, xs, "shapley", target=[clf.labels[t] for t in ts], absent="mask",
                                             engine=Engine(clf), budget=rows-2, estimator=estimator)
    xs = corpus(clf, 25, 1, 1, whole=True)
    t = int(tops(clf, xs)[0])
    out = []
    short = fragments(clf, 8 if o.quick else 10, 2 if o.quick else 5)
    ts = tops(clf, short)
    if not o.quick: rows = 128
    exact = np.concatenate([e.vector() for e in explain(clf, short, "exact_shapley",
                                                        target=[clf.labels[i] for i in ts], absent="mask",
                                                        engine=Engine(clf))])
    err = dict({e: rms(np.concatenate([x.vector() for x in mine(short, ts, e)]), exact) for e in ("regression", "kriging")},
               Partition=rms(np.concatenate([partition(batched, x)[1:-1, i] for x, i in zip(short, ts)]), exact),
               Kernel=rms(np.concatenate([kernel(batched, x, i) for x, i in zip(short, ts)]), exact))
    small = rows
    rows = 64 if o.quick else 256
    peers = dict(Partition=partition, Kernel=lambda f, x: kernel(f, x, t))
    for name, estimator in ours:
        run = peers[name]
        got = race(xfeval=lambda: mine(xs, [t], estimator), shap_pipeline=lambda: run(piped, xs[0]),
                   shap_batched=lambda: run(batched, xs[0]))
        for peer, goal in (("shap_pipeline", 4), ("shap_batched", 1.2)):
            out.append(record(5, f"{name}Explainer and our {estimator}, {rows} rows, 25 tokens", got, peer, goal))
        out.append(dict(item=5, what=f"{name}Explainer and our {estimator} against exact Shapley values at {small} rows, {len(short)} texts of {short[0].n_words} words (error in percent)", peer="shap", error=dict(xfeval=err[estimator], shap=err[name]), ratio=err[name]/max(err[estimator], 1e-9), goal=1., met=err[estimator] <= err[name]))
    return out


# ---- 6 accuracy per row ----------------------------------------------------------------------------------------------
@item(6)
def per_row(race, o):
    "Error against exact values at equal numbers of rows"
    import accuracy as a
    budgets, words = ((32, 64), [8]) if o.quick else (a.BUDGETS, [8, 10, 12])
    texts = 1 if o.quick else 6 # of each length: with one or two, chance decides which peer looks best
    runs = a.compare(race.clf, words, texts, budgets, 1 if o.quick else 2)
    if not o.quick: runs += a.compare(load_model("tiny-bert-nli"), words, texts, budgets, 2)
    errors, out = a.table(runs), []
    for v in a.verdicts(errors).to_dict("records"):
        what = f"{v['what']} from {v['rows']} rows, texts of {words[0]} to {words[-1]} words, {v['model']} (error in percent)"
        out.append(dict(item=6, what=what, peer=v["best_peer"], error=dict(xfeval=v["ours"], peer=v["theirs"]),
                        ratio=v["theirs"]/max(v["ours"], 1e-9), goal=1., met=v["no_worse"]))
    out[0]["curves"] = dict(rows=list(budgets), curves=a.curves(errors))
    return out


# ---- 7 interpreto ----------------------------------------------------------------------------------------------------
@item(7)
def interpreto(race, o):
    "interpreto: attributions of words, insertion and deletion"
    clf, r = race.clf, race.rival("interpreto")
    if r is None: return [dict(item=7, what="interpreto is not installed: --setup-peers", met=None)]
    m = 2 if o.quick else 32
    xs = corpus(clf, 25, m, 1, whole=True, spread=6)
    part = xs if o.quick else xs[:8]
    k = 20 if o.quick else 100
    kw = lambda some: dict(texts=[x.texts[0] for x in some], targets=tops(clf, some).tolist())
    methods = dict(Occlusion={}, Lime=dict(n_perturbations=k), KernelShap=dict(n_perturbations=k), Saliency={},
                   IntegratedGradients=dict(n_perturbations=20), SmoothGrad=dict(n_perturbations=20))
    def ours():
        e, names = Engine(clf), [clf.labels[t] for t in tops(clf, xs)]
        say = dict(target=names, output="prob_top", engine=e)
        ex = explain(clf, xs, ["occlusion", "lime", "shapley"], absent="mask", samples=k, budget=k-2,
                     **say) + explain(clf, xs, ["saliency", "integrated_gradients"], steps=20,
                                      **say) + explain(clf, xs, "smooth_grad", samples=20, **say)
        return ex, evaluate(clf, ex, ["insertion", "deletion"], engine=e)
    def rival(batch):
        a, b = r.ask(do="explain", methods=methods, batch=batch, **kw(part)), r.ask(do="evaluate", batch=batch,
                                                                                    **kw(part))
        return dict(result=a["result"], **{q: a[q]+b[q] for q in ("seconds", "rows")},
                    megabytes=max(a["megabytes"], b["megabytes"]))
    got = race(xfeval=ours, interpreto=Side(lambda: rival(4), lambda: None, len(part)/m),
               interpreto_best=Side(lambda: rival(32), lambda: None, len(part)/m))
    note = f"interpreto ran {len(part)} of the texts, scaled; its default batch is 4"
    return [record(7, f"six attribution methods, insertion and deletion, {m} texts of 25 tokens, batch {b}", got, p,
                   1.5, note=note) for p, b in (("interpreto", 4), ("interpreto_best", 32))]


# ---- 8, 9 our own loops and limits -------------------------------------------------------------------------------------
def nine(clf, xs, engine, budget):
    return explain(clf, xs, ["shapley", "attention", "integrated_gradients"], ["token", "pair", "span"],
                   engine=engine, **({"budget": budget} if budget else {}))

def loop(clf, ex, names, batched):
    "The obvious loop: every metric asks for its own rows, one at a time or one question at a time"
    out = []
    for c in contexts(clf, ex):
        enc = clf.encode(c.ex.instance)
        t = clf.index(c.ex.target)
        def answer(a):
            a = a if isinstance(a, Query) else Query(a)
            parts = [a.rows] if batched else [a.rows[i:i+1] for i in range(len(a.rows))]
            z, s = [], 0
            for p in parts:
                z.append(clf.soft_logits([enc]*len(p), p, a.absent, seeds=[a.seed+s+i for i in range(len(p))],
                                         where=a.where, scale=a.scale) if a.soft
                         else clf.logits([enc]*len(p), p, a.absent or "mask"))
                s += len(p)
            return value_of(np.concatenate(z), a.output or "prob_top", t)
        for name in names:
            g = registry[name](c)
            if hasattr(g, "send"):
                try:
                    v = None
                    while True: v = answer(g.send(v))
                except StopIteration as stop: g = stop.value
            out.append(g)
    return out

@item(8)
def whole(race, o):
    "The whole unified evaluation against loops"
    clf = race.clf
    m, few = (2, 1) if o.quick else (8, 1)
    xs = load_data("demo-nli", n=m)
    xs = sorted(xs, key=lambda x: abs(x.n_words-np.median([y.n_words for y in xs]))) # the loops run a typical one
    names = [n for n in registry if n != "sensitivity"]
    ex = nine(clf, xs, Engine(clf), 30 if o.quick else 126)
    per = len(ex)//len(xs)
    some = ex[:few*per]
    got = race(xfeval=lambda: evaluate(clf, ex, names, engine=Engine(clf)),
               loop=Side(lambda: loop(clf, some, names, False), lambda: None, few/m),
               loop_batched=Side(lambda: loop(clf, some, names, True), lambda: None, few/m))
    mine, theirs = got["xfeval"]["result"], got["loop_batched"]["result"]
    flat = [float(v) for r in theirs for v in (r.values() if isinstance(r, dict) else [r])]
    first = evaluate(clf, some, names, engine=Engine(clf)).value.tolist()
    d = [abs(a-b) for a, b in zip(first, flat)] if len(first) == len(flat) else [np.nan]
    note = f"{len(mine)} scores; the loops ran {few} of the instances, scaled; distance: largest difference of a score"
    return [record(8, f"{len(names)} metrics of nine explanations, {m} instances, {w}", got, p, g,
                   distance=float(np.nanmax(d)), note=note)
            for p, g, w in (("loop", 8, "one row at a time"), ("loop_batched", 2, "a batch per question"))]

@item(9)
def limit(race, o):
    "Time of a job over the time of its rows, ready in ideal batches"
    clf, out = race.clf, []
    m = 4 if o.quick else 8
    xs = corpus(clf, 25, m, spread=8)
    budget = 30 if o.quick else 126
    class Spy(Engine):
        def _forward(self, batch):
            self.__dict__.setdefault("log", []).extend(batch)
            return super()._forward(batch)
    ex = nine(clf, xs, Engine(clf), budget)
    hard = [n for n in registry if n != "sensitivity" and not n.startswith(("soft", "normalised"))]
    jobs = {"Shapley values": lambda e: explain(clf, xs, "shapley", engine=e, budget=budget), "Shapley values by kriging": lambda e: explain(clf, xs, "shapley", engine=e, budget=budget, estimator="kriging"),
            "Shapley sampling": lambda e: explain(clf, xs, "shapley_sampling", engine=e, samples=2 if o.quick else 6), "LIME": lambda e: explain(clf, xs, "lime", engine=e, samples=budget), "metrics of nine explanations": lambda e: evaluate(clf, ex, hard, engine=e)}
    for name, job in jobs.items():
        spy = Spy(clf)
        job(spy)
        rows = [(r.enc, r.ask.rows[r.number], r.absent) for r in spy.log if not r.ask.soft]
        ready = []
        for absent in dict.fromkeys(k for *_, k in rows):
            some = [(e, r) for e, r, k in rows if k == absent]
            n = [len(clf.batch([e], [r], absent).ids[0]) if absent == "delete" else len(e.ids) for e, r in some]
            ready += [clf.batch([some[i][0] for i in b], [some[i][1] for i in b], absent)
                      for b in token_batches(n, spy.token_budget)]
        def bare():
            with torch.inference_mode():
                for b in ready: clf.forward(b)
        got = race(cap=o.cap/2, xfeval=lambda: job(Engine(clf)), limit=bare)
        out.append(record(9, f"{name}, {m} texts", got, "limit", 1.2,
                          ratio=got["xfeval"]["seconds"]/got["limit"]["seconds"], less=True,
                          note="ratio: time of the job over time of its rows alone"))
        out[-1]["profile"] = shares(bare)
    return out

def shares(run, top=8):
    "Percent of the time that each operation of the model takes"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p: run()
    took = {e.key.removeprefix("aten::"): e.self_cpu_time_total for e in p.key_averages()}
    total = sum(took.values())
    return {k: round(100*took[k]/total, 1) for k in sorted(took, key=took.get, reverse=True)[:top]}


# ---- 10 growth -------------------------------------------------------------------------------------------------------
@item(10)
def growth(race, o):
    "Time and memory as instances and words grow"
    clf, out = load_model("tiny-bert-nli", device=o.device), []
    data = load_data("controlled-nli", split="test", n=20 if o.quick else 1000)
    def once(f):
        gc.collect()
        before = peak_mb(True)
        t = race.clock()
        rows = f()
        return dict(seconds=race.clock()-t, megabytes=max(0., peak_mb()-before), rows=rows)
    def run(c, xs, **kw):
        e = Engine(c)
        explain(c, xs, "shapley", engine=e, **kw)
        return e.stats["run"]
    run(clf, data[:8], budget=62)
    points = []
    for n in (5, 20) if o.quick else (10, 30, 100, 300, 1000):
        points.append(dict(n=n, **once(lambda: run(clf, data[:n], budget=62))))
    a, b = points[0], points[-1]
    per = (b["seconds"]/b["rows"])/(a["seconds"]/a["rows"])
    out.append(dict(item=10, what=f"instances {a['n']} to {b['n']}: time per row, last over first (tiny-bert-nli, Shapley values from 64 rows)", ratio=per, goal=1.2, at_most=True, met=per <= 1.2, growth=dict(of="instances", points=points), note=f"megabytes above the start: {', '.join(str(round(p['megabytes'])) for p in points)}"))
    found = words_memory(race.clf, o, race.clock)
    out.append(words_record(found, "", "occlusion of four texts; a batch holds at most 2048 tokens on a CPU"))
    what = ", where freed blocks go back to the system at once"
    note = "in a process with MALLOC_MMAP_THRESHOLD_ fixed: what glibc keeps of freed blocks of many sizes is not counted"
    out.append(words_record(words_memory_alone(o), what, note))
    return out

def words_memory(clf, o, clock=time.perf_counter):
    "Seconds and megabytes as texts get longer, and the megabytes of one full batch"
    words = [w for x in load_data("demo-nli", n=None) for w in x.words]
    def occlude(xs):
        e = Engine(clf)
        explain(clf, xs, "occlusion", absent="mask", engine=e)
        return e.stats["run"]
    def once(xs):
        gc.collect()
        before, t = peak_mb(True), clock()
        rows = occlude(xs)
        return dict(seconds=clock()-t, megabytes=max(0., peak_mb()-before), rows=rows)
    sizes = (10, 20) if o.quick else (10, 25, 50, 100, 200)
    def some(n): return [Instance.from_words(words[i*n:(i+1)*n], id=f"w{n}-{i}") for i in range(4)]
    for n in sizes[-2:]: occlude(some(n)) # the allocator's own growth is over after this
    return dict(points=[dict(n=n, **once(some(n))) for n in sizes], batch=batch_mb(clf, o))

def words_memory_alone(o):
    "`words_memory` in a process whose allocator returns large blocks as soon as they are free (glibc only)"
    given = json.dumps(dict(model=o.model, device=o.device, quick=o.quick, threads=o.threads))
    code = ("import argparse, json, sys, torch, peers; o = argparse.Namespace(**json.loads(sys.argv[1])); "
            "torch.set_num_threads(o.threads); "
            "print(json.dumps(peers.words_memory(peers.load_model(o.model, device=o.device), o)))")
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    run = subprocess.run([sys.executable, "-c", code, given], cwd=HERE, env=env, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])

def words_record(found, where, note):
    "A record of `words_memory`"
    points = found["points"]
    ratio = max(p["megabytes"] for p in points)/max(found["batch"], 1e-9)
    what = f"words {points[0]['n']} to {points[-1]['n']}: megabytes of the largest text over those of the token budget's batch"
    return dict(item=10, what=what + where, ratio=ratio, goal=1.5, at_most=True, met=ratio <= 1.5,
                growth=dict(of=f"words{where}", points=points), note=note)

def batch_mb(clf, o):
    "What one full batch of long rows needs"
    x = Instance.from_words(["word"]*200, id="full")
    e = clf.encode(x)
    n = max(1, Engine(clf).token_budget//len(e.ids))
    gc.collect()
    before = peak_mb(True)
    clf.logits([e]*n, [np.ones(len(e.players), bool)]*n, "mask")
    return peak_mb()-before


# ---- all -------------------------------------------------------------------------------------------------------------
def processor():
    "The name of the processor"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((l.split(":")[1].strip() for l in lines if l.startswith("model name")), platform.processor())

def machine(o):
    "What kind of machine this is"
    device = torch.cuda.get_device_name(0) if o.device != "cpu" and torch.cuda.is_available() else o.device
    versions = {p: metadata.version(p) for p in ("torch", "transformers", "captum", "shap", "shapiq", "numpy")}
    return dict(device=device, processor=processor(), cores=os.cpu_count(), threads=o.threads, clock=o.clock,
                model=o.model, versions=versions, peers={k: v[0] for k, v in needs.items()})

def short(v): return "" if v is None else f"{v:.3g}"

def values_of(r):
    "The measured numbers of a record"
    if r.get("seconds"):
        return "  ".join(f"{k} {v:.2f} s / {r['rows'][k]} rows / {r['megabytes'][k]:.0f} MB"
                         for k, v in r["seconds"].items())
    if r.get("error"): return "  ".join(f"{k} {short(v)} %" for k, v in r["error"].items())
    return r.get("note", "")

def line(r):
    "A record as one line of the table"
    met = {True: "met", False: "NOT MET", None: ""}[r.get("met")]
    goal = f"(goal {'<=' if r.get('at_most') else '>='} {short(r.get('goal')) or '-'})"
    start = f"{r['item']:>2}  {r['what']:<96} {r.get('peer') or '':<28} ratio {short(r.get('ratio')):>6} {goal}"
    distance = f"  distance {short(r['distance'])}" if r.get("distance") is not None else ""
    return f"{start} {met:<8} {values_of(r)}{distance}"

def options():
    "The command line"
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="minilm-nli")
    p.add_argument("--device", default="cpu")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--only", default="", help="numbers of items, e.g. 1,2,8")
    p.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    p.add_argument("--cap", type=float, default=25., help="no further repeat of a comparison after so many seconds")
    p.add_argument("--minutes", type=float, default=15., help="after so many, every comparison runs once only")
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                   help="cpu: processor seconds, for a busy machine")
    p.add_argument("--out", type=Path, default=HERE/"results.json")
    p.add_argument("--setup-peers", action="store_true")
    return p.parse_args()

def attempt(number, race, o):
    "The records of one item; a failure is a record, too"
    try: return items[number](race, o)
    except Exception as e:
        if o.quick: raise
        return [dict(item=number, what=f"{items[number].__doc__}: failed", met=False,
                     note=f"{type(e).__name__}: {e}")]

def main():
    o = options()
    if o.setup_peers: setup_peers()
    if o.quick: o.repeats = min(o.repeats, 2)
    torch.set_num_threads(o.threads)
    race, start, done = Race(o, load_model(o.model, device=o.device)), time.perf_counter(), []
    chosen = [int(i) for i in o.only.split(",") if i] or list(items)
    old = json.loads(o.out.read_text())["records"] if o.only and o.out.exists() else []
    kept = [r for r in old if r["item"] not in chosen]
    print(json.dumps(machine(o)))
    for i in chosen:
        found = attempt(i, race, o)
        done += found
        for r in found: print(line(r), flush=True)
        if o.quick: continue
        records = sorted(kept + done, key=lambda r: r["item"])
        report = dict(machine=machine(o), seconds=round(time.perf_counter()-start), records=records)
        write_whole(o.out, json.dumps(report, indent=1, default=float) + "\n")
    for r in filter(None, race.rivals.values()): r.close()
    judged = [r for r in done if r.get("met") is not None]
    print(f"{sum(r['met'] for r in judged)} of {len(judged)} goals met in {time.perf_counter()-start:.0f} s")


if __name__ == "__main__": main()
