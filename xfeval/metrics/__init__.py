"""From explanations to values"""
from .._rooms import room

__getattr__ = room(__name__, "base", "unified", "erasure", "plausibility", "soft", "diagnosticity", "evaluate",
                   "curves")
