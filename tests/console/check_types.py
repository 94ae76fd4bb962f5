"""Checks the types of the console's modules: `python check_types.py NODE_MODULES`.

Lays the modules out beside what the compiler needs and a browser does not (the types of the vendored
files, which come from their packages, and those of the API, which come from the OpenAPI file) and runs
`tsc --noEmit --checkJs --strict` on them. Changes nothing outside `target/console`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import contract

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VENDORED = {
    "preact": 'export * from "preact";\n',
    "hooks": 'export * from "preact/hooks";\n',
    "htm": 'export { default } from "htm";\n',
}


def lay_out(modules, place):
    shutil.rmtree(place, ignore_errors=True)
    (place / "vendor").mkdir(parents=True)
    for source in (ROOT / "console").glob("*.js"):
        shutil.copy(source, place)
    for name, text in VENDORED.items():
        (place / "vendor" / f"{name}.d.ts").write_text(text)
    (place / "shapes.d.ts").write_text(contract.types())
    paths = {
        "preact": [f"{modules}/preact/src/index.d.ts"],
        "preact/hooks": [f"{modules}/preact/hooks/src/index.d.ts"],
        "htm": [f"{modules}/htm/dist/htm.d.ts"],
    }
    settings = {
        "extends": str(HERE / "tsconfig.json"),
        "compilerOptions": {"paths": paths},
        "include": ["*.js", "*.d.ts"],
    }
    (place / "tsconfig.json").write_text(json.dumps(settings, indent=2))


def main():
    modules = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "node_modules").resolve()
    place = ROOT / "target/console/types"
    lay_out(modules, place)
    return subprocess.run([modules / ".bin/tsc", "-p", place]).returncode


if __name__ == "__main__":
    sys.exit(main())
