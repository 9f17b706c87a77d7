"""Tries the built site in Chromium: python website/browser_check.py [--required] [SITE] [FOLDER FOR PICTURES]

Every page fits a desktop and a phone, with code that can be read or scrolled. On each kind of page axe-core finds
nothing serious. The map, the search and the chooser work; the chooser is asked for every combination that it offers.
Without Chromium nothing is tried, and a line says so; with --required that is a fault.
"""
import argparse
import itertools
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "matrix")]

import check_site  # noqa: E402

import browser  # noqa: E402
import spoken_apis  # noqa: E402

DESKTOP, PHONE = 1280, 390
COLUMNS = 120  # of code that a desktop shows whole; the longest line of this project's code
# One page of each kind: the front page, an overview with tables, a tutorial, definitions, an example, wide tables,
# the record of the tests, the API reference, the gallery, the chooser and the map.
KINDS = ("index", "README", "docs/keras3", "docs/schedules", "definitions/index", "definitions/adam",
         "definitions/clip", "examples/bert_to_torch", "docs/optimizers", "matrix/record/proof", "docs/api", "which",
         "map", "search")
# axe-core takes long for these: once is enough, since the others have all that they have.
LARGE = ("docs/optimizers", "matrix/record/proof", "docs/api", "map")
BY_THE_EYE = ("index", "README", "definitions/index", "definitions/adam", "which", "map", "docs/api")
# What of a page is wider than its place. A block of code may be if one can scroll it, also with the keyboard.
WIDTHS = """(columns => {
  const content = document.querySelector('.content'), wrong = [];
  if (document.documentElement.scrollWidth > innerWidth) { wrong.push('the page is wider than the window'); }
  if (content.scrollWidth > content.clientWidth + 1) { wrong.push('the text is wider than its column'); }
  for (const each of document.querySelectorAll('[role=main] pre, [role=main] .table-wrapper, .formulas')) {
    if (each.scrollWidth <= each.clientWidth) { continue; }
    const text = each.innerText.replace(/[\\ud800-\\udfff]/g, '?');
    const longest = Math.max(...text.split('\\n').map(line => line.length));
    const scrolls = /auto|scroll/.test(getComputedStyle(each).overflowX) && each.tabIndex === 0;
    if (!scrolls) { wrong.push('is cut off and does not scroll: ' + text.slice(0, 60)); }
    if (each.matches('pre') && longest <= columns) { wrong.push(longest + ' columns are cut: ' + text.slice(0, 60)); }
  }
  return wrong; })(%d)"""
# Asks the chooser for every combination of its options with one Python. Returns how many there are, and each different
# answer once, with the choices that decide it.
WALK = """(() => {
  const form = document.querySelector('#which-api form'), data = window.EVERSTEP_APIS, ask = window.everstepAnswer;
  const options = name => [...form.elements[name].options].map(each => each.value);
  const names = ['tensorflow', 'keras', 'tf_keras', 'torch', 'optax'], seen = new Map(), notes = {};
  let count = 0;
  const walk = (index, versions) => {
    if (index < names.length) {
      for (const value of options(names[index])) {
        walk(index + 1, value === 'not installed' ? versions : {...versions, [names[index]]: value});
      }
      return;
    }
    for (const backend of options('backend')) {
      count += 1;
      const said = ask(data, versions, backend);
      const modules = said.found.map(each => each.api.module);
      const key = JSON.stringify(['python'].concat(names).map(name => versions[name]).concat(backend === 'tensorflow'));
      if (!(key in notes)) { notes[key] = [said.notes.length, modules]; }
      for (const each of said.found) {
        const decides = ask.deciding(each.api, backend);
        const row = [each.api.module, each.api.target, each.cell && each.cell.name, each.differences,
                     Object.fromEntries(decides.map(name => [name, versions[name]])), backend];
        seen.set(JSON.stringify(row), row);
      }
    }
  };
  walk(0, {python: %s});
  return {count, rows: [...seen.values()], notes: Object.entries(notes)}; })()"""
PYTHONS = "[...document.querySelectorAll('[name=python] option')].map(each => each.value)"


def minor(version):
    return ".".join(version.split(".")[:2])


def chooser_faults(page):
    """Yields what the chooser answers wrongly, of all combinations that it offers."""
    data = page.value("window.EVERSTEP_APIS")
    cells = {cell["name"]: cell for cell in data["cells"]}
    walks = [page.value(WALK % json.dumps(python)) for python in page.value(PYTHONS)]
    if sum(walked["count"] for walked in walks) < 10000:
        yield "the chooser offers only {} combinations".format(sum(walked["count"] for walked in walks))
    for walked in walks:
        for row in walked["rows"]:
            yield from answer_faults(cells, *row)
        for key, (notes, modules) in walked["notes"]:
            yield from module_faults(json.loads(key), notes, modules)


def answer_faults(cells, module, target, name, differences, chosen, backend):
    """Yields what is wrong with the cell that the chooser names for a module, and with the differences it tells."""
    where = "chooser, {} with {} ({}): ".format(module, chosen, backend)
    same = [cell for cell in cells.values() if cell["modules"].get(module) == target and all(
        minor(cell["versions"].get(key, "0")) == version for key, version in chosen.items())
        and (target != "keras3" or backend in backends(cell))]
    if same and differences:
        yield where + "{} has these versions, not {}".format(same[0]["name"], name)
    if name is None:
        if any(cell["modules"].get(module) == target and backend in backends(cell) for cell in cells.values()):
            yield where + "no test, though there is one"
        return
    cell = cells[name]
    other = [key for key, version in chosen.items() if minor(cell["versions"].get(key, "0")) != version]
    if cell["modules"].get(module) != target or len(other) != len(differences):
        yield where + "{} differs in {}, it says {}".format(name, other, differences)
    if target == "keras3" and backend not in backends(cell):
        yield where + "{} runs on another backend".format(name)


def backends(cell):
    return [name for name in ("tensorflow", "torch", "jax") if name in cell["versions"]][:1]


def module_faults(choices, notes, modules):
    """Yields what is wrong with the modules that the chooser names for (versions ..., Keras 3 runs on TensorFlow)."""
    names = ("python", "tensorflow", "keras", "tf_keras", "torch", "optax")
    versions = {name: version for name, version in zip(names, choices) if version}
    tensorflow = versions.get("tensorflow")
    impossible = tensorflow and not any(
        spoken_apis.number(first) <= spoken_apis.number(tensorflow) <= spoken_apis.number(last)
        and versions["python"] in pythons.split() for first, last, pythons in spoken_apis.PYTHONS)
    keras = spoken_apis.number(versions.get("keras", "0"))
    needs = "keras" in versions and (keras < (3,) or choices[-1]) or "tf_keras" in versions
    expected = dict(versions, numpy="2")
    if impossible or not tensorflow:
        gone = ["tensorflow", "tf_keras"] + ["keras"] * (keras < (3,) or choices[-1])
        expected = {name: version for name, version in expected.items() if name not in gone}
    # A minor version stands for its newest release: Keras 2.0 for 2.0.9.
    expected = {name: version + ".99" if version.count(".") == 1 else version for name, version in expected.items()}
    if list(spoken_apis.spoken(expected)) != modules:
        yield "chooser, {}: {} in place of {}".format(choices, modules, list(spoken_apis.spoken(expected)))
    warned = bool(impossible or needs and not tensorflow or keras >= (3,) and tensorflow
                  and spoken_apis.number(tensorflow) < (2, 16))
    if warned != bool(notes):
        yield "chooser, {}: {} notes".format(choices, notes)


def choose(page, name, value):
    page.value("(() => {{ const each = document.querySelector('[name={}]'); each.value = {}; each.dispatchEvent("
               "new Event('change', {{bubbles: true}})); }})()".format(name, json.dumps(value)))


def paste(page, text):
    page.value("(() => {{ const each = document.querySelector('textarea'); each.value = {}; each.dispatchEvent("
               "new Event('input', {{bubbles: true}})); }})()".format(json.dumps(text)))


def chooser_pages(open_page):
    """Yields (page, what it has to say, whether it does) of the chooser's page."""
    page = open_page("which")
    said = lambda: page.texts(".answer")[0]  # noqa: E731
    yield page, "TF 2.15 has new-style Keras", "tf.keras: the new-style optimizers" in said()
    yield page, "NumPy for Python 3.11 was tested on 3.11", "py37" not in said() and "Nearest" not in said()
    for name, version in (("tensorflow", "1.15"), ("python", "3.7"), ("keras", "2.3")):
        choose(page, name, version)
    yield page, "TF 1.15 with Keras 2.3", all(each in said() for each in (
        "tf.train: ", "tf.keras: OptimizerV2", "keras: the first optimizers", "py37-tf1.15-k2.3"))
    choose(page, "python", "3.13")
    yield page, "TF 1.15 is not for Python 3.13", "TensorFlow 1.15 cannot be installed on Python 3.13" in said()
    paste(page, json.dumps({"everstep": "0.1.0", "packages": [
        {"name": "python", "version": "3.13.0"}, {"name": "keras", "version": "3.15.1"},
        {"name": "keras runs on", "version": "jax"}, {"name": "tensorflow", "version": None}]}))
    yield page, "Keras 3 on JAX", "keras: the optimizers of Keras 3" in said() and "py313-k3jax" in said() and \
        "tf.keras" not in said()
    paste(page, "no JSON")
    yield page, "nonsense is told", "not what everstep doctor" in said()


def map_pages(open_page):
    """Yields (page, what it has to do, whether it does) of the map's page."""
    page = open_page("map")
    squares = lambda: page.value("document.querySelectorAll('#parity-map td').length")  # noqa: E731
    details = lambda: page.texts(".details")[0]  # noqa: E731
    every = squares()
    yield page, "the map has squares", every > 1000
    page.move('td[aria-label^="AdamW in py39-tf2.10:"]')
    yield page, "hovering shows the figures", "AdamW in py39-tf2.10:" in details() and "tensorflow 2.10.1" in details()
    page.value("document.querySelector('#parity-map td[tabindex=\"0\"]').focus()")
    before = details()
    page.press("ArrowRight", 39)
    page.press("ArrowDown", 40)
    yield page, "arrow keys move to another square", details() != before
    choose(page, "api", "get_updates")
    some = squares()
    yield page, "a filter by API leaves fewer", 0 < some < every and page.value(
        "document.querySelectorAll('td[aria-label*=\"py39-tf2.10:\"]').length") == 0
    choose(page, "rows", "Adagrad")
    yield page, "a filter by definitions leaves fewer", 0 < squares() < some


def search_pages(open_page):
    page = open_page("search.html?q=catch_up")
    page.value("new Promise(done => { const look = () => document.querySelector('#search-results li a') ? done(1) : "
               "setTimeout(look, 50); look(); })")
    yield page, "search finds the page on sparse gradients", "sparse" in page.texts("#search-results")[0].lower()


def faults(site, pictures=None):
    """Returns what is wrong with a site in Chromium, a line for each fault."""
    found = []
    with browser.Browser() as chromium:
        def open_page(name, **size):
            name = name if ".html" in name else name + ".html"
            return chromium.open(os.path.join(site, name), **size)

        for path in check_site.html_pages(site):
            name, page = os.path.relpath(path, site), chromium.open(path, width=DESKTOP)
            found += ["{} at {} px: {}".format(name, DESKTOP, each) for each in page.value(WIDTHS % COLUMNS)]
            page.send("Emulation.setDeviceMetricsOverride", width=PHONE, height=844, deviceScaleFactor=1, mobile=True)
            found += ["{} at {} px: {}".format(name, PHONE, each) for each in page.value(WIDTHS % 0)]
            found += ["{}: {}".format(name, each) for each in page.faults]
            page.close()
        for name, (width, dark) in itertools.product(KINDS, ((DESKTOP, False), (DESKTOP, True), (PHONE, False))):
            page = open_page(name, width=width, dark=dark)
            where = "{} at {} px{}".format(name, width, ", dark" * dark)
            if browser.axe() is not None and (name not in LARGE or (width, dark) == (DESKTOP, False)):
                found += ["{}: {}".format(where, each) for each in page.inaccessible()]
            if pictures and name in BY_THE_EYE:
                os.makedirs(pictures, exist_ok=True)
                file = "{}-{}{}.png".format(name.replace("/", "-"), width, "-dark" * dark)
                page.picture(os.path.join(pictures, file))
            page.close()
        for page, what, holds in itertools.chain.from_iterable(
                pages(open_page) for pages in (chooser_pages, map_pages, search_pages)):
            found += ([] if holds else ["not so: " + what]) + page.faults
        found += list(chooser_faults(open_page("which")))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", nargs="?", default=os.path.join(ROOT, "build", "site"))
    parser.add_argument("pictures", nargs="?", help="a folder for pictures of some pages")
    parser.add_argument("--required", action="store_true", help="no Chromium or no axe-core is a fault")
    options = parser.parse_args()
    lacks = browser.NEEDED if browser.CHROMIUM is None else None if browser.axe() else "no axe-core here: " \
        "pip install --no-deps axe-playwright-python"
    if lacks:
        print("not tried in a browser: " + lacks if browser.CHROMIUM is None else "accessibility not tried: " + lacks)
        if options.required or browser.CHROMIUM is None:
            return int(options.required)
    wrong = faults(options.site, options.pictures)
    with_axe = "" if lacks else "{} kinds of pages with axe-core, ".format(len(KINDS))
    print("\n".join(wrong) or "{}: {} pages at {} and {} px, {}every combination of the chooser".format(
        options.site, len(check_site.html_pages(options.site)), DESKTOP, PHONE, with_axe))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
