"""How the rooms of the library open: what a room owns is imported when it is first asked for"""
import functools
from importlib import import_module
from pathlib import Path


def room(package:str,  # `__name__` of the room
         *modules:str, # its modules, in reading order
        ): # a module's `__getattr__`
    "Looks a name up in the modules of a room"
    def find(name):
        if not name.startswith("_"):
            for module in map(import_module, (f"{package}.{m}" for m in modules)):
                if name in getattr(module, "__all__", ()): return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return find


@functools.cache
def code_of(*rooms) -> str: # 16 hexadecimal digits
    "A hash of the source of some rooms, `models` or `explainers` say: what is kept on disk must not outlive its code"
    from .core.utils import fingerprint
    home = Path(__file__).parent
    files = [f for r in rooms for f in sorted([*home.glob(f"{r}.py"), *home.glob(f"{r}/*.py")])]
    if not files: raise ValueError(f"no room of the library is called {', '.join(rooms)}")
    return fingerprint(*[f.read_text(encoding="utf8") for f in files])
