"""Text, explanations and coalition games: numpy only, no model"""
from .._rooms import room

__getattr__ = room(__name__, "utils", "text", "explanation", "game")
