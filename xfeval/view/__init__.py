"""Tables and pictures"""
from .._rooms import room

__getattr__ = room(__name__, "html", "text", "figures", "show", "tables")
