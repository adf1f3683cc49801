"""From a model to explanations"""
from .._rooms import room

__getattr__ = room(__name__, "base", "games", "shapley", "kriging", "interactions", "lime",
                   "gradients", "attention", "pairs", "louvain", "spans", "explain", "exchange")
