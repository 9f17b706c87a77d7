"""Writes the sources of the site into a folder: docs/ and other pages as they are, and pages that are generated."""
import html
import json
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "matrix"))

import curves  # noqa: E402
import definition_pages  # noqa: E402

import cells  # noqa: E402
import notebooks  # noqa: E402
import parity_map  # noqa: E402
import proof  # noqa: E402
import spoken_apis  # noqa: E402
from everstep import optimizers  # noqa: E402
from everstep import show as describe  # noqa: E402
from everstep.compat.targets import detect  # noqa: E402

AS_THEY_ARE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", os.path.join("docs", "records"), "matrix",
               os.path.join("matrix", "record"), "examples", "api", os.path.join("website", "README.md"))
COMMENT = re.compile(r"^<!--.*?-->\n?", re.S | re.M)
LINK = re.compile(r"\]\((?!\w+:|#)([^()\s#]+)(#[^()\s]*)?\)")
BELOW = "## Notebooks\n"  # the heading of the gallery that its downloads follow
FAMILY_ORDER = ("gradient descent", "Adagrad", "Adam", "second order", "signs")


def write(folder, pictures):
    """Writes all sources into a folder that is empty.

    Args:
        pictures: `{definition: (SVG, caption)}` of descents; those that lack are drawn and added.
    """
    copy_pages(folder)
    for name, text in [("index.md", read(os.path.join(ROOT, "website", "index.md"))), ("map.md", map_page()),
                       ("tests.md", tests_page())]:
        put(folder, name, text)
    put(folder, "which.md", read(os.path.join(ROOT, "website", "which.md")))
    write_definitions(os.path.join(folder, "definitions"), pictures)
    static = os.path.join(folder, "_static")
    shutil.copytree(os.path.join(ROOT, "website", "static"), static)
    put(static, "map_data.js", "window.EVERSTEP_MAP = {};\n".format(compact(map_data())))
    put(static, "which_data.js", "window.EVERSTEP_APIS = {};\n".format(compact(which_data())))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def put(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def compact(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def copy_pages(folder):
    """Copies the pages that people write, and the pictures in them. Links to other files lose their address."""
    for start in AS_THEY_ARE:
        path = os.path.join(ROOT, start)
        names = [start] if os.path.isfile(path) else [os.path.join(start, name) for name in sorted(os.listdir(path))]
        for name in names:
            if name.endswith((".png", ".svg")):
                os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
                shutil.copy(os.path.join(ROOT, name), os.path.join(folder, name))
            elif name.endswith(".md"):
                put(folder, name, page_text(name))
    for name in notebooks.TUTORIALS:
        notebooks.write(notebooks.notebook(name), notebooks.path_of(name, os.path.join(folder, os.path.dirname(name))))


def with_downloads(text, name):
    """Returns a page with links to notebooks: a tutorial with its own, the gallery with all of them."""
    if name in notebooks.TUTORIALS:
        title, _, rest = text.partition("\n")
        return "{}\n\n{}\n{}".format(title, download("Download this page as a notebook", name, name), rest)
    if name != notebooks.GALLERY:
        return text
    titles = [read(os.path.join(ROOT, page)).partition("\n")[0].lstrip("# ") for page in notebooks.TUTORIALS]
    lines = ["* " + download(*each, start=name) for each in zip(titles, notebooks.TUTORIALS)]
    before, below, after = text.partition(BELOW)
    return before + below + "\n" + "\n".join(lines) + "\n" + after


def download(title, page, start):
    """Returns a link from the page `start` to the notebook of a page. Sphinx puts the file with the site."""
    return "{{download}}`{} <{}>`".format(
        title, notebooks.path_of(page, os.path.relpath(os.path.dirname(page), os.path.dirname(start))))


def page_text(name):
    """Returns a page without the comments that say where its blocks run, with links to notebooks."""
    text = with_downloads(COMMENT.sub("", read(os.path.join(ROOT, name))), name)
    text = text.replace("```mermaid\n", "```text\n")

    def link(match):
        target = os.path.normpath(os.path.join(os.path.dirname(name), match.group(1)))
        is_page = target.endswith((".md", ".png", ".svg"))
        return match.group() if is_page else "](project:#tests)" if target == "tests/test_battery.py" else "](#)"

    return re.sub(r"\[([^\]]*)\]\(#\)", r"\1", LINK.sub(link, text))


def write_definitions(folder, pictures):
    """Writes a page for each definition, and the gallery."""
    definitions = [getattr(optimizers, name) for name in optimizers.__all__]
    measured = proof.read()
    families = {}
    for definition in definitions:
        families.setdefault(definition.family, []).append(definition)
        if definition.family != "wrappers" and definition.__name__ not in pictures:
            pictures[definition.__name__] = curves.picture(definition.__name__)
        put(folder, definition.__name__.lower() + ".md", definition_pages.page(
            definition, pictures.get(definition.__name__), measured))
    order = sorted(families, key=lambda name: (name == "wrappers", FAMILY_ORDER.index(name) if name in FAMILY_ORDER
                                               else len(FAMILY_ORDER), name))
    lines = ["# Definitions", "", "All optimizers and wrappers of everstep: formula, arguments, slots, kernels, and "
             "how stock versions differ. Each optimizer shows how it descends in the same valley.", ""]
    for family in order:
        lines += ["## " + family[0].upper() + family[1:], "", '<div class="gallery">']
        for definition in families[family]:
            name = definition.__name__
            svg = pictures.get(name, ("", ""))[0]
            svg = svg.replace("valley)", name + ")").replace('id="valley"', 'id="%s"' % name)
            if any("levels" in line for line in lines):
                svg = svg.replace(curves.LEVELS, '<use href="#levels"/>')
            lines.append('<a class="card" href="{}.html"><b>{}</b><span>{}</span>{}</a>'.format(
                name.lower(), name, html.escape(describe.description(definition)),
                svg.replace(' role="img"', ' aria-hidden="true"')))
        lines += ["</div>", ""]
    put(folder, "index.md", "\n".join(lines) + "\n")


def map_data():
    """Returns the figures of the parity map for its script."""
    shown = proof.read()
    table = cells.read()
    across = [dict(name=name, family=parity_map.family(values["versions"]), when=values["when"],
                   commit=values["commit"], passed=values["passed"], failed=values["failed"], python=table[name].python,
                   holds=table[name].holds, versions={key: value for key, value in values["versions"].items() if value},
                   apis=sorted({api.target for api in spoken_apis.spoken(values["versions"]).values()}))
              for name, values in parity_map.columns(shown)]
    rows = []
    order = sorted(optimizers.__all__, key=lambda name: (getattr(optimizers, name).family == "wrappers", name.lower()))
    for name in order:
        figures = [[shown[cell["name"]]["worst"].get(name, {}).get(kind) for kind in parity_map.KINDS]
                   for cell in across]
        rows.append(dict(name=name, family=getattr(optimizers, name).family, figures=[
            values if any(value is not None for value in values) else 0 for values in figures]))
    return dict(cells=across, rows=rows, kinds=parity_map.KINDS, levels=parity_map.LEVELS, beyond=parity_map.BEYOND,
                unknown=parity_map.UNKNOWN, families=parity_map.FAMILIES,
                bounds=[parity_map.BOUNDS.get(kind, parity_map.BOUND) for kind in parity_map.KINDS])


def map_page():
    return read(os.path.join(ROOT, "website", "map.md")).replace("SUMMARY", parity_map.summary(proof.read()))


def which_data():
    """Returns what the page "Which optimizer API do I have?" knows."""
    shown, table = proof.read(), cells.read()
    targets = {}
    for target in detect.TARGETS + (detect.ARRAYS,):
        adapter_class = detect.load(target)
        targets[target.name] = dict(title=spoken_apis.TITLES[target.name],
                                    unsupported=[each.what for each in adapter_class.unsupported])
    tested = []
    for name, cell in table.items():
        values = shown.get(name)
        if values and cell.group != "clients" and cell.kind not in ("lint", "site") and values["versions"]:
            versions = {key: value for key, value in values["versions"].items() if value}
            tested.append(dict(
                name=name, versions=versions, holds=cell.holds, when=values["when"], passed=values["passed"],
                failed=values["failed"],
                modules={module: api.target for module, api in spoken_apis.spoken(versions).items()}))
    pythons = [dict(first=first, last=last, pythons=versions.split()) for first, last, versions in spoken_apis.PYTHONS]
    return dict(apis=[dict(api._asdict()) for api in spoken_apis.APIS], targets=targets, cells=tested, pythons=pythons)


def tests_page():
    """Returns the page with the source of the test that measures the map."""
    return ("(tests)=\n# How the map is measured\n\n`tests/test_battery.py` trains each definition on each API, and "
            "compares it with an oracle, `tests/oracle.py`. To run a case of the map:\n\n"
            "```sh\npython3 matrix/run.py --cell CELL -- tests/test_battery.py -k NAME\n```\n\n"
            "```text\n{}\n```\n".format(read(os.path.join(ROOT, "tests", "test_battery.py")).rstrip()))
