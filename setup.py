"""Adds what is in C to what pyproject.toml says, for Pythons that can use it: the hooks' steady path (docs/hooks.md)
and sets of intervals, for reports.

Without a compiler it is left out. `WHYIDLE_PURE=1` leaves it out too: such a wheel holds no extension.
"""

import os
import sysconfig

from setuptools import Extension, setup

wanted = not sysconfig.get_config_var("Py_GIL_DISABLED") and os.environ.get("WHYIDLE_PURE", "0") in ("", "0")
extensions = [
    Extension(f"whyidle.{name}", [f"profiler/{name}.c"], optional=True, extra_compile_args=["-Wall", "-Wextra"])
    for name in ("_native", "_intervals")
]
setup(ext_modules=extensions if wanted else [])
