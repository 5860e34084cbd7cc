#!/usr/bin/env bash
# ruff, then mypy over the packages as they are installed: lint.sh BIN
set -euo pipefail
bin=$1
"$bin/ruff" check .
"$bin/ruff" format --check .
# The folders are mapped to one package when installed; mypy is shown the same through links. What it found out is kept,
# so that a second look takes seconds.
rm -rf .mypy_tree
mkdir -p .mypy_tree/whyidle
for entry in profiler/*; do
    ln -sfn "../../$entry" ".mypy_tree/whyidle/$(basename "$entry")"
done
ln -sfn ../../pipelines ../../scenarios .mypy_tree/whyidle/
ln -sfn ../diagnosis_benchmark .mypy_tree/whyidle_bench
cd .mypy_tree
types=("../$bin/mypy" --config-file ../pyproject.toml --cache-dir ../.mypy_cache -p whyidle -p whyidle_bench)
# Its helpers (from 2.0 on; older ones do not know the variable) have three seconds to start, and on a busy machine it
# gives up then, with another code than for what it found.
code=0
MYPY_NUM_WORKERS=auto "${types[@]}" 2> workers.txt || code=$?
if [ $code -gt 1 ]; then
    code=0
    "${types[@]}" || code=$?
fi
exit $code
