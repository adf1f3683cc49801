"A solver that reads news and shares only the word lists with the generator"
from xfeval.truth.templates import word_lists

_lists = word_lists("topic")


_topic_of = {}
for _topic in _lists.agents:
    _phrases = (*_lists.agents[_topic], *_lists.objects[_topic], *(v for tenses in _lists.topical_verbs[_topic] for v in tenses))
    _topic_of |= {w.partition("|")[0]: _topic for x in _phrases for w in x.split() if w != "the"}
_figures = sorted((f.split() for fs in _lists.figures.values() for f in fs), key=len, reverse=True)
_asides = [x.split() for x in ("a former", "whose brother", "the son", "the daughter", "once a", "once an")]

def _beside_the_point(low):
    "The indices of figures of speech and of asides between commas"
    skip = set()
    for i in range(len(low)):
        for f in _figures:
            if low[i:i+len(f)] == f: skip |= set(range(i, i+len(f)))
        if low[i] == "," and low[i+1:i+3] in _asides: skip |= set(range(i, low.index(",", i+1)))
    return skip

def solve_topic(parts, # the words of the text, some possibly [MASK]
               ) -> tuple: # label and indices of the deciding words
    "Label and rationale of a news text, from the words alone"
    low = [w.lower() for w in parts[0]]
    skip = _beside_the_point(low)
    found = {i: _topic_of[w] for i, w in enumerate(low) if w in _topic_of and i not in skip}
    topics = set(found.values())
    return (topics.pop(), frozenset(found)) if len(topics) == 1 else (None, frozenset(found))
