#!/usr/bin/env bash
# Tests side by side: test.sh BIN [quick|all] [PYTEST'S OPTIONS]
# quick: the layers that are pure functions of what was recorded, but for simulated loaders, which take long. all: those
# marked slow too, with more examples.
# None of them judges lengths of time, so they run beside others, and none runs twice.
set -euo pipefail
bin=$1
tier=${2:-}
shift $(($# < 2 ? $# : 2))
# One more than CPUs: many tests wait for processes of theirs.
together=(-n "$(($(nproc) + 1))" --dist worksteal)
case $tier in
    quick) exec "$bin/python" -m pytest -n "$(nproc)" -m "not slow and not gpu" "$@" \
        --ignore-glob '*/test_replay_*' tests/unit/record tests/unit/analyse tests/unit/report tests/unit/test_layers.py ;;
    all) exec "$bin/python" -m pytest "${together[@]}" -m "not gpu" --hypothesis-profile thorough "$@" ;;
    "") exec "$bin/python" -m pytest "${together[@]}" -m "not slow and not gpu" "$@" ;;
    *) echo "$0: '$tier' is no tier. Write quick, all, or nothing." >&2; exit 2 ;;
esac
