"""Packaging shim: every value comes from settings.ini (see pyproject.toml for tool settings)."""
import shlex
import shutil
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

here = Path(__file__).parent
cp = ConfigParser(delimiters=["="])
cp.read(here / "settings.ini", encoding="utf-8")
cfg = cp["DEFAULT"]
lib = cfg["lib_path"]
# what `sched-lab book` copies: BOOK_PARTS of sched_lab/cli.py
BOOK = ("nbs/*.ipynb", "studies/*.py", "figures/*.svg", "data/paper/*.csv", "data/results/**/*")


class BuildWithData(build_py):
    """Ship data/embedded inside the wheel as <package>/data, and the chapters as <package>/book.

    A checkout reads both where they are.
    """

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            data = Path(self.build_lib, lib, "data")
            shutil.copytree(here / "data" / "embedded", data, dirs_exist_ok=True)
            for part in BOOK:
                for path in filter(Path.is_file, here.glob(part)):
                    copy = Path(self.build_lib, lib, "book", path.relative_to(here))
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, copy)
            shutil.copytree(here / "_assets" / "widgets", data / "widgets", dirs_exist_ok=True)


def reqs(key: str) -> list[str]:
    return shlex.split(cfg.get(key, ""))


# what 'all' brings; the others need a GPU, or are for whoever changes us
ALL = ("charts", "solvers", "service", "traces", "parquet", "kubernetes", "widgets")
REST = ("gpu", "nvml", "paper", "book", "pdf", "lab")
extras = {name: reqs(f"{name}_requirements") for name in (*ALL, *REST)}
extras["all"] = sum((extras[name] for name in ALL), [])
# 'dev' is what `make` and CI install: all that the chapters, the tests and the book need,
# without a GPU
extras["dev"] = sum((extras[name] for name in ("all", "book", "pdf", "lab")),
                    reqs("dev_requirements"))

setup(
    version=cfg["version"],
    description=cfg["description"],
    author=cfg["author"],
    author_email=cfg["author_email"],
    keywords=cfg["keywords"].split(),
    url=cfg["git_url"],
    packages=find_packages(include=[lib, lib + ".*"]),
    package_data={lib: ["py.typed"], "": ["*.pyi"]},
    cmdclass={"build_py": BuildWithData},
    install_requires=reqs("requirements"),
    extras_require=extras,
    entry_points={"console_scripts": [f"sched-lab = {lib}.cli:main"],
                  "nbdev": [f"{lib}={lib}._modidx:d"]},
)
