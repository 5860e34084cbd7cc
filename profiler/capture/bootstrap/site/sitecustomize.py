"""Run by every Python that `whyidle run` starts, before the program: waits for torch to be imported.

Python imports it by its name from PYTHONPATH. It does nothing but hand over to the user's own `sitecustomize`, put one
finder in place and time what is imported, which costs a microsecond an import; a program that never imports torch pays
for nothing else. It must load in any Python, whether
whyidle supports it or not, so it keeps to old syntax and to the standard library.
"""

import os
import sys

_RUN = "WHYIDLE_RUN"
_PACKAGE = "WHYIDLE_PACKAGE"
_LEAST = (3, 11)


def _note(sentence):
    # As record.notices writes it; nothing of ours can be imported yet.
    try:
        path = os.path.join(os.environ[_RUN], "training-notices.txt")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(path, flags, 0o644), "a+") as file:
            file.seek(0)
            if sentence not in file.read(1 << 20).splitlines():
                file.write(sentence + "\n")
    except Exception:
        pass


def _say_loaded():
    """Leave a sign that Python read its environment (`record/notices.py`)."""
    try:
        sign = os.path.join(os.environ[_RUN], "bootstrap-loaded")
        os.close(os.open(sign, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except OSError:
        pass


class _Finder:
    """Makes `whyidle` importable from where it is installed, and runs `whyidle.capture.bootstrap.arm` once
    `torch` has been imported."""

    def __init__(self, package):
        self._package = package
        self._waits = True

    def find_spec(self, name, path=None, target=None):
        if name == "torch" and self._waits:
            return self._find_torch(name, path, target)
        if name == "whyidle":
            import importlib.util

            return importlib.util.spec_from_file_location(
                name, os.path.join(self._package, "__init__.py"), submodule_search_locations=[self._package]
            )
        if name.startswith("whyidle."):
            return self._find_part(name)
        return None

    def _find_part(self, name):
        # In a source tree two packages lie beside the first, not below it.
        part = name.partition(".")[2]
        if part not in ("pipelines", "scenarios"):
            return None
        import importlib.util

        for folder in (self._package, os.path.dirname(self._package)):
            place = os.path.join(folder, part)
            if os.path.isfile(os.path.join(place, "__init__.py")):
                return importlib.util.spec_from_file_location(
                    name, os.path.join(place, "__init__.py"), submodule_search_locations=[place]
                )
        return None

    def _find_torch(self, name, path, target):
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                try:
                    self._follow(spec.loader)
                except Exception:
                    _note("The training could not be watched: torch is loaded in an unknown way.")
                return spec
        return None

    def _follow(self, loader):
        """Have `loader`, which is this import's own, call us when it is done."""
        execute = loader.exec_module

        def exec_module(module):
            try:
                execute(module)
            except BaseException as error:
                # An import that fails looks as it does without us.
                error.__traceback__ = error.__traceback__.tb_next
                raise
            self._waits = False
            loader.__dict__.pop("exec_module", None)
            _arm()

        loader.exec_module = exec_module


_TIMED = """
def _find_and_load(*names):
    outermost = not within and get_ident() == thread
    if outermost:
        within.append(1)
        begin = now()
    try:
        return find(*names)
    except BaseException as error:
        error.__traceback__ = error.__traceback__.tb_next
        raise
    finally:
        if outermost:
            within.pop()
            if len(spans) < most:
                spans.append((begin, now()))
"""


class _Imports:
    """Times imports: stands in for the function that Python calls for each module that is not there yet.

    What is compiled above bears the name of Python's own file, as the function it stands in for does: warnings leave
    out what is of that file. From the traceback of an import that fails it takes itself out.
    """

    MOST = 5000

    def __init__(self):
        import _frozen_importlib
        import _thread
        import time

        self.spans = []
        self._module = _frozen_importlib
        self._find = _frozen_importlib._find_and_load
        names = {
            "find": self._find,
            "now": time.monotonic_ns,
            "get_ident": _thread.get_ident,
            "thread": _thread.get_ident(),
            "within": [],
            "spans": self.spans,
            "most": self.MOST,
        }
        exec(compile(_TIMED, "<frozen importlib._bootstrap>", "exec"), names)
        self._ours = _frozen_importlib._find_and_load = names["_find_and_load"]

    def end(self):
        if self._module._find_and_load is self._ours:
            self._module._find_and_load = self._find


_imports = None


def _arm():
    try:
        from whyidle.capture.bootstrap.arm import arm

        arm(_imports)
    except Exception as error:
        _note("The hooks could not be set up, so a process was not recorded: %r" % (error,))


def _guard(folder):
    """Keep a program that is only run to be measured from overwriting files."""
    try:
        from whyidle.capture.bootstrap import options
        from whyidle.capture.tuning import guard

        guard.install(folder, options()["tune"])
    except Exception as error:
        _note("The program's files could not be protected: %r" % (error,))


def _hand_over(ours):
    """Run the `sitecustomize` that ours stands in front of, as Python would have."""
    # What importlib is made of: every Python has it loaded, which spares importing the package.
    try:
        from _frozen_importlib import module_from_spec
        from _frozen_importlib_external import PathFinder
    except ImportError:
        import imp

        try:
            found = imp.find_module("sitecustomize", sys.path)
        except ImportError:
            return
        # Held until the end: Python 2 empties a module that nobody holds.
        held = sys.modules.pop("sitecustomize")
        return imp.load_module("sitecustomize", *found) and held
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if p not in ours])
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _main():
    global _imports
    here = os.path.dirname(os.path.abspath(__file__))
    ours = [p for p in sys.path if p and os.path.abspath(p) == here]
    # Child processes inherit PYTHONPATH; this program's own path stays what it would have been.
    sys.path[:] = [p for p in sys.path if p not in ours]
    folder, package = os.environ.get(_RUN), os.environ.get(_PACKAGE)
    # A training waits for its workers, and the folder may hang: whoever starts a process of multiprocessing has looked.
    worker = any(word.startswith("from multiprocessing.") for word in getattr(sys, "orig_argv", ()))
    if folder and package and (worker or os.path.isdir(folder)):
        if not worker:
            _say_loaded()
        if sys.version_info < _LEAST:
            _note("A training could not be watched: its Python %d.%d is older than 3.11." % sys.version_info[:2])
        else:
            sys.meta_path.insert(0, _Finder(package))
            try:
                _imports = _Imports()
            except Exception:
                # Python does not promise what it stands in for. Without it imports are not told from other work.
                pass
            if '"tune"' in os.environ.get("WHYIDLE_OPTIONS", ""):
                _guard(folder)
            if "torch" in sys.modules:
                # A line of a .pth file has imported it before us.
                _arm()
    _hand_over(ours)


_main()
