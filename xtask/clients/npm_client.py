"""The client of OpenAI for JavaScript: `npm/openai.mjs`, with the packages of `npm/package-lock.json`."""

import pathlib
import shutil
import subprocess

from server import ROOT

SOURCES = pathlib.Path(__file__).parent / "npm"
# npm installs beside package.json, and the packages may not lie among the sources.
FOLDER = ROOT / "target/clients/npm"


def check(url, _):
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise RuntimeError(f"`{program}` is not on PATH\n\nhint: install Node.js and npm (Debian: apt-get install nodejs npm)")
    install()
    shutil.copy(SOURCES / "openai.mjs", FOLDER)
    subprocess.run(["node", "openai.mjs", url], cwd=FOLDER, check=True)


def install():
    """Installs the packages, unless those of this lock file are installed."""
    wanted = (SOURCES / "package-lock.json").read_text()
    stamp = FOLDER / "installed.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / name, FOLDER)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=FOLDER, check=True)
    stamp.write_text(wanted)
