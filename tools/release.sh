#!/usr/bin/env bash
# Builds and checks what is published, in dist/, and says what a person has to do. Publishes nothing.
#
# tools/release.sh PYTHON...: the wheel is installed for each of them, the sdist for the first.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_QUIET=2 PIP_DISABLE_PIP_VERSION_CHECK=1 XDG_CACHE_HOME=$work/cache
todo=()

[ $# -gt 0 ] || { echo "name the Pythons to install for" >&2; exit 2; }
"$1" -m venv "$work/build"
"$work/build/bin/pip" install 'hatchling>=1.27' twine 'readme-renderer[md]' py-rattler-build
rm -rf dist
"$work/build/bin/hatchling" build -d dist >/dev/null
"$work/build/bin/twine" --no-color check --strict dist/*
"$work/build/bin/python" -m readme_renderer README.md >/dev/null
wheel=$(echo dist/*-py3-none-any.whl) # pure Python
sdist=$(echo dist/*.tar.gz)
version=$(basename "$wheel" | cut -d- -f2)
compiled=$("$1" -m zipfile -l "$wheel" | grep -E '\.(so|pyd|dylib|dll) ' || :)
[ -z "$compiled" ] || { echo "compiled parts in the wheel: $compiled" >&2; exit 1; }

install() { # NAME PYTHON FILE: into an environment of its own, and explain a dump there
    "$2" -m venv "$work/$1"
    "$work/$1/bin/pip" install "$3"
    (
        cd "$work" # outside of the checkout
        [ "$("$work/$1/bin/fusionscope" --version)" = "fusionscope, version $version" ]
        "$work/$1/bin/fusionscope" explain "$OLDPWD/samples/dumps/h100/concatenate" >"$1.txt"
    )
    grep -q pf-negative "$work/$1.txt"
    echo "$(basename "$3") works with $("$2" --version)"
}

number=0
for python in "$@"; do
    number=$((number + 1))
    install "wheel-$number" "$python" "$wheel"
    cmp "$work/wheel-$number.txt" "$work/wheel-1.txt"
done
install sdist "$1" "$sdist"
cmp "$work/sdist.txt" "$work/wheel-1.txt"

"$work/build/bin/python" - "$version" <<'END'
import sys

import rattler_build

recipe = rattler_build.Stage0Recipe.from_file("packaging/conda/recipe.yaml")
variants = rattler_build.VariantConfig({"python_min": ["3.11"]})
(rendered,) = recipe.render(variants, rattler_build.RenderConfig())
package = rendered.recipe.package
assert (package.name, package.version) == ("fusionscope", sys.argv[1]), package
print(f"packaging/conda/recipe.yaml renders as {package.name} {package.version}")
END

[ -z "$(git status --porcelain)" ] || todo+=("commit what git status shows, and build again")
grep -q "^## \[$version\] - [0-9]" CHANGELOG.md || todo+=("date $version in CHANGELOG.md")
[ "$(git tag --points-at HEAD)" = "v$version" ] || todo+=("git tag v$version, and push the tag")
todo+=(
    "make everything, on the commit of the tag"
    "give README's relative links the address of the repository: an index shows it without the files"
    "twine upload dist/*"
    "the feedstock: the sdist's address and sha256 $(sha256sum "$sdist" | cut -d' ' -f1),"
    "  a homepage and the maintainers in packaging/conda/recipe.yaml; conda-smithy recipe-lint"
)
echo "To do for $version:"
printf '  %s\n' "${todo[@]}"
