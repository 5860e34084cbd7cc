#!/usr/bin/env bash
# Everything that has to be known from a GPU, on a machine that has nothing but Python and torch:
#   gpu_check.sh [STAGE…]      no stage: all of them, 22 minutes at most; one alone is done in less than 8
# WHEELS=FOLDERS  wheels of whyidle and of what it needs (scripts/gpu_wheels.sh); installed beside torch, without a network
# OUT=FOLDER      results (default: docs/measurements/gpu/DATE): results.json, results.md, log.gz, each written as they come;
#                 results of other stages that lie there are kept
# LIMIT=SECONDS   that all of it may take, where less is to be had; stages that no time is left for say so
# PYTHON=PROGRAM  that has torch (default: python3)
set -uo pipefail
here=$PWD
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
case $python in */*) python=$(cd "$here" && realpath -s "$python") ;; esac
out=${OUT:-$PWD/docs/measurements/gpu/$(date -u +%Y-%m-%d)}
case $out in /*) ;; *) out=$here/$out ;; esac

wheels=()
for folder in ${WHEELS:-}; do
    case $folder in /*) ;; *) folder=$here/$folder ;; esac
    wheels+=("$folder"/*.whl)
done
if [ ${#wheels[@]} -gt 0 ]; then
    # By what is in it, so that a second call finds it and another tree's wheels are other ones.
    site=${TMPDIR:-/tmp}/gpu-check-$(cksum "${wheels[@]}" | cksum | cut -d' ' -f1)
    if [ ! -e "$site/.done" ]; then
        timeout 150 "$python" -m pip install -q --disable-pip-version-check --root-user-action ignore --no-index --no-deps \
            --no-compile --no-cache-dir --upgrade --target "$site" "${wheels[@]}" && touch "$site/.done"
    fi
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} PATH=$site/bin:$PATH
fi
if ! "$python" -c 'import torch, whyidle'; then
    echo "$python has no torch, or no whyidle: give WHEELS=FOLDER, made by scripts/gpu_wheels.sh." >&2
    exit 2
fi
export PYTHONUNBUFFERED=1
exec "$python" -m benchmarks.gpu_check --out "$out" --seconds "$((${LIMIT:-1320} - SECONDS))" "$@"
