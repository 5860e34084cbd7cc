"""Adds what is in C to what pyproject.toml says, for Pythons that can use it: the hooks' steady path (docs/hooks.md).

Without a compiler it is left out. `WHYIDLE_PURE=1` leaves it out too: such a wheel holds no extension.
"""

import os
import sysconfig

from setuptools import Extension, setup

wanted = not sysconfig.get_config_var("Py_GIL_DISABLED") and os.environ.get("WHYIDLE_PURE", "0") in ("", "0")
flags = ["-Wall", "-Wextra", "-g0"]  # symbols of a debugger are most of its size
extension = Extension("whyidle._native", ["profiler/_native.c"], optional=True, extra_compile_args=flags)
setup(ext_modules=[extension] if wanted else [])
