"A solver that reads reviews and shares only the word lists with the generator"
from xfeval.truth.templates import word_lists

_lists = word_lists("sentiment")


_polarity = {w: 1 for verb in _lists.mild_verbs.items() for w in verb}
for _words in (_lists.strong, _lists.gradable, _lists.verdict_nouns, _lists.verdict_verbs):
    _polarity |= {w: 1 for w in _words["positive"]} | {w: -1 for w in _words["negative"]}
_feelings = {*_lists.mild_verbs, *_lists.mild_verbs.values(), *_lists.verdict_verbs["positive"], *_lists.verdict_verbs["negative"]}
_denials = [n.split() for n in ("not at all", "by no means", "anything but", "far from", "did not", "not", "hardly")]
_links = {w for d in (_lists.against, _lists.along) for ws in d.values() for w in ws}

def _opinions(low):
    "(indices, polarity, position) of every opinion in lower-case words"
    out = []
    for i, w in enumerate(low):
        if w not in _polarity: continue
        no = next((n for n in _denials if low[max(i-len(n), 0):i] == n), None)
        if no: out.append(({*range(i-len(no), i+1)}, -_polarity[w], i))
        elif low[max(i-2, 0):i] == ["very", "much"]: out.append(({i-2, i-1, i}, _polarity[w], i))
        elif i and low[i-1] in _lists.degrees: out.append(({i-1, i}, _polarity[w], i))
        else: out.append(({i}, _polarity[w], i))
    return out

def _about(low, used, i):
    "What an opinion is about: the work, something else, or unknown because nothing is visible"
    start = max((k+1 for k in range(i) if low[k] in (".", ",")), default=0)
    clause = set(low[start:min(used)])
    if clause & {"expected", "called", "found"}: return "else"
    if low[i] in _feelings: return "work" if "i" in clause else "unknown"
    if clause & set(_lists.aspects): return "else"
    return "work" if clause & {*_lists.works, "it"} else "unknown"

def _sentence_around(low, at):
    "First index of the sentence that holds a word, and the index of its full stop"
    ends = [-1] + [k for k, w in enumerate(low) if w == "."] + [len(low)]
    return max(e for e in ends if e < at)+1, min(e for e in ends if e > at)

def _connective(low, a, b):
    "The indices of the words that join the clauses of a sentence"
    return {k for k in range(a+1, b) if low[k] in _links and low[k-1] == ","}

def solve_sentiment(parts, # the words of the review, some possibly [MASK]
                   ) -> tuple: # label and indices of the deciding words
    "Label and rationale of a review, from the words alone"
    low = [w.lower() for w in parts[0]]
    found = [(used, sign, _about(low, used, i), i) for used, sign, i in _opinions(low)]
    mine = [f for f in found if f[2] == "work"]
    if not mine and len(found) == 1: mine = [f for f in found if f[2] == "unknown"]
    if len(mine) != 1: return None, frozenset()
    used, sign, _, at = mine[0]
    a, b = _sentence_around(low, at)
    if any(a <= i < b and what == "else" for _, _, what, i in found): used = used | _connective(low, a, b)
    return ("positive" if sign > 0 else "negative"), frozenset(used)
