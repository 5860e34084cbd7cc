#!/usr/bin/env bash
# A folder of wheels with which scripts/gpu_check.sh runs on a machine without a network that has torch, torchvision,
# numpy and Pillow: gpu_wheels.sh FOLDER [PYTHON_VERSION]
# The project's own wheel, and what it and its tests need, for x86-64 and that Python (default: 3.12), from pip's index.
# WITHOUT="NAME NAME"  leaves these out: what the machine has, or what would be too large together
# DALI=FOLDER          puts NVIDIA DALI there too, which is larger than everything else
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
folder=$(realpath "$1")
version=${2:-3.12}
dali=${DALI:+$(mkdir -p "$DALI" && realpath "$DALI")}
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=python3

tests="pytest pytest-timeout pytest-xdist execnet pluggy iniconfig packaging pygments hypothesis sortedcontainers psutil"
theirs="markupsafe markdown-it-py mdurl"
names=$("$python" - "${WITHOUT:-}" "$tests $theirs" <<'END'
import re, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
there = {"torch", "torchvision", "numpy", "pillow", *sys.argv[1].split()}
wanted = [*project["dependencies"], *project["optional-dependencies"]["studies"], *sys.argv[2].split()]
names = [each.split(";")[0].strip() for each in wanted]
print("\n".join(name for name in names if re.match(r"[\w.-]+", name)[0].lower() not in there))
END
)
download() {
    local into=$1 platforms=() minor
    shift
    for minor in $(seq 39 -1 5); do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
    "$python" -m pip download -q --disable-pip-version-check --only-binary=:all: --implementation cp \
        --python-version "$version" "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
        -d "$into" "$@"
}
# Two versions of a package would stop the whole installation.
rm -f "$folder"/*.whl
"$python" -m pip wheel -q --disable-pip-version-check --no-deps -w "$folder" .
rm -rf build
mapfile -t names <<< "$names"
download "$folder" --no-deps "${names[@]}"
if [ -n "$dali" ]; then
    rm -f "$dali"/*.whl
    download "$dali" nvidia-dali-cuda130
    rm -f "$dali"/numpy-*.whl
    for each in "$folder"/*.whl; do
        name=$(basename "$each")
        rm -f "$dali/${name%%-*}"-*.whl
    done
fi
for each in "$folder" $dali; do
    du -h "$each"/*.whl | sort -h
    echo "$each: $(find "$each" -name '*.whl' | wc -l) wheels, $(du -sm "$each" | cut -f1) MB"
done
