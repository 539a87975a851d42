#!/bin/sh
# Installs the program `redline` from a release. The archive for this machine must have the checksum that SHA256SUMS of the release
# gives for it; otherwise nothing is installed. This finds damage on the way. It is no signature: an attacker who changes the archive can
# change SHA256SUMS beside it too.
#
#   sh install.sh [--from RELEASE] [--to DIRECTORY]
#
# RELEASE is an address (https://... or file://...) or a directory; DIRECTORY is ~/.local/bin unless given.
set -eu

# `cargo xtask dist --url URL` writes the address of the release here.
from=""
to="${HOME:+$HOME/.local/bin}"

fail() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '\nhint: %s\n' "$2" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

while [ $# -gt 0 ]; do
    case "$1" in
        --from | --to) [ -n "${2:-}" ] || fail "\`$1\` needs a value" ;;
        *) fail "unexpected argument \`$1\`" "sh install.sh [--from RELEASE] [--to DIRECTORY]" ;;
    esac
    if [ "$1" = --from ]; then from=$2; else to=$2; fi
    shift 2
done
[ -n "$from" ] || fail "no release given" "--from takes the address of a release, or a directory with its files"
[ -n "$to" ] || fail "HOME is not set" "--to takes the directory for the program"
from=${from%/}

[ "$(uname -s)" = Linux ] || fail "there is no archive for $(uname -s)" "build from source: see README.md"
case "$(uname -m)" in
    x86_64 | amd64) target=x86_64-unknown-linux-musl ;;
    aarch64 | arm64) target=aarch64-unknown-linux-musl ;;
    *) fail "there is no archive for $(uname -m)" "build from source: see README.md" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Puts a file of the release into the working folder.
fetch() {
    case "$from" in
        https://* | file://*)
            if have curl; then
                curl --proto '=https,file' --proto-redir '=https' --fail --silent --show-error --location --output "$work/$1" "$from/$1"
            elif have wget; then
                wget --quiet --output-document="$work/$1" "$from/$1"
            else
                fail "neither curl nor wget is there" "install one, or give --from a directory with the files of the release"
            fi
            ;;
        *://*) fail "\`$from\` is neither https:// nor file://" ;;
        *) cp "$from/$1" "$work/$1" ;;
    esac || fail "cannot get $1 from $from"
}

sum_of() {
    if have sha256sum; then sha256sum <"$1"; else shasum -a 256 <"$1"; fi | cut -d ' ' -f 1
}

fetch SHA256SUMS
line=$(grep -E "^[0-9a-f]{64}  redline-[0-9A-Za-z.+-]+-$target\.tar\.gz\$" "$work/SHA256SUMS") ||
    fail "SHA256SUMS of $from names no archive for $target"
[ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "SHA256SUMS of $from names several archives for $target"
expected=${line%% *}
archive=${line##* }
fetch "$archive"
found=$(sum_of "$work/$archive")
[ "$found" = "$expected" ] || fail "$archive has SHA-256 $found, but SHA256SUMS says $expected: nothing is installed"

tar -xzf "$work/$archive" -C "$work" "${archive%.tar.gz}/redline" || fail "$archive contains no program"
mkdir -p "$to" || fail "cannot create $to" "--to takes another directory"
# A running program cannot be overwritten, but its file can be replaced.
{ cp "$work/${archive%.tar.gz}/redline" "$to/.redline.new" && mv -f "$to/.redline.new" "$to/redline"; } ||
    fail "cannot write to $to" "--to takes another directory"
chmod 755 "$to/redline"
printf 'installed %s (%s)\n' "$to/redline" "${archive%.tar.gz}"
case ":${PATH:-}:" in
    *":$to:"*) ;;
    *) printf '%s is not in PATH\n' "$to" ;;
esac
