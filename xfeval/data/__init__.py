"""From files to instances"""
from .._rooms import room

__getattr__ = room(__name__, "rows", "readers", "datasets", "table", "parallel")
