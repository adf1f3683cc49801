"A solver that reads claims and evidence and shares only the word lists with the generator"
from collections import Counter

from xfeval.truth.fever import _containers
from xfeval.truth.templates import hidden, seen, word_lists

_lists = word_lists("fever")


_fever_keys = dict(
    date="born moved graduated joined inherited founded museum mill tram flood public plant logo prices",
    number="""children languages medals novels horses schools churches bridges cinemas parks factories shops ships
        designers branches""",
    place="lives studied grew office lies imports timber based tests stores catalogue",
    kind="been exports makes",
    negation="""married retired swim ski passport bicycle lawyer airport library theatre castle hospital lighthouse
        website gym hotline mascot laboratory nursery""",
    antonym="""house kitchen car uncle desk daughter dog son river market station square hotel mayor tunnel warehouse
        showroom founder director cafeteria building""")
_fever_kind_of = {key: kind for kind, keys in _fever_keys.items() for key in keys.split()}
# verb -> family of relations, and whether the subject is the agent
_converse = {"defeated": ("beat", 1), "lost": ("beat", 0), "older": ("age", 1), "younger": ("age", 0),
             "taller": ("height", 1), "shorter": ("height", 0), "succeeded": ("office", 1), "sold": ("sale", 1),
             "bought": ("sale", 0), "larger": ("size", 1), "smaller": ("size", 0), "north": ("north", 1),
             "south": ("north", 0), "wealthier": ("wealth", 1), "poorer": ("wealth", 0), "owns": ("property", 1),
             "owned": ("property", 0)}
_larger = {}
for _values in (_lists.countries, _lists.continents, _lists.occupations, _lists.products, _lists.goods): _larger.update(_containers(_values))
_nameset = {n for k in _lists.names.values() for n in k}
_pole = {w: (s, i) for s, poles in _lists.scales.items() for i, pole in enumerate(poles) for w in pole}

def sentences(words,    # the words of one part
              start=0,  # global index of the first
             ) -> list: # lists of (index, word), masks left out
    "Words with their indices, cut at full stops"
    out = [[]]
    for i, w in enumerate(words, start):
        if w in (".", "?"): out.append([])
        elif w != "[MASK]": out[-1].append((i, w))
    return [s for s in out if s]

def _near(sentence, at, values, back=8, ahead=8):
    "Index and word of the value nearest to index `at`"
    found = [(abs(i-at), i, w) for i, w in sentence if i != at and -back <= i-at <= ahead and w in values]
    return min(found)[1:] if found else None


def _whole_name(at_word, i, step):
    "The indices of the name that word `i` belongs to, looking one way"
    out = [i]
    while at_word.get(out[-1]+step) in _nameset: out.append(out[-1]+step)
    return sorted(out)

def _direction(word, link):
    "Family of a relation and whether the subject is the agent; the preposition may turn it round"
    family, forward = _converse[word]
    if word == "bought" and link in (None, "by"): return "takeover", int(link is None)
    if word == "succeeded" and link: return family, 0
    return family, forward

def _read_role(sentence, at, word):
    "Family, agent, patient and words of a relation; `None` if the word at `at` is no relation"
    at_word = dict(sentence)
    left = [i for i, x in sentence if x in _nameset and i < at]
    right = [i for i, x in sentence if x in _nameset and i > at]
    if not left or not right: return None
    a, b = _whole_name(at_word, left[-1], -1), _whole_name(at_word, right[0], 1)
    prepositions = ("than", "to", "by", "of", "from")
    link = next(((i, x) for i, x in sentence if at < i < b[0] and x in prepositions), (None, None))
    family, forward = _direction(word, link[1])
    first, second = at_word[a[-1]], at_word[b[-1]] # a surname is enough
    agent = first if forward else second
    used = {at, *a, *b} | ({link[0]} if link[1] else set())
    return "role", (family, frozenset((first, second))), agent, used

_places_and_kinds = set(_larger) | set(_larger.values())

def _value_of(kind, sentence, i):
    "Index and word of the value that belongs to the key word `i`, or None"
    if kind == "date": return _near(sentence, i, _lists.years, 9, 9)
    if kind in ("place", "kind"): return _near(sentence, i, _places_and_kinds, 0, 5)
    if kind == "antonym": return _near(sentence, i, _pole, 1, 3)
    allowed = _lists.counting if kind == "number" else ("now", "can", "cannot", "a", "an", "no", "not")
    before = dict(sentence).get(i-1)
    return (i-1, before) if before in allowed else None

def read_facts(words,   # the words of one part
               start=0, # global index of the first
              ) -> list: # (kind, key, value, indices)
    "Everything one part says, as far as its words are visible"
    out = []
    for s in sentences(words, start):
        at_word = dict(s)
        for i, w in s:
            kind = _fever_kind_of.get(w)
            hit = _value_of(kind, s, i) if kind else None
            if hit: out.append(_fact_at(kind, w, i, hit, at_word))
            role = _read_role(s, i, w) if w in _converse else None
            if role: out.append(role)
    return out

def _exclusive(at_word, i):
    "The words that say that nothing else holds: *only* after word `i`, or *all* and *life* in its sentence"
    if at_word.get(i+1) == "only": return {i+1}
    life = [j for j, w in at_word.items() if w == "life" and j > i and at_word.get(j-2) == "all"]
    return {life[0]-2, life[0]} if life else set()

def _fact_at(kind, key, i, hit, at_word):
    "A fact with its value: a number may be a bound, a negation is a truth value, a kind may be the only one"
    at, value = hit
    if kind == "kind": return kind, key, (value, frozenset(_exclusive(at_word, i))), {i, at}
    if kind == "negation": return kind, key, value not in ("no", "not", "cannot"), {i, at}
    if kind == "number" and at_word.get(at-1) == "than":
        return kind, key, (at_word[at-2], value), {i, at, at-1, at-2}
    return kind, key, value, {i, at}


def _holds_number(said, claimed):
    "Whether a number makes a claimed number or bound true"
    if not isinstance(claimed, tuple): return said == claimed
    n, m = _lists.counting.index(said), _lists.counting.index(claimed[1])
    return n > m if claimed[0] == "more" else n < m

def _holds(kind, said, claimed):
    "Does a stated value make the claimed one true (True), false (False) or neither (None)?"
    if kind == "number": return _holds_number(said, claimed)
    if kind == "antonym": return _pole[said] == _pole[claimed]
    if kind == "kind" and said[0] != claimed[0] and _larger.get(said[0]) != claimed[0] and not said[1]: return None
    if kind == "kind": said, claimed = said[0], claimed[0]
    elif kind != "place": return said == claimed
    if said == claimed or _larger.get(said) == claimed: return True
    return None if _larger.get(claimed) == said else False

def solve_fever(parts, # the words of evidence and claim, some possibly [MASK]
               ) -> tuple: # label and indices of the deciding words
    "Label and rationale of a claim, from the words alone"
    evidence, claim = read_facts(parts[0]), read_facts(parts[1], len(parts[0]))
    if not claim: return None, frozenset()
    kind, key, value, used = claim[0]
    for k, key2, said, used2 in evidence:
        if (k, key2) != (kind, key): continue
        holds = _holds(kind, said, value)
        if kind == "kind" and holds is not None: used2 = used2 | said[1]
        return {True: "supports", False: "refutes", None: "not enough info"}[holds], frozenset(used | used2)
    return "not enough info", frozenset(used)


def check_corpus(instances,    # what to check
                 solver,       # parts -> (label, indices)
                 open_label=None, # the label that a reader gives when nothing decides
                ) -> dict: # counts of disagreement; all 0 when truth is truth
    "How often the solver disagrees with the generator"
    out = Counter(n=0, label=0, rationale=0, insufficient=0, unnecessary=0)
    for x in instances:
        label, used = solver(x.parts)
        out["n"] += 1
        out["label"] += label != x.label
        out["rationale"] += used != x.gold.tokens
        out["insufficient"] += x.label != open_label and solver(seen(x, x.gold.tokens))[0] != x.label
        out["unnecessary"] += solver(hidden(x))[0] not in (None, open_label)
    return dict(out)
