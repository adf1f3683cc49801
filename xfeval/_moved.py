"""Imports of version 0.1.0 that README, tutorials and guide showed still work in this version, with a warning"""
import sys, warnings
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MOVED = { # {module: {name: where it is now}}
    "xfeval.core": {"play": "core.game.run_game"},
    "xfeval.crosslingual.faithfulness": {
        "cross_lingual_faithfulness": "papers.zaman2022.study.cross_lingual_faithfulness",
        "parallel_data": "data.parallel.parallel_data", "plot_projection": "papers.zaman2022.study.plot_projection",
        "rho_table": "crosslingual.projection.rho_table"},
    "xfeval.docs": {"result_map": "apps.notebooks.result_map"},
    "xfeval.explainers.explain": {"from_captum": "explainers.exchange.from_captum",
                                  "from_shap": "explainers.exchange.from_shap"},
    "xfeval.explainers.games": {"bivariate_shapley": "explainers.interactions.bivariate_shapley"},
    "xfeval.explorer": {"Explorer": "apps.explorer.Explorer", "Wish": "apps.explorer.Request"},
    "xfeval.metrics.soft": {"graded_rationales": "metrics.diagnosticity.graded_rationales"},
    "xfeval.metrics.stats": {"compare_methods": "board.compare.compare_methods",
                             "diagnosticity_table": "board.diagnosticity.diagnosticity_table",
                             "truth_table": "board.diagnosticity.truth_table"},
    "xfeval.models": {"new_tiny": "truth.tiny.new_tiny"},
    "xfeval.pictures": {"arcs_html": "view.text.arcs_html", "compare_html": "view.text.compare_html",
                        "curve_table": "metrics.curves.curve_table", "heatmap_html": "view.text.heatmap_html",
                        "parallel_html": "view.text.parallel_html", "plot_curves": "view.figures.plot_curves",
                        "plot_metric_table": "view.figures.plot_metric_table"},
    "xfeval.scale": {"evaluate_shards": "board.scale.evaluate_shards", "explain_shards": "board.scale.explain_shards"},
    "xfeval.simulate.agents": {"augment": "simulate.agents.with_explanation"},
    "xfeval.simulate.rankings": {"gain_table": "papers.pruthi2022.rankings.gain_table"},
    "xfeval.simulate.training": {"Recipe": "simulate.train.Recipe"},
}


def successor(module, name, before=None):
    "The value that `module.name` had, from its new place, with a warning"
    if name not in MOVED[module]:
        if before: return before(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    place, _, new = MOVED[module][name].rpartition(".")
    warnings.warn(f"{module}.{name} is now xfeval.{place}.{new}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(f"xfeval.{place}"), new)


class Moved:
    "Finds the modules that are gone, and lets those that stayed know their former names"
    def find_spec(self, name, path=None, target=None):
        if name not in MOVED: return None
        spec = PathFinder.find_spec(name, path)
        if spec is None: return ModuleSpec(name, self)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            before = getattr(module, "__getattr__", None)
            module.__getattr__ = lambda n: successor(name, n, before)
        spec.loader.exec_module = exec_module
        return spec
    def create_module(self, spec): return ModuleType(spec.name)
    def exec_module(self, module): module.__getattr__ = lambda n: successor(module.__name__, n)


sys.meta_path.insert(0, Moved())
