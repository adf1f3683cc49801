"A solver that reads documents with a question and shares only the word lists with the generator"
from xfeval.truth.templates import word_lists

_fever_lists = word_lists("fever")
_lists = word_lists("mrc")
_topic_lists = word_lists("topic")


_verbs = dict(buy=("bought", _lists.things), paint=("painted", _lists.colours), walk=("walked", _lists.spots), arrive=("arrived", _topic_lists.days),
              catch=("caught", _fever_lists.counting), visit=("visited", _lists.relatives), stay=("stayed", _lists.causes))
_residents = {n for k in _lists.residents.values() for n in k}

def _last_names(document):
    "For every word its index, the word, and index and name of the person talked about"
    at, owner = None, None
    for i, w in enumerate(document):
        if w in _residents: at, owner = i, w
        yield i, w, at, owner

def _first_of(words, i, document):
    "Where one of the words first occurs soon after position `i`, or None"
    return next((j for j in range(i+1, min(i+10, len(document))) if document[j] in words), None)

def _subject_of(document, at, i):
    "Where the subject of the verb at `i` stands: a pronoun and the name it stands for, or the name alone"
    return {at, i-1} if document[i-1] in ("He", "She") else {at}

def _solve_value(document, who, verb, values, answer, thing=None):
    "The first value after the verb, against the candidate; `thing`: what was painted or caught"
    for i, w, at, owner in _last_names(document):
        if owner != who or w != verb: continue
        j, k = _first_of(values, i, document), _first_of({thing}, i, document) if thing else i
        if None in (j, k): continue
        label = "true" if document[j].lower() == answer[-1] else "false"
        return label, frozenset(_subject_of(document, at, i) | {i, j, k})
    return None, frozenset()

def _solve_duty(document, who, duty, answer):
    "Whether somebody remembered or forgot to do something, against *yes* or *no*"
    for i, w, at, owner in _last_names(document):
        if owner != who or w not in ("remembered", "forgot"): continue
        if all(x in ("[MASK]", y) for x, y in zip(document[i+2:], duty)):
            used = _subject_of(document, at, i) | {i} | {i+2+k for k, x in enumerate(duty) if x != "the"}
            return ("true" if (w == "remembered") == (answer == ["yes"]) else "false"), frozenset(used)
    return None, frozenset()

def solve_mrc(parts, # the words of document and query, those of the document possibly [MASK]
             ) -> tuple: # label and indices of the deciding words
    "Label and evidence for a question with a candidate answer, from the words alone"
    document, query = parts
    low = [w.lower() for w in query]
    end = low.index("?")
    answer, who = low[end+1:-1], next(w for w in query if w in _residents)
    asked = next((_verbs[w] for w in low[:end] if w in _verbs), None)
    thing = low[2] if low[1] == "many" else low[end-1] if low[1] == "colour" else None
    if asked: return _solve_value(document, who, *asked, answer, thing)
    return _solve_duty(document, who, low[low.index(who.lower())+1:end], answer)
