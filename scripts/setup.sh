#!/usr/bin/env bash
# Makes a virtual environment with whyidle in it: setup.sh FOLDER EXTRAS
# Done again only when pyproject.toml, the extensions in C or the extras change.
set -euo pipefail
venv=$1
extras=$2
python=${PYTHON:-python3}
project=$(cat pyproject.toml diagnosis_benchmark/pyproject.toml setup.py profiler/*.c | cksum | cut -d' ' -f1)
# Developers have the benchmark of diagnosis too.
benchmark=$([[ ,$extras, == *,dev,* ]] && echo yes || true)
stamp="$venv/.whyidle-$project-$extras"
# What was set up with more has these too.
if compgen -G "$venv/.whyidle-$project-$extras*" > /dev/null; then exit 0; fi

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "whyidle needs Python 3.11 or newer, and $python is $("$python" --version 2>&1 || echo missing)." >&2
    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv), or name another: make PYTHON=python3.12 …" >&2
    exit 1
fi
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version > /dev/null 2>&1; then
    rm -rf "$venv"
    if ! "$python" -m venv "$venv" 2> /dev/null; then
        rm -rf "$venv"
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
            echo "Installing python$version-venv, which Debian and Ubuntu leave out of Python …"
            apt-get update -qq && apt-get install -y -qq "python$version-venv" > /dev/null
            "$python" -m venv "$venv"
        else
            echo "$python cannot make virtual environments here. On Debian or Ubuntu: apt install python$version-venv" >&2
            exit 1
        fi
    fi
fi
echo "Installing whyidle[$extras] with torch into $venv (the first time about 3 minutes and 6 GB) …"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile -e ".[$extras]" \
    ${benchmark:+-e ./diagnosis_benchmark}
# pip would compile with one CPU. Files for other versions of Python do not compile, which does not matter, and what
# newer Pythons warn of in the libraries is nothing that whoever sets this up can change.
PYTHONWARNINGS=ignore "$venv/bin/python" -m compileall -qq -j 0 -x '/tests/|/testing/|/transformers/models/' "$venv/lib" || true
rm -f "$venv"/.whyidle-*
touch "$stamp"
