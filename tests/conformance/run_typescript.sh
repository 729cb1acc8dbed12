#!/bin/sh
# Runs the scenarios through the TypeScript client. Arguments as for the other runners (README.md):
# [--scenarios DIRECTORY] [--out DIRECTORY] [--profile NAME] [SCENARIO...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
client=$here/../../clients/typescript
[ -d "$client/node_modules" ] || npm --prefix "$client" install --silent --ignore-scripts >&2
npm --prefix "$client" run --silent compile >&2
exec node "$client/build/conformance/main.js" --scenarios "$here/scenarios" "$@"
