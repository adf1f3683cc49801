"""How much faster are students trained in a stack than one after another, and how long does the whole grid take?
`python benchmarks/students.py` prints one plain ratio per kind of student. `--grid` runs the notebooks of the grid
from scratch (`--profile demo`), two at a time, and prints their seconds and the goal."""
import argparse, tempfile, time
from concurrent.futures import ThreadPoolExecutor

import torch

import xfeval.truth.templates, xfeval.truth.fever, xfeval.truth.sentiment, xfeval.truth.topic, xfeval.truth.mrc, xfeval.truth.evinf, xfeval.truth.qa
from xfeval.truth.corpora import generate
from xfeval.papers.plan import load_plan
from xfeval.papers.run import run_one
from xfeval.simulate.students import students, together_ratio

grid_notebooks = ("sun2025_simulatability", "pruthi2022_students", "pruthi2022_humans")
goal = 600 # seconds on 2 cores


def ratios():
    "One after another / together, per kind of student"
    texts = generate("controlled-sentiment", 104, split="train")
    for name in students:
        print(f"{name:17} one after another / together, 12 students: {together_ratio(name, texts):.1f}", flush=True)


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
