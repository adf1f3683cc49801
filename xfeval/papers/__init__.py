"""Published numbers, claims and the runner of the result notebooks"""
from .._rooms import room

__getattr__ = room(__name__, "published", "claims", "plan", "items", "report", "run")
