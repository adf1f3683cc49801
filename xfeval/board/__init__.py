"""Summaries and comparisons of methods and metrics"""
from .._rooms import room

__getattr__ = room(__name__, "summarise", "compare", "diagnosticity", "scale")
