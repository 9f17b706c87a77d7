"""Draws the rooms of the installed package, with the number of imports along each arrow; --mermaid writes Mermaid text.

    PYTHONPATH=.dev python matrix/rooms.py

Exits with 1, and names the modules, if an import points up or modules import each other in a circle.
"""
import ast
import collections
import glob
import importlib.util
import os
import sys

# From top to bottom. + separates rooms on the same level.
ORDER = """testing > api > compat.extras > compat.ways > compat.state > compat.checkpoints > compat.files
    > compat.port > compat.stock > compat.targets > compat.engine
    > compat.backends > compat.rules > optimizers + optimizers.wrappers > optimizers.contract > errors"""
LEVELS = {room.strip(): level for level, rooms in enumerate(ORDER.split(">")) for room in rooms.split("+")}


def imports(path, modules):
    """Yields the modules that a file imports, once for each import; inside functions too."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names} & modules or [node.module]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        yield from (name for name in names if name in modules)


def room_of(module):
    """Returns a module's package. Modules at the top belong to the API, except for errors."""
    name = module.partition(".")[2]
    inside = [room for room in LEVELS if f"{name}.".startswith(f"{room}.")]
    return max(inside, key=len, default=name if name.startswith("compat") else "api")


def reached(graph, start):
    modules, waiting = set(), [start]
    while waiting:
        new = set(graph[waiting.pop()]) - modules
        modules, waiting = modules | new, waiting + list(new)
    return modules


def main():
    spec = importlib.util.find_spec("everstep")
    if spec is None:
        sys.exit("everstep is not installed here: run python matrix/link_farm.py, then with PYTHONPATH=.dev")
    top = os.path.dirname(os.path.dirname(spec.origin))
    paths = glob.glob(os.path.join(top, "everstep", "**", "*.py"), recursive=True)
    paths = {os.path.relpath(path, top)[:-3].replace(os.sep, ".").removesuffix(".__init__"): path for path in paths}
    graph = {name: list(imports(path, set(paths))) for name, path in sorted(paths.items())}
    pairs = sorted((name, other) for name in graph for other in graph[name])
    arrows = collections.Counter((room_of(a), room_of(b)) for a, b in pairs)
    files = collections.Counter(map(room_of, graph))
    for room in LEVELS:
        below = sorted((LEVELS.get(b, -1), b, count) for (a, b), count in arrows.items() if a == room != b)
        if "--mermaid" in sys.argv:
            print("" if LEVELS[room] else "graph TD\n", f'    {room}["{room}: {files[room]} files"]', sep="")
            print(*(f"    {room} -->|{count}| {other}\n" for _, other, count in below), sep="", end="")
        else:
            print(f"{room:20} {files[room]:3} files", *(f"-> {other} {count}" for _, other, count in below), sep="   ")
    wrong = {f"up: {a} imports {b}" for a, b in pairs if LEVELS.get(room_of(a), 99) > LEVELS.get(room_of(b), -1)}
    ahead = {name: reached(graph, name) for name in graph}
    wrong |= {"circle: " + ", ".join(b for b in sorted(ahead[a]) if a in ahead[b]) for a in graph if a in ahead[a]}
    sys.exit("\n".join(sorted(wrong)) or None)


if __name__ == "__main__":
    main()
