"""Agents and students that learn from explanations"""
from .._rooms import room

__getattr__ = room(__name__, "train", "agents", "students", "qa")
