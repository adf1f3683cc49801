"A solver that reads abstracts of trials and shares only the word lists with the generator"
from .fever import sentences
from xfeval.truth.templates import word_lists

_lists = word_lists("evinf")


def _find(low, phrase):
    "Indices of the first occurrence of `phrase` in a sentence given as {index: word}"
    words = phrase.split()
    for i in sorted(low):
        at = range(i, i+len(words))
        if [low.get(j) for j in at] == words: return list(at)

def _asked(query):
    "Treatment, outcome and control of a query"
    low = [w.lower() for w in query]
    on, than = low.index("on"), low.index("compared")
    return " ".join(low[2:on]), " ".join(low[on+1:than]), " ".join(low[than+2:])

def _stated(rest):
    "Effect and its words in what is left of a result sentence; None where it states no effect"
    def at(*words): return {i for i, w in rest.items() if w in words}
    up, down = at("increased", "higher", "rise"), at("reduced", "lower", "fall")
    flat, significant = at("not", "no", "unchanged"), at("significant", "significantly")
    if not flat and not ((up or down) and significant): return None
    used = up | down | flat | significant | at("left", "change", "than", "but", "did", "differ", "between")
    used |= at("statistically")
    used |= {i for i in at("a", "no") if i+1 in at("significant")}
    used |= {i for i in at("was") if i+1 in at("statistically", "not")}
    if not up and not down: used |= at("difference")
    if at("differ", "statistically"): used |= at("and")
    if at("significantly") and at("than"): used |= at("was", "with")
    effect = _lists.unchanged if flat else _lists.increased if up else _lists.decreased
    return effect, used, bool(at("than"))

def solve_evinf(parts, # the words of abstract and query, those of the abstract possibly [MASK]
               ) -> tuple: # label and indices of the deciding words
    "Direction of an effect and the words that state it, from the words alone"
    asked = _asked(parts[1])
    for s in sentences(parts[0]):
        low = {i: w.lower() for i, w in s}
        where = [_find(low, phrase) for phrase in asked]
        if None in where: continue
        named = {i for phrase in where for i in phrase}
        stated = _stated({i: w for i, w in low.items() if i not in named})
        if stated is None: continue
        effect, used, compared = stated
        reversed_ = compared and where[2][0] < where[0][0] # lower with Z than with X
        if reversed_ and effect != _lists.unchanged: effect = _lists.decreased if effect == _lists.increased else _lists.increased
        return effect, frozenset(named | used)
    return None, frozenset()
