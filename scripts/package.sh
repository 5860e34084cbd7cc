#!/usr/bin/env bash
# Wheel and sdist in dist/, checked as a release is: package.sh PYTHON
# The wheel is made from the sdist, so that what is missing there is missed here. Then it is installed alone into an
# environment of its own, which must bring neither torch nor what the studies need, and asked what it is.
set -euo pipefail
python=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch/tools"
"$scratch/tools/bin/pip" install -q --disable-pip-version-check build twine
rm -rf dist
"$scratch/tools/bin/python" -m build --outdir dist . > "$scratch/build.txt" 2>&1 || { cat "$scratch/build.txt" >&2; exit 1; }
"$scratch/tools/bin/twine" check --strict dist/*

if "$python" -m zipfile -l dist/*.whl | grep -E 'whyidle_bench|diagnosis_benchmark'; then
    echo "The wheel holds the benchmark of diagnosis (see above), which is a package of its own." >&2
    exit 1
fi

"$python" -m venv "$scratch/alone"
"$scratch/alone/bin/pip" install -q --disable-pip-version-check dist/*.whl
"$scratch/alone/bin/pip" check
if "$scratch/alone/bin/pip" freeze | grep -iE '^(torch|torchvision|pillow|spdl)'; then
    echo "The core brings what only the studies need (see above)." >&2
    exit 1
fi
# From another folder, so that it is what was installed that answers.
(cd "$scratch" && alone/bin/whyidle --version && alone/bin/whyidle doctor > doctor.txt && head -4 doctor.txt)
ls -l dist
