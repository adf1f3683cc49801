"""Which explanation of my text classifier can I trust?"""

__version__ = "0.2.0"

from ._moved import MOVED # former imports, with a warning

_names = { # module: its public names
    "core.text": ("Instance", "Gold"),
    "core.explanation": ("Explanation",),
    "data.datasets": ("load_data", "list_datasets"),
    "data.table": ("load_table",),
    "models.classifier": ("Classifier",),
    "models.store": ("load_model", "list_models"),
    "engine.run": ("Engine",),
    "explainers.explain": ("explain", "list_methods"),
    "metrics.evaluate": ("evaluate", "list_metrics"),
    "board.summarise": ("summarise",),
}
registers = { # registry: modules that add to it, imported when it is first read
    "dataset": ("xfeval.truth.corpora",),
    "renderer": ("xfeval.view.show",),
    "aligner": tuple(f"xfeval.crosslingual.{m}" for m in ("static", "statistical", "encoder")),
}
_places = {name: module for module, names in _names.items() for name in names}
__all__ = ["__version__", *_places]


def __getattr__(name):
    "Import a public name when it is first used, so that `import xfeval` costs nothing"
    if name not in _places: raise AttributeError(f"module 'xfeval' has no attribute {name!r}")
    from importlib import import_module
    value = getattr(import_module(f"xfeval.{_places[name]}"), name)
    globals()[name] = value
    return value


def __dir__(): return sorted(__all__)
