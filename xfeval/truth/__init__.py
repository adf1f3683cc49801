"""Corpora whose right answer is known, and the recipes of the models that ship"""
from .._rooms import room

__getattr__ = room(__name__, "corpora", "grammar", "inference", "templates", "fever", "sentiment", "topic", "mrc",
                   "evinf", "qa", "tiny", "fit", "recipes", "teacher", "questions", "minilm")
