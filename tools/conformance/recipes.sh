#!/usr/bin/env bash
# Runs the commands that docs/ci.md recommends for CI, in their order, on a model of the tests:
#     tools/conformance/recipes.sh TARGET...
# They compile for an H100 as they stand; for a CPU where h100 is not among the targets.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$checkout/tests/capture/model.py" "$work"
cd "$work"
mapfile -t recipe < <(sed -n 's/^ *- \(run: \)\?\(fusionscope .*\)/\2/p' "$checkout/docs/ci.md")
[ "${#recipe[@]}" -ge 5 ]
for line in "${recipe[@]}"; do
    line=${line/model.py:step/model.py:twice --arg f32[64,128]}
    [ -f fusions.json ] || [[ $line = *capture* ]] ||
        fusionscope check dump --baseline fusions.json --update
    [[ $line != *capture* ]] || rm -rf dump
    [[ " $* " = *" h100 "* ]] || line=${line/--device h100/--device cpu}
    echo "\$ $line"
    bash -euo pipefail -c "$line"
done
python -c "import xml.etree.ElementTree as e; assert e.parse('fusions.xml').getroot().tag == 'testsuites'"
