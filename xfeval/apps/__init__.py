"""The command line, the explorer, the annotation page and the site"""
from .._rooms import room

__getattr__ = room(__name__, "cli", "explorer", "annotation", "notebooks", "site")
