"""Which explanation of my text classifier can I trust?"""

__version__ = "0.1.0"

_places = dict(Instance="core", Explanation="core", Gold="core", load_data="data", load_table="data", list_datasets="data", Classifier="models", load_model="models", list_models="models",
               Engine="engine", explain="explainers.explain", list_methods="explainers.explain", evaluate="metrics.evaluate", list_metrics="metrics.evaluate", summarise="metrics.stats")
__all__ = ["__version__", *_places]


def __getattr__(name):
    "Import a public name when it is first used, so that `import xfeval` costs nothing"
    if name not in _places: raise AttributeError(f"module 'xfeval' has no attribute {name!r}")
    from importlib import import_module
    if name in ("Explanation", "Instance", "explain", "load_data"): import_module("xfeval.pictures") # gives explanations their `show`
    value = getattr(import_module(f"xfeval.{_places[name]}"), name)
    globals()[name] = value
    return value


def __dir__(): return sorted(__all__)
