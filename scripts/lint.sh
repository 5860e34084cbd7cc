#!/usr/bin/env bash
# ruff, then mypy over the packages as they are installed: lint.sh BIN
set -euo pipefail
bin=$1
"$bin/ruff" check .
"$bin/ruff" format --check .
# The folders are mapped to one package when installed; mypy is shown the same through links.
rm -rf .mypy_tree
mkdir -p .mypy_tree/whyidle
for entry in profiler/*; do
    ln -s "../../$entry" ".mypy_tree/whyidle/$(basename "$entry")"
done
ln -s ../../pipelines ../../scenarios .mypy_tree/whyidle/
# mypy from 2.0 on shares the work out; older ones do not know the variable.
(cd .mypy_tree && MYPY_NUM_WORKERS=auto "../$bin/mypy" --config-file ../pyproject.toml -p whyidle)
