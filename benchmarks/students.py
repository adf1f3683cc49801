"""How much faster are students trained in a stack than one after another, and how long does the whole grid take?
`python benchmarks/students.py` prints one plain ratio per kind of student. `--grid` runs the notebooks of the grid
from scratch (`--profile demo`), two at a time, and prints their seconds and the goal."""
import argparse, tempfile, time
from concurrent.futures import ThreadPoolExecutor

import torch

from xfeval.truth.corpora import generate
from xfeval.papers.plan import load_plan
from xfeval.papers.run import run_one
from xfeval.simulate.students import run_students, students
from xfeval.simulate.train import Recipe

grid_notebooks = ("sun2025_simulatability", "pruthi2022_students", "pruthi2022_humans")
goal = 600 # seconds on 2 cores


def seconds(name, texts, together, seeds=6):
    "Processor time of training two students per seed: one with the true words, one without"
    train, dev, test = texts[:-40], texts[-40:-20], texts[-20:]
    truth, start = {"truth": [set(x.gold.tokens) for x in train]}, time.process_time()
    run_students(truth, train, dev, test, students=[name], strategies=["multitask"], controls=("none",), seeds=seeds,
                 recipe=Recipe(epochs=2), together=together)
    return time.process_time()-start


def ratios():
    "One after another / together, per kind of student"
    texts = generate("controlled-sentiment", 104, split="train")
    for name in students:
        seconds(name, texts, True, 1) # warm up
        ratio = seconds(name, texts, False)/seconds(name, texts, True)
        print(f"{name:17} one after another / together, 12 students: {ratio:.1f}", flush=True)


def grid(profile):
    "Train every agent and student of a profile and say how long it took"
    plan = load_plan(profile)
    with tempfile.TemporaryDirectory() as out:
        def run(name):
            r = run_one(plan, name, out)
            if "error" in r: raise SystemExit(f"{name}: {r['error']}")
            print(f"{name:25} {r['seconds']:.0f} s", flush=True)
        start = time.perf_counter()
        with ThreadPoolExecutor(2) as pool: list(pool.map(run, [n for n in grid_notebooks if n in plan.params]))
        seconds = time.perf_counter()-start
    print(f"{profile} grid, two notebooks at a time: {seconds:.0f} s (goal: at most {goal} s on 2 quiet cores)")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--grid", action="store_true", help="run the notebooks of the grid instead")
    p.add_argument("--profile", default="demo")
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.grid: grid(a.profile)
    else: ratios()
