#!/bin/sh
# Signs the golden checkpoint llama-b with a new key, by sha256sum (coreutils) and minisign (Debian package of that name), and writes list,
# signature and public key into tests/golden/signed. Run it again when the checkpoint was made again. The secret key is thrown away.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cp -r llama-b "$work/model"
# Twice, as after a change: the second list names the first.
for _ in 1 2; do
    (cd "$work/model" && sha256sum -- * > ../list && mv ../list SHA256SUMS)
done
minisign -G -W -f -p signed/minisign.pub -s "$work/secret"
minisign -S -s "$work/secret" -m "$work/model/SHA256SUMS" -t 'golden checkpoint llama-b'
mv "$work/model/SHA256SUMS" "$work/model/SHA256SUMS.minisig" signed/
