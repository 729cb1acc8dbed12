#!/bin/sh
# Prints the first Python >= 3.11 that can make virtual environments.
for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
        >/dev/null 2>&1; then
        echo "$candidate"
        exit 0
    fi
done
echo "pinfold needs Python 3.11 or newer with venv; none was found." >&2
echo "Install one (Debian, Ubuntu: apt install python3 python3-venv) or set PYTHON=/path/to/it." >&2
# A name that says what is wrong, should the caller go on.
echo "python-3.11-not-found"
exit 1
