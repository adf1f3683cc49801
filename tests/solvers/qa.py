"A solver that reads questions about passages and shares only the word lists with the generator"
from xfeval.truth.templates import word_lists

_fever_lists = word_lists("fever")
_lists = word_lists("qa")


_asks = dict(born="born", taught="studied", play="plays", keep="keeps", live="lives", move="moved", open="opened",
             win="won")
_firsts, _lasts = set(_fever_lists.names["she"]+_fever_lists.names["he"]), set(_fever_lists.names["last"])
_answers = dict(born=_lists.births, studied=None, plays=_lists.instruments, keeps=_fever_lists.counting, lives=_lists.all_cities, moved=_lists.careers,
                opened=_lists.all_cities, won=_lists.careers)

def _mention_at(words, low, i):
    "Length and kind of the mention of a person that begins at word `i`; 1 and None if there is none"
    if words[i] in _firsts and words[i+1:i+2] and words[i+1] in _lasts: return 2, "name"
    if low[i] == "the" and low[i+2:i+4] == ["of", "the"] and low[i+1] in _lists.crafts.values(): return 6, "description"
    if low[i] == "the" and low[i+1:i+2] and low[i+1] in _lists.crafts: return 2, "profession"
    if words[i] in _lasts: return 1, "surname"
    return 1, "pronoun" if low[i] in ("she", "he") else None

def mentions(words,   # the words of a part
             start=0, # global index of the first
            ) -> list: # (start, end, kind, lower-case text)
    "Every mention of a person: full name, description, surname, pronoun or profession"
    out, low, i = [], [w.lower() for w in words], 0
    while i < len(words):
        size, kind = _mention_at(words, low, i)
        teacher = kind == "name" and i and low[i-1] == "under"
        if kind and not teacher: out.append((start+i, start+i+size-1, kind, " ".join(low[i:i+size])))
        i += size
    return out

def _about_whom(people, who):
    "The mentions of the person asked about, each with its kind, the next mention and where they were introduced"
    current, introduced = set(), {}
    for k, (a, b, kind, text) in enumerate(people):
        if kind == "name" and text not in current: current, introduced = {text}, {text: (a, b)}
        elif kind == "description":
            current.add(text)
            introduced[text] = (a, b)
        following = people[k+1][0] if k+1 < len(people) else None
        if who in current: yield (a, b), kind, text, following, dict(introduced)

def _bridge(kind, text, who, introduced, low, m):
    "The words that join a profession, or a surname after a description, to the person; None if they are not there"
    begin = max(b for _, b in introduced.values())-m+1
    if kind == "profession":
        return next(({m+i} for i in range(begin, min(begin+4, len(low))) if low[i] == text.split()[-1]), None)
    if kind != "surname" or who.split()[-1] == text: return set()
    return next(({*range(a, b+1)} for name, (a, b) in introduced.items() if name != who and name.endswith(text)), None)

def _same_words(low, wanted, begin, end):
    "Where the words occur first in a range of positions, or None"
    n = len(wanted)
    return next((list(range(i, i+n)) for i in range(begin, end) if low[i:i+n] == wanted), None)

def _answer_after(passage, begin, values):
    "First and last position of the answer: a value of the right type, or a full name where there are no values"
    for i in range(begin, min(begin+4, len(passage))):
        if values is None and passage[i] in _firsts: return i, i+1
        if values is not None and passage[i] in values: return i, i

def _counted(question, low, answer, m):
    "The words that say what is counted, if that is asked; None if the passage counts something else"
    asked = {i for i, w in enumerate(question) if w.lower() == "horses"}
    if not asked or answer is None: return asked
    return asked | {m+answer[1]+1} if low[answer[1]+1:answer[1]+2] == ["horses"] else None


def solve_qa(parts, # the words of question and passage, some possibly [MASK]
            ) -> tuple: # answer (start, end), indices of the deciding words, equalities
    "The answer, the words that lead to it and what refers to the same thing, from the words alone"
    question, passage = parts
    m, low, nothing = len(question), [w.lower() for w in passage], (None, frozenset(), frozenset())
    asked = mentions(question)
    verb = next(((i, _asks[w.lower()]) for i, w in enumerate(question) if w.lower() in _asks), None)
    if not asked or not verb: return nothing
    first, last, _, who = asked[0]
    thing = [i for i in range(max(verb[0], last)+1, m) if question[i] not in ("[MASK]", "?", "to") and i != verb[0]]
    wanted = [question[j].lower() for j in thing]
    for here, kind, text, following, introduced in _about_whom(mentions(passage, m), who):
        after = here[1]-m+1
        until = len(passage) if following is None else following-m
        at = next((i for i in range(after, min(after+3, until)) if low[i] == verb[1]), None)
        if at is None: continue
        other = _same_words(low, wanted, at+1, at+4) if thing else []
        if other is None: continue
        answer = _answer_after(passage, (other[-1] if other else at)+1, _answers[verb[1]])
        bridge = _bridge(kind, text, who, introduced, low, m)
        counted = _counted(question, low, answer, m)
        if None in (answer, bridge, counted): continue
        equal = {((first, last), here)}
        if text != who: equal.add(((first, last), introduced[who]))
        if thing: equal.add(((thing[0], thing[-1]), (m+other[0], m+other[-1])))
        start, end = m+answer[0], m+answer[1]
        said = {m+at, m+at+1} if low[at+1] == "under" else {m+at}
        used = {i for pair in equal for span in pair for i in range(span[0], span[1]+1)}
        gold = {*used, *bridge, *counted, *said, verb[0], *range(start, end+1)}
        return (start, end), frozenset(gold), frozenset(equal)
    return nothing
