"""Words in; logits, gradients and attention maps out"""
from . import encoding, classifier, forward, last_layer, gradients, attention, functions, store # parts of `Classifier`
from .._rooms import room

__getattr__ = room(__name__, "encoding", "classifier", "forward", "last_layer", "gradients", "attention", "functions",
                   "store")
