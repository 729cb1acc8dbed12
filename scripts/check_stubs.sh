#!/bin/sh
# Fails when the stubs in the repository are not what proto/ generates.
set -eu
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
buf generate -o "$fresh"
stale=0
for directory in clients/python/pinfold/v1 clients/go/gen clients/typescript/src/gen; do
    [ -d "$fresh/$directory" ] || continue
    diff -r -q -x __init__.py -x __pycache__ -x py.typed "$fresh/$directory" "$directory" || stale=1
done
if [ "$stale" = 1 ]; then
    echo "stubs are stale: run 'make stubs' and commit the result" >&2
    exit 1
fi
echo "stubs are fresh"
