"""Checks a built site: internal links and anchors lead somewhere, nothing is loaded from a network, it is small."""
import os
import re
import urllib.parse
from html.parser import HTMLParser

LARGEST = 8000000  # bytes, without pictures; half are the pages of definitions and those on Keras, torch and optax
PICTURES = (".png", ".svg", ".jpg", ".ico")
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, text):
        HTMLParser.__init__(self)
        self.links, self.anchors, self.loads = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(value for name, value in attributes.items() if name in ("id", "name") and value)
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        address = attributes.get(LOADING.get(tag))
        if address and attributes.get("rel") not in ("canonical", "author"):
            self.loads.append(address)


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
    for path in files(folder):
        if path.endswith(".css"):
            for address in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", read(path)):
                wrong.append("{}: loads {} from a network".format(os.path.relpath(path, folder), address))
    if size(folder) > LARGEST:
        wrong.append("{}: {} bytes, more than {}".format(folder, size(folder), LARGEST))
    return wrong
