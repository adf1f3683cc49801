"""How much faster are students trained in a stack than one after another, and how long does the whole grid of agents and students take?
`python benchmarks/students.py` prints one plain ratio per kind of student; `--grid` runs the notebooks of the grid from scratch (`--profile demo`) and prints their seconds and the goal."""
import argparse, resource, tempfile, time

import numpy as np
import torch

import xfeval.controlled_more
from xfeval.controlled import generate
from xfeval.simulate.students import StudentConfig, _Room, _plan, _teach, students
from xfeval.simulate.training import Recipe

def lessons_of(name, n=64, learners=12):
    "Students of one shape: the truth, with many seeds"
    x = generate("controlled-sentiment", n+40, split="train"); train, dev, test = x[:n], x[n:n+20], x[n+20:]
    said = [[i.label for i in d] for d in (train, dev, test)]
    room = _Room(StudentConfig(name, recipe=Recipe(epochs=2)), train, dev, test, said, ["negative", "positive"], {"truth": [set(i.gold.tokens) for i in train]}, .1, False)
    out = []
    for s in range(learners): _plan(room, out, ["multitask"], n, s, 1., "plus", 1e-8)
    return out

grid_notebooks, goal = ("pruthi2022_students", "pruthi2022_humans", "sun2025_simulatability"), 600

def grid(profile):
    "Train every agent and student of a profile and say how long it took"
    from xfeval.run import load_profile, notebooks, run_one
    plan, nbs, total, cpu = load_profile(profile), notebooks(), 0., 0.
    with tempfile.TemporaryDirectory() as out:
        for n in [n for n in grid_notebooks if n in nbs]:
            before = resource.getrusage(resource.RUSAGE_CHILDREN); r = run_one(n, nbs[n], plan[n], out); after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if "error" in r: raise SystemExit(f"{n}: {r['error']}")
            used = after.ru_utime+after.ru_stime-before.ru_utime-before.ru_stime; total += r["seconds"]; cpu += used
            print(f"{n:25} {r['seconds']:.0f} s, {used:.0f} s of processor time", flush=True)
    print(f"{profile} grid, one notebook after another on one core: {total:.0f} s, {cpu:.0f} s of processor time (goal: at most {goal} s on 2 cores)")

if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__); p.add_argument("--grid", action="store_true"); p.add_argument("--profile", default="demo"); a = p.parse_args()
    torch.set_num_threads(1)
    if a.grid: grid(a.profile); raise SystemExit(0)
    for name in students:
        ls, used = lessons_of(name), {}
        for together in (True, False):
            _teach(ls[:2], together); t = time.process_time(); _teach(ls, together); used[together] = time.process_time()-t
        print(f"{name:17} one after another / together, {len(ls)} students: {used[False]/used[True]:.1f}")
