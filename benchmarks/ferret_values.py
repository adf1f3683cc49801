"""What the real ferret package prints for given scores: writes `tests/ferret_values.json` for our tests.

    pip download --no-deps ferret-xai==0.4.2 && unzip ferret_xai-0.4.2-py3-none-any.whl -d FOLDER
    python benchmarks/ferret_values.py --wheel FOLDER

runs the evaluators of the unpacked wheel with the packages of this project; its explainers
need older ones and are not imported.

    python benchmarks/ferret_values.py --python PATH/TO/PYTHON/WITH/FERRET

runs them in ferret's own environment (`python benchmarks/peers.py --setup-peers` makes one).
Nothing is explained here: the scores are drawn, so that only the metrics are compared, on sub-words, ties,
negative scores and scores of very small size."""
import argparse, json, subprocess, sys, tempfile, types
from pathlib import Path

OUT = Path(__file__).resolve().parents[1]/"tests"/"ferret_values.json"
MODEL = "minilm-nli"
TEXTS = ["Two women are embracing while holding to-go packages.",
         "The violinist didn't rehearse; unsurprisingly, the performance was disappointing and the audience left.",
         "a man is playing a guitar"]
METRICS = dict(aopc_compr="aopc_comprehensiveness", aopc_suff="aopc_sufficiency", taucorr_loo="taucorr_loo",
               token_iou_plau="token_iou", token_f1_plau="token_f1", auprc_plau="auprc")


def score_lists(n, seed):
    "Scores of `n` sub-words: any, positive, tied, all negative, and so small that rounding to 1e-6 would tie them"
    import numpy as np
    rng = np.random.default_rng(seed)
    return dict(signed=rng.normal(size=n).round(4), positive=(rng.random(n) + .01).round(4),
                tied=rng.integers(-1, 3, n)/2., negative=-(rng.random(n) + .01).round(4),
                small=rng.normal(size=n).round(4)*1e-7)


def ask_ferret(folder):
    "Runs inside ferret's environment: one record per text and list of scores"
    from importlib import metadata
    import numpy as np
    from ferret.evaluators import faithfulness_measures as faithful, plausibility_measures as plausible
    from ferret.explainers.explanation import ExplanationWithRationale
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    kinds = (faithful.AOPC_Comprehensiveness_Evaluation, faithful.AOPC_Sufficiency_Evaluation,
             faithful.TauLOO_Evaluation, plausible.TokenIOU_PlausibilityEvaluation,
             plausible.Tokenf1_PlausibilityEvaluation,
             plausible.AUPRC_PlausibilityEvaluation)
    evaluators = [kind(model, tokenizer) for kind in kinds]
    records = []
    for seed, text in enumerate(TEXTS):
        tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
        n, target = len(tokens)-2, seed % 3
        gold = (np.random.default_rng(100+seed).random(n) < .3).astype(int).tolist()
        for name, scores in score_lists(n, seed).items():
            e = ExplanationWithRationale(text, tokens, np.r_[0., scores, 0.], name, target, np.array([0, *gold, 0]))
            found = [ev.compute_evaluation(e, target) for ev in evaluators]
            values = {METRICS[f.name]: float(f.score) for f in found}
            records.append(dict(text=text, tokens=tokens[1:-1], target=target, gold=gold, name=name,
                                scores=scores.tolist(), order=np.argsort(scores).tolist(), values=values))
    packages = ("ferret-xai", "torch", "transformers", "numpy", "scipy", "scikit-learn")
    return dict(made_by="benchmarks/ferret_values.py", model=MODEL,
                versions={p: metadata.version(p) for p in packages}, records=records)


def only_evaluators(folder):
    "Let `import ferret` find an unpacked wheel, without running the `__init__` that imports its explainers"
    package = types.ModuleType("ferret")
    package.__path__ = [str(Path(folder)/"ferret")]
    sys.modules["ferret"] = package
    sys.path.append(str(folder)) # where its version stands


def with_wheel(wheel, folder):
    only_evaluators(wheel)
    return ask_ferret(folder)


def with_python(python, folder):
    done = subprocess.run([python, __file__, "--inside", folder], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout[done.stdout.index('{"made_by"'):])


def one_record_a_line(answer):
    "JSON that a person can read"
    records = ",\n".join(json.dumps(r) for r in answer.pop("records"))
    return json.dumps(answer, indent=1)[:-2] + f',\n "records": [\n{records}\n ]\n}}\n'


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--wheel", help="the folder of an unpacked wheel of ferret")
    p.add_argument("--python", help="the Python of an environment with ferret")
    p.add_argument("--inside", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.inside:
        json.dump(ask_ferret(o.inside), sys.stdout)
        return
    if not o.python and not o.wheel: p.error("--wheel or --python is needed")
    from xfeval import load_model
    with tempfile.TemporaryDirectory() as folder:
        load_model(MODEL).save(folder)
        answer = with_wheel(o.wheel, folder) if o.wheel else with_python(o.python, folder)
    count, version = len(answer["records"]), answer["versions"]["ferret-xai"]
    OUT.write_text(one_record_a_line(answer))
    print(f"{count} records of ferret {version} in {OUT.name}")


if __name__ == "__main__": main()
