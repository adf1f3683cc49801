"""Word links and what they carry over"""
from .._rooms import room

__getattr__ = room(__name__, "links", "statistical", "static", "encoder", "projection", "highlights", "exnli")
