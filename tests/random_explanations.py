"Explanations of every kind with random scores, for tests that need no explainer"
import numpy as np

from xfeval.core.explanation import Explanation


def random_explanation(x, kind="token", seed=0):
    "All words, all pairs of words, or all pairs of short runs of words, with uniform random scores"
    rng, words = np.random.default_rng(seed), range(x.n_words)
    first, second = (words[:x.sizes[0]], words[x.sizes[0]:])
    def runs(part):
        cuts = [part[0], *(w for w in part[1:] if rng.random() < .5), part[-1]+1]
        return [(a, b-1) for a, b in zip(cuts, cuts[1:])]
    def pairs(one, two): return [(i, j) for i in one for j in two]
    items = list(words)
    if kind == "pair": items = pairs(first, second)
    if kind == "span": items = pairs(runs(first), runs(second))
    return Explanation(x, kind, items, rng.random(len(items)), method="random")
