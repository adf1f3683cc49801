"How much faster are students trained in a stack than one after another? Prints one plain ratio per kind of student."
import time

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

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in students:
        ls, used = lessons_of(name), {}
        for together in (True, False):
            _teach(ls[:2], together); t = time.process_time(); _teach(ls, together); used[together] = time.process_time()-t
        print(f"{name:17} one after another / together, {len(ls)} students: {used[False]/used[True]:.1f}")
