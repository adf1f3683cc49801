"""Intervals, tests and scores"""
from .._rooms import room

__getattr__ = room(__name__, "values", "intervals", "tests", "f1", "correlation")
