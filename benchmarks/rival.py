"""A peer library that lives in its own environment: reads one JSON command per line, answers with one JSON line.

`peers.py` starts it with the peer's Python, so that both sides of a comparison run interleaved
although their packages exclude each other."""
import gc, json, os, sys, time, warnings

for name, value in dict(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error").items():
    os.environ.setdefault(name, value)
os.environ["TQDM_DISABLE"] = "1"
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
    def __init__(self, model):
        self.rows = self.calls = 0
        model.register_forward_pre_hook(self.see, with_kwargs=True)

    def see(self, module, args, kw):
        x = next((kw[k] for k in ("input_ids", "inputs_embeds") if kw.get(k) is not None), args[0] if args else None)
        if x is None: return
        self.rows += len(x)
        self.calls += 1


def from_folder(folder, device):
    "Tokenizer and model of a plain folder"
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval().to(device)
    return AutoTokenizer.from_pretrained(folder), model


class Ferret:
    "ferret-xai: a `Benchmark` with its six explainers and its evaluators"
    def __init__(self, folder, device):
        from ferret import Benchmark
        tok, self.model = from_folder(folder, device)
        self.bench, self.found = Benchmark(self.model, tok), {}

    def explain(self, texts, targets):
        for t, c in zip(texts, targets):
            self.found[t] = self.bench.explain(t, target=c, show_progress=False, normalize_scores=False)
        return [[self.plain(e) for e in self.found[t]] for t in texts]

    def plain(self, e):
        return dict(explainer=e.explainer, tokens=list(e.tokens), scores=np.asarray(e.scores, float).tolist())

    def evaluate(self, texts, targets):
        out = []
        for t, c in zip(texts, targets):
            found = self.bench.evaluate_explanations(self.found[t], target=c, show_progress=False)
            out.append([{s.name: float(s.score) for s in e.evaluation_scores} for e in found])
        return out


class Interpreto:
    "interpreto: perturbation and gradient attributions of words, insertion and deletion"
    def __init__(self, folder, device):
        self.tok, self.model = from_folder(folder, device)
        self.device, self.found = torch.device(device), {}

    def explain(self, texts, targets, methods, batch):
        import interpreto
        from interpreto.attributions import InferenceModes
        self.found, out = {}, {}
        for name, options in methods.items():
            method = getattr(interpreto, name)(self.model, self.tok, batch_size=batch, device=self.device,
                                               inference_mode=InferenceModes.SOFTMAX,
                                               granularity=interpreto.Granularity.WORD, **options)
            found = self.found[name] = method(list(texts), torch.tensor(targets)[:, None])
            out[name] = [np.asarray(torch.as_tensor(a.attributions).detach().cpu()).ravel().tolist() for a in found]
        return out

    def evaluate(self, texts, targets, batch):
        from interpreto.attributions.metrics import Deletion, Insertion
        metrics = [m(self.model, self.tok, batch_size=batch) for m in (Insertion, Deletion)]
        return {name: {type(m).__name__: float(m.evaluate(found)[0]) for m in metrics}
                for name, found in self.found.items()}


class Server:
    "Runs the commands of `peers.py`, with the time, rows and memory of each"
    def start(self, peer, folder, device, threads, clock):
        torch.set_num_threads(threads)
        self.clock = time.process_time if clock == "cpu" else time.perf_counter
        self.peer = dict(ferret=Ferret, interpreto=Interpreto)[peer](folder, device)
        self.seen = Rows(self.peer.model)
        return {}

    def run(self, name, **ask):
        gc.collect()
        before, rows, calls, start = peak_mb(True), self.seen.rows, self.seen.calls, self.clock()
        result = getattr(self.peer, name)(**ask)
        return dict(result=result, seconds=self.clock()-start, rows=self.seen.rows-rows,
                    calls=self.seen.calls-calls, megabytes=max(0., peak_mb()-before))


def main():
    server = Server()
    for line in sys.stdin:
        ask = json.loads(line)
        name = ask.pop("do")
        try: answer = server.start(**ask) if name == "start" else server.run(name, **ask)
        except Exception as e: answer = dict(error=f"{type(e).__name__}: {e}")
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__": main()
