"""A peer library that lives in its own environment: reads one JSON command per line, answers with one JSON line.

`peers.py` starts it with the peer's Python, so that both sides of a comparison run interleaved although their packages exclude each other."""
import gc, json, os, sys, time, warnings

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false"); os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error"); os.environ["TQDM_DISABLE"] = "1"
warnings.filterwarnings("ignore")
answers, sys.stdout = sys.stdout, sys.stderr

import numpy as np
import torch


def peak_mb(reset=False):
    "Peak resident megabytes since the last reset (Linux)"
    try:
        if reset:
            with open("/proc/self/clear_refs", "w") as f: f.write("5")
        with open("/proc/self/status") as f: return next(int(l.split()[1])/1024 for l in f if l.startswith("VmHWM"))
    except OSError: return float("nan")


class Rows:
    "Counts the rows and calls of a model"
    def __init__(self, model): self.rows = self.calls = 0; model.register_forward_pre_hook(self.see, with_kwargs=True)
    def see(self, module, args, kw):
        x = next((kw[k] for k in ("input_ids", "inputs_embeds") if kw.get(k) is not None), args[0] if args else None)
        if x is not None: self.rows += len(x); self.calls += 1


class Ferret:
    "ferret-xai: a `Benchmark` with its six explainers and its evaluators"
    def __init__(self, folder, device):
        from ferret import Benchmark
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        tok = AutoTokenizer.from_pretrained(folder); self.model = AutoModelForSequenceClassification.from_pretrained(folder).eval().to(device)
        self.bench = Benchmark(self.model, tok); self.found = {}
    def explain(self, texts, targets):
        for t, c in zip(texts, targets): self.found[t] = self.bench.explain(t, target=c, show_progress=False, normalize_scores=False)
        return [[dict(explainer=e.explainer, tokens=list(e.tokens), scores=np.asarray(e.scores, float).tolist()) for e in self.found[t]] for t in texts]
    def evaluate(self, texts, targets):
        out = []
        for t, c in zip(texts, targets):
            evs = self.bench.evaluate_explanations(self.found[t], target=c, show_progress=False)
            out.append([{s.name: float(s.score) for s in e.evaluation_scores} for e in evs])
        return out


class Interpreto:
    "interpreto: perturbation and gradient attributions of words, insertion and deletion"
    def __init__(self, folder, device):
        import interpreto as I
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        self.I, self.tok = I, AutoTokenizer.from_pretrained(folder); self.model = AutoModelForSequenceClassification.from_pretrained(folder).eval().to(device)
        self.device, self.found = torch.device(device), []
    def explain(self, texts, targets, methods, batch):
        from interpreto.attributions import InferenceModes
        self.found, out = {}, {}
        for name, kw in methods.items():
            m = getattr(self.I, name)(self.model, self.tok, batch_size=batch, inference_mode=InferenceModes.SOFTMAX, granularity=self.I.Granularity.WORD, device=self.device, **kw)
            self.found[name] = m(list(texts), torch.tensor(targets)[:, None])
            out[name] = [np.asarray(torch.as_tensor(a.attributions).detach().cpu()).ravel().tolist() for a in self.found[name]]
        return out
    def evaluate(self, texts, targets, batch):
        from interpreto.attributions.metrics import Deletion, Insertion
        return {name: {k.__name__: float(k(self.model, self.tok, batch_size=batch).evaluate(found)[0]) for k in (Insertion, Deletion)} for name, found in self.found.items()}


def main():
    peer, clock = None, time.perf_counter
    for line in sys.stdin:
        ask = json.loads(line); name = ask.pop("do")
        try:
            if name == "start":
                torch.set_num_threads(ask["threads"]); clock = time.process_time if ask["clock"] == "cpu" else time.perf_counter
                peer = dict(ferret=Ferret, interpreto=Interpreto)[ask["peer"]](ask["folder"], ask["device"]); seen = Rows(peer.model); answer = {}
            else:
                gc.collect(); before, rows, calls = peak_mb(True), seen.rows, seen.calls
                start = clock(); result = getattr(peer, name)(**ask); seconds = clock() - start
                answer = dict(result=result, seconds=seconds, rows=seen.rows-rows, calls=seen.calls-calls, megabytes=max(0., peak_mb()-before))
        except Exception as e: answer = dict(error=f"{type(e).__name__}: {e}")
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__": main()
