#!/usr/bin/env bash
# The tests while a busy loop of equal priority holds each CPU: under_load.sh BIN TIMES [PATHS AND OPTIONS OF PYTEST]
# Whatever fails here is a test that judges the machine, or a fault that shows itself on busy ones.
set -uo pipefail
bin=$1
times=$2
shift 2
loops=()
trap 'kill "${loops[@]}" 2> /dev/null' EXIT
for _ in $(seq "$(nproc)"); do
    "$bin/python" -c 'while True: pass' &
    loops+=($!)
done
failed=0
for number in $(seq "$times"); do
    echo "== Run $number of $times, $(nproc) busy loops beside it"
    began=$(date +%s)
    scripts/test.sh "$bin" "" "$@" || failed=$((failed + 1))
    echo "== Run $number took $(($(date +%s) - began)) s"
done
echo "$((times - failed)) of $times passed"
[ $failed = 0 ]
