"A solver that reads premise and hypothesis, in seven languages and shares only the word lists with the generator"
import json
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from xfeval.core.utils import bundled, check_choice


class Sense(NamedTuple):
    "What a word or fixed expression means"
    sort: str      # noun, number, adjective, verb, particle, object, garment, place, time or no
    concept: str   # what it stands for
    words: tuple   # positions of the content words
    denies: bool=False # it also says *not*, as Turkish verbs do

_sorts = dict(nouns="noun", numbers="number", adjectives="adjective", verbs="verb", objects="object",
              garments="garment", places="place", times="time")
_marks = dict(noun="noun", number="num", adjective="adj", verb="verb", object="obj", garment="noun",
              place="place", time="time")

@lru_cache(None)
def _read(name):
    "A file of the lexicon"
    return json.loads(bundled("controlled", f"{name}.json").read_text(encoding="utf-8"))

def _leaves(x):
    "All strings in a nested entry"
    if isinstance(x, str): yield x
    elif isinstance(x, list):
        for v in x: yield from _leaves(v)
    elif isinstance(x, dict):
        for k, v in x.items():
            if k not in ("g", "be", "cls", "def", "before"): yield from _leaves(v)

def _entry(form, mark):
    "The expression from its first to its last content word, and which words are content"
    tokens = [t.partition("|") for t in form.split()]
    own = [not bar or mark in keys.split(",") for _, bar, keys in tokens]
    if True not in own: return None, None
    a, b = own.index(True), len(own)-own[::-1].index(True)
    return tuple(w for w, _, _ in tokens[a:b]), tuple(i for i, o in enumerate(own[a:b]) if o)

def _denied(entry, form):
    "Whether a verb form is the denied one of its pair"
    pairs = [entry] if isinstance(entry, list) else list(entry.values())
    return any(p[1] == form for p in pairs)


def _add_entries(book, lang, section, sort):
    "The forms of all concepts of a section"
    L = _read(lang)
    inflected = sort == "adjective" and lang in ("es", "fr") # forms of all genders and numbers in one string
    for concept, entry in L[section].items():
        forms = [" ".join(s.split()) for s in _leaves(entry)]
        if inflected: forms = " ".join(forms).split()
        for form in forms:
            words, own = _entry(form, _marks[sort])
            if not words: continue
            denies = sort == "verb" and L.get("verb_forms") == "polarity" and _denied(entry, form)
            book[words] = (sort, concept, own, denies)
            classifier = entry.get("cls") if isinstance(entry, dict) else None
            if classifier: book[(classifier, *words)] = (sort, concept, tuple(i+1 for i in own), False)

def _add_rare(book, lang):
    "Adjectives that depend on their noun, and particles"
    L = _read(lang)
    for adjectives in L.get("adjectives_of", {}).values():
        for concept, entry in adjectives.items():
            for token in " ".join(_leaves(entry)).split():
                word, bar, keys = token.partition("|")
                if not bar or keys == "adj": book[(word,)] = ("adjective", concept, (0,), False)
    for concept, entry in L.get("particles", {}).items():
        for form in _leaves(entry):
            words, own = _entry(form, "verb")
            book[words] = ("particle", concept, own, False)

def _add_negations(book, lang):
    "Every word that says *no* or *not*"
    for section in ("patterns", "objects", "determiners", "adjectives"):
        for token in " ".join(_leaves(_read(lang).get(section, {}))).split():
            word, _, keys = token.partition("|")
            if "neg" in keys.split(","): book[(word,)] = ("no", "no", (0,), True)

@lru_cache(None)
def dictionary(lang:str, # a language with a lexicon
              ) -> dict: # tuple of words -> (sort, concept, content positions, whether it denies)
    "Every expression of a language and what it means"
    book = {}
    for section, sort in _sorts.items(): _add_entries(book, lang, section, sort)
    _add_rare(book, lang)
    _add_negations(book, lang)
    return book


def _small(word, lang): return ("i" if lang == "tr" and word[0] == "İ" else word[0].lower()) + word[1:]

@lru_cache(None)
def _joints(lang):
    "The words between clauses"
    L = _read(lang)
    return {t.partition("|")[0] for k in ("and", "comma", "stop") for t in L[k].split()}

def _look_up(book, words, i, lang):
    "The longest expression that begins at word `i`, and its length; None and 1 if there is none"
    for n in (3, 2, 1):
        if i+n > len(words): continue
        found = book.get(tuple(words[i:i+n])) or book.get((_small(words[i], lang), *words[i+1:i+n]))
        if found: return found, n
    return None, 1

def read_clauses(words,      # the words of one part
                 lang:str,   # language
                 first:int=0,# index of the first word
                ) -> list: # of lists of `Sense`
    "The meanings in every clause of a text"
    book, joints = dictionary(lang), _joints(lang)
    clauses, i = [[]], 0
    while i < len(words):
        if words[i] in joints:
            clauses.append([])
            i += 1
            continue
        found, n = _look_up(book, words, i, lang)
        if found:
            sort, concept, own, denies = found
            clauses[-1].append(Sense(sort, concept, tuple(first+i+o for o in own), denies))
        i += n
    return [c for c in clauses if c]


@lru_cache(None)
def _atoms(concept):
    "Everything a concept may stand for"
    kinds = _read("concepts")["kinds_of"].get(concept)
    return frozenset((concept,)) if not kinds else frozenset(kinds) | {f"other {concept}"}

@lru_cache(None)
def _dimension(concept):
    "Name of the dimension of a concept, and all its atoms"
    C = _read("concepts")
    for name, roots in (*C["exclusive"].items(), ("time", C["times"])):
        if any(concept == r or concept in C["kinds_of"].get(r, ()) for r in roots):
            return name, frozenset().union(*map(_atoms, roots)) | {"nothing"}
    return None, frozenset()

class Claim(NamedTuple):
    "What a clause says in one dimension"
    values: frozenset # atoms it allows
    all: frozenset    # all atoms there are
    words: frozenset  # everything that expresses it, without the negation
    core: frozenset   # the words that would differ in a contrast
    no: frozenset     # the negation, if it is denied
    def set(self):
        "The atoms it leaves possible"
        return self.all - self.values if self.no else self.values

def _at(*senses):
    "The positions of the words of some senses"
    return frozenset(i for s in senses if s for i in s.words)


def _whole_verb(by):
    "The verb with its particle, if there is one, or the particle that says it all (*ist in Bewegung*)"
    verb = next(iter((*by.get("verb", []), *by.get("particle", []))), None)
    if verb is None: return None
    rest = [s for s in by.get("particle", []) if s.concept == verb.concept and s is not verb]
    return verb._replace(words=verb.words + tuple(i for s in rest for i in s.words))

def _wearing(garment, colours, verb, no):
    "A garment, in a colour or in any"
    every = _dimension("red")[1]
    values = _atoms(colours[0].concept) if colours else every - {"nothing"}
    return f"wears {garment.concept}", Claim(values, every, _at(verb, garment, *colours), _at(garment, *colours), no)

def _between(nouns, verb, no):
    "Who does what to whom, as triples"
    a, b = _atoms(nouns[0].concept), _atoms(nouns[1].concept)
    values = frozenset((v, m, n) for v, m, n in product(_atoms(verb.concept), a, b))
    return "between", Claim(values, None, _at(verb, nouns[1]), _at(verb), no)

def _value(sense, no, *others):
    "A dimension and the claim that it has the value of a sense; `others` express it too"
    name, every = _dimension(sense.concept)
    return name, Claim(_atoms(sense.concept), every, _at(sense, *others), _at(sense), no)

def _main_claim(by, colours, no):
    "Dimension and claim of the predicate, or None where it is a place or a property"
    nouns, verb = by.get("noun", []), _whole_verb(by)
    if "garment" in by: return _wearing(by["garment"][0], colours, verb, no)
    if "object" in by: return _value(by["object"][0], no, verb)
    if len(nouns) > 1 and verb: return _between(nouns, verb, no)
    if verb and _dimension(verb.concept)[0]: return _value(verb, no)

def _claims(senses):
    "Dimension -> Claim, and the nouns"
    by, claims = {}, {}
    for s in senses: by.setdefault(s.sort, []).append(s)
    no = _at(*(s for s in senses if s.denies))
    adjectives, colours = by.get("adjective", []), []
    if "garment" in by: # a colour belongs to the garment
        colours = [a for a in adjectives if _dimension(a.concept)[0] == "colour"]
        adjectives = [a for a in adjectives if a not in colours]
    main = _main_claim(by, colours, no)
    if main: claims[main[0]] = main[1]
    for s in (*by.get("place", []), *by.get("time", []), *by.get("number", []), *adjectives):
        predicate = main is None and s.sort in ("place", "adjective")
        name, claim = _value(s, no if predicate else frozenset())
        claims[name] = claim
        if predicate and s.sort == "place": main = name, claim
    return claims, by.get("noun", [])


def _below(a, b): return a in _read("concepts")["kinds_of"].get(b, ())

def _compare(p, q, contact):
    "Whether one claim entails, and whether it contradicts the other"
    if not contact:
        a, b = p.set(), q.set()
        return a <= b, not a & b
    apart = not p.values & q.values
    inside = p.values <= q.values
    if not p.no: return (apart, inside) if q.no else (inside, apart)
    return (inside, False) if q.no else (False, inside)

def _same(noun, i, subject): return noun.concept == subject
def _kind_of_it(noun, i, subject): return i == 0 and _below(noun.concept, subject)
def _more_general(noun, i, subject): return i == 0 and _below(subject, noun.concept)

def _match(clauses, subject):
    "Claims, nouns, the noun that is meant, and whether it is more general; None where nobody is meant"
    read = [_claims(c) for c in clauses]
    for test in (_same, _kind_of_it, _more_general):
        for claims, nouns in read:
            found = next((n for i, n in enumerate(nouns) if test(n, i, subject)), None)
            if found: return claims, nouns, found, _below(subject, found.concept)

def _whole(name, p, q):
    "Whether all words of two claims decide, not only those that differ"
    if not p.values & q.values: return False
    if name == "between": return True
    if p.no: return p.values >= q.values
    return p.values <= q.values

def _evidence(name, p, q, nouns, roles):
    "The words of a dimension that decide; `nouns` too if the roles are the other way round"
    if p is None: return q.words | q.no
    words = p.words | q.words if roles or _whole(name, p, q) else p.core | q.core
    return words | p.no | q.no | (nouns if roles else frozenset())


def solve(instance, # a premise and a hypothesis
         ) -> tuple: # label and the set of word indices that decide it
    "Label and rationale, from the words alone"
    check_choice(instance.lang, ("en", "de", "es", "fr", "vi", "zh", "tr"), "language of the solver")
    premise, hypothesis = instance.parts
    q, qn = _claims(sum(read_clauses(hypothesis, instance.lang, len(premise)), []))
    if not qn or not q: return "neutral", frozenset()
    found = _match(read_clauses(premise, instance.lang), qn[0].concept)
    if found is None: return "neutral", _at(*qn)
    p, pn, mention, general = found
    anchor = _at(mention, qn[0])
    if general: return "neutral", anchor
    results = {k: _compare(p[k], q[k], k == "between") if k in p else (False, False) for k in q}
    def evidence(names):
        swapped = mention is not pn[0]
        return anchor.union(*(_evidence(k, p.get(k), q[k], _at(*pn, *qn), swapped and k == "between") for k in names))
    clash = [k for k, (_, contradicts) in results.items() if contradicts]
    open_ = [k for k, (entails, _) in results.items() if not entails]
    if clash: return "contradiction", evidence(clash)
    return ("neutral", evidence(open_)) if open_ else ("entailment", evidence(results))
