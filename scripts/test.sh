#!/usr/bin/env bash
# All tests: test.sh BIN
# Side by side those that do not mind, then those that need the machine for themselves (tests/conftest.py). What failed
# runs once more, by itself on the now quiet machine: its second failure counts. Machines are shared, and a test that
# starts real processes can fail for want of a CPU; one that fails for a fault of ours fails twice.
set -uo pipefail
bin=$1
most_again=10
failures=.pytest_cache/v/cache/lastfailed

# 0: all passed. 1: some failed, which may run again. Whatever else is no answer of the tests'.
run() {
    "$bin/python" -m pytest "$@"
    local code=$?
    if [ $code -gt 1 ]; then exit $code; fi
    return $code
}

rm -f $failures
failed=0
run -m together -n 5 --dist loadfile --no-loadscope-reorder || failed=1
run -m "not together" || failed=1
if [ $failed = 0 ]; then exit 0; fi

count=$("$bin/python" -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' $failures) || exit 1
if [ "$count" -gt $most_again ]; then
    echo "$count tests failed, more than a busy machine explains: none of them runs again." >&2
    exit 1
fi
echo
echo "$count failed. Once more, by themselves:"
run --last-failed --last-failed-no-failures none -v && echo "All of them passed by themselves; see above what each failed with first."
