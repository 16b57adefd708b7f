"""Print how large the project is: lines of code, chapters, words, functions called once, the largest modules.

python tools/measure.py [folder]
"""
import ast
import collections
import io
import json
import re
import sys
import tokenize
from pathlib import Path

SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Return the number of lines with code: no blank line, comment or docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and ast.get_docstring(node, clean=False) is not None):
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in SKIPPED
             for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - documented)


def main(root: Path) -> None:
    """Print the figures of a checkout."""
    sizes = {folder: {path: code_lines(path.read_text(encoding="utf-8"))
                      for path in sorted((root / folder).rglob("*.py")) if path.name != "_modidx.py"}
             for folder in ("sched_lab", "studies", "tests", "tools", "_ext", "benchmarks")}
    for folder, files in sizes.items():
        if files:
            print(f"{folder}: {sum(files.values()):,} lines of code in {len(files)} files")
    notebooks = sorted((root / "nbs").glob("*.ipynb"))
    words = {path.stem: sum(len("".join(cell["source"]).split()) for cell in
                            json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "markdown")
             for path in notebooks}
    further = re.findall(r"nbs/(\w+)", (root / "_toc.yml").read_text(encoding="utf-8").partition("Further results")[2])
    core = sum(words.values()) - sum(words[name] for name in further)
    print(f"chapters: {len(words)}, words in their text: {sum(words.values()):,}; without further results: "
          f"{len(words) - len(further)}, {core:,}")
    package = "\n".join(path.read_text(encoding="utf-8") for path in sizes["sched_lab"])
    uses = collections.Counter(re.findall(r"[A-Za-z_]\w*", package))
    functions = re.findall(r"^def (\w+)", package, re.M)
    once = sum(uses[name] <= 2 for name in functions)
    records = len(re.findall(r"^class \w+\(NamedTuple\)|^@dataclass", package, re.M))
    print(f"module-level functions: {len(functions):,}, named at most once beside their definition: {once:,} "
          f"({100 * once / len(functions):.0f} %); records: {records}")
    largest = sorted(sizes["sched_lab"].items(), key=lambda item: -item[1])[:10]
    print("largest modules: " + ", ".join(f"{path.relative_to(root)} {lines}" for path, lines in largest))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
