"""Checks a built site: links lead somewhere, no network, Markdown is rendered, each tutorial has its notebook."""
import json
import os
import re
import sys
import urllib.parse
from html.parser import HTMLParser

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "matrix"))

from notebooks import GALLERY, TUTORIALS  # noqa: E402

LARGEST = 8000000  # bytes, without pictures; half are the pages of definitions and those on Keras, torch and optax
PICTURES = (".png", ".svg", ".jpg", ".ico")
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}


# The chapters of each definition's page, in this order; others stand between them.
CHAPTERS = ["Use", "Arguments", "Rule", "What it stores", "Sparse gradients and speed", "Accuracy", "Example"]
BLOCKS = ("p", "li", "td", "th", "h1", "h2", "h3", "h4", "dt", "dd")


class Page(HTMLParser):
    """The links, anchors and loaded files of a page, and its text.

    Attributes:
        blocks: [(tag, text)] of paragraphs, items, cells and headings; text in code and formulas is left out.
        code: [text] of blocks of code.
        arguments: [[name, ...]]: the bold code of each item in the list of a definition's arguments.
    """

    def __init__(self, text):
        HTMLParser.__init__(self)
        self.links, self.anchors, self.loads = [], set(), []
        self.blocks, self.code, self.arguments = [["", ""]], [], []
        self._inside = []  # open tags of which it matters
        self.feed(text)

    def handle_endtag(self, tag):
        if tag in BLOCKS:
            self.blocks.append(["", ""])
        tag = tag if tag != "ul" else next((each for each in self._inside[::-1] if each.startswith("ul")), tag)
        if tag in self._inside:
            del self._inside[len(self._inside) - 1 - self._inside[::-1].index(tag):]

    def handle_data(self, data):
        if "pre" in self._inside:
            self.code[-1] += data
        elif "code" in self._inside:
            if "strong" in self._inside and "ul.arguments" in self._inside:
                self.arguments[-1].append(data)
        elif not {"script", "style", "math", "svg", "title"}.intersection(self._inside):
            self.blocks[-1][1] += data

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in BLOCKS:
            self.blocks.append([tag, ""])
        if tag == "pre":
            self.code.append("")
        if tag in ("pre", "code", "strong", "script", "style", "math", "svg", "title"):
            self._inside.append(tag)
        if tag == "ul":
            self._inside.append("ul.arguments" if "arguments" in (attributes.get("class") or "") else "ul")
        if tag == "li" and self._inside[-1:] == ["ul.arguments"]:
            self.arguments.append([])
        self.anchors.update(value for name, value in attributes.items() if name in ("id", "name") and value)
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        address = attributes.get(LOADING.get(tag))
        if address and attributes.get("rel") not in ("canonical", "author"):
            self.loads.append(address)


def unrendered(page):
    """Yields what a page shows of Markdown that was not rendered."""
    for _, text in page.blocks:
        for mark in ("`", "**", "](", "<http"):
            if mark in text:
                yield "shows {!r}: {}".format(mark, " ".join(text.split())[:80])


def definition_faults(page):
    """Yields what is wrong with the page of a definition."""
    titles = [text.rstrip("\u00b6") for tag, text in page.blocks if tag == "h2"]
    if [title for title in titles if title in CHAPTERS] != CHAPTERS:
        yield "has the chapters {}".format(", ".join(titles) or "none")
    taken = re.findall(r"^    (?:\*, )?(\*{0,2}\w+)", page.code[0], re.M) if page.code else []
    if not taken or [[name] for name in taken] != page.arguments:
        yield "takes {} and lists {}".format(", ".join(taken), ", ".join(map("+".join, page.arguments)))
    for _, text in page.blocks:
        together = [name for name in taken if re.search(r"\b{}: ".format(re.escape(name)), text)]
        if len(together) > 1:
            yield "runs arguments together: {}".format(", ".join(together))
    if not any(".bind(keras)" in code for code in page.code):
        yield "has no line for Keras"


def notebook_faults(folder, known):
    """Yields a line for each tutorial whose page or gallery has no link to its notebook, or to a file that is none."""
    for page in TUTORIALS:
        for start in (page, GALLERY):
            start = start[:-len(".md")] + ".html"
            path = os.path.join(folder, *start.split("/"))
            name = os.path.basename(page)[:-len(".md")] + ".ipynb"
            found = [link for link in (known[path].links if path in known else []) if os.path.basename(link) == name]
            if path in known and not found:
                yield "{}: has no link to {}".format(start, name)
            for link in found:
                notebook = os.path.normpath(os.path.join(os.path.dirname(path), link))
                if os.path.isfile(notebook) and not json.loads(read(notebook)).get("cells"):
                    yield "{}: {} is an empty notebook".format(start, link)


def files(folder):
    return [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]


def html_pages(folder):
    return sorted(path for path in files(folder) if path.endswith(".html"))


def size(folder):
    """Returns the number of bytes of all files but pictures."""
    return sum(os.path.getsize(path) for path in files(folder) if not path.endswith(PICTURES))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def faults(folder):
    """Returns what is wrong with a site, a line for each fault."""
    known = {path: Page(read(path)) for path in html_pages(folder)}
    wrong = [] if known else ["{}: there is no page".format(folder)]
    for path, page in known.items():
        name = os.path.relpath(path, folder)
        wrong += ["{}: {}".format(name, fault) for fault in unrendered(page)]
        if name.startswith("definitions" + os.sep) and os.path.basename(name) != "index.html":
            wrong += ["{}: {}".format(name, fault) for fault in definition_faults(page)]
        for address in page.links + page.loads:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    wrong.append("{}: loads {} from a network".format(name, address))
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path))) \
                if parts.path else path
            if not os.path.isfile(target):
                wrong.append("{}: {} leads nowhere".format(name, address))
            anchor = urllib.parse.unquote(parts.fragment)
            if anchor and target in known and anchor not in known[target].anchors:
                wrong.append("{}: {} has no such anchor".format(name, address))
    wrong += notebook_faults(folder, known)
    for path in files(folder):
        if path.endswith(".css"):
            for address in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", read(path)):
                wrong.append("{}: loads {} from a network".format(os.path.relpath(path, folder), address))
    if size(folder) > LARGEST:
        wrong.append("{}: {} bytes, more than {}".format(folder, size(folder), LARGEST))
    return wrong
