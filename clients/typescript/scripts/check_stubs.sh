#!/bin/sh
# Fails when src/gen is not what proto/ generates.
set -eu
PATH=$PATH:../../.venv/bin
if ! command -v buf >/dev/null; then
    echo "no buf: the stubs are not checked (run 'make setup' in the repository, or put buf in PATH)" >&2
    exit 1
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
buf generate ../../proto --template buf.gen.yaml -o "$fresh"
if ! diff -r -q "$fresh/src/gen" src/gen; then
    echo "stubs are stale: run 'npm run stubs' and commit the result" >&2
    exit 1
fi
