"""Which rows of a model are run, once"""
from . import rows, run # the parts of `Engine` come together here
from .._rooms import room

__getattr__ = room(__name__, "rows", "run")
