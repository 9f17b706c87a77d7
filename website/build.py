"""Builds the site: python website/build.py [--to FOLDER] [--keep-curves FILE]

Sphinx with furo and MyST: the pages of docs/ are read as they are, warnings are errors, search is a script without a
server, and nothing is loaded from a network. The API reference and the gallery are made from the imported package.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import api_reference  # noqa: E402
import check_site  # noqa: E402
import pages  # noqa: E402

import everstep  # noqa: E402

ACCESSIBLE = (
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="formulas">', '<div class="formulas" tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'),
)
# What most bytes of large tables are; and of all pages: unused icons, and what SVG inside of HTML needs not.
SMALLER = (
    (r'<symbol id="svg-(?:pencil|eye)"(?s:.*?)</symbol>\n', ""),
    (r'<svg xmlns="http://www.w3.org/2000/svg"', "<svg"),
    (r'\s+class="(?:feather|icon)-[^"]*"', ""),
    (r'<span class="[npw]">([^<]*)</span>', r"\1"),  # names, punctuation, blanks: as other text
    (r"<(t[dh])([^>]*)><p>([^<]*)</p></", r"<\1\2>\3</"),
    (r'<tr class="row-(?:odd|even)">', "<tr>"),
    # Classes that no style and no script asks for.
    (r'class="reference internal"', 'class="reference"'),
    (r'class="docutils literal notranslate"', 'class="literal notranslate"'),
    (r'<(t[dh])([^>]*) class="text-right"', r'<\1\2 class="r"'),
    (r"\n(</?t[dhr])", r"\1"),
    (r'<td class="r"></td>', "<td></td>"),
    (r"</td>(?=<td|</tr>)", ""),  # HTML closes a cell by itself: https://html.spec.whatwg.org/#optional-tags
    (r'<span class="pre">([^<]*)</span>', r"\1"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", default=os.path.join(pages.ROOT, "build", "site"), help="the folder of the site")
    parser.add_argument("--keep-curves", metavar="FILE", help="where drawn curves are kept for the next build")
    options = parser.parse_args()
    pictures = {}
    if options.keep_curves and os.path.exists(options.keep_curves):
        with open(options.keep_curves) as file:
            pictures = json.load(file)
    with tempfile.TemporaryDirectory() as sources:
        pages.write(sources, pictures)
        shutil.copy(os.path.join(HERE, "conf.py"), sources)
        if options.keep_curves:
            with open(options.keep_curves, "w") as file:
                json.dump(pictures, file)
        shutil.rmtree(options.to, ignore_errors=True)
        subprocess.check_call([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "html", "-d",
                               os.path.join(sources, ".doctrees"), sources, options.to])
    finish(options.to)
    wrong = check_site.faults(options.to)
    summary = "{}: {} pages, {:.1f} MB without pictures; links lead somewhere, nothing is loaded from a network"
    print("\n".join(wrong) or summary.format(
        options.to, len(check_site.html_pages(options.to)), check_site.size(options.to) / 1e6))
    return 1 if wrong else 0


def finish(folder):
    """Removes what no reader needs, and makes what scrolls accessible by keyboard."""
    shutil.rmtree(os.path.join(folder, "_sources"), ignore_errors=True)
    for path in check_site.files(folder):
        if path.endswith((".map", ".buildinfo", "objects.inv", ".pot")):
            os.remove(path)
        elif path.endswith(".html"):
            text = check_site.read(path)
            for old, new in ACCESSIBLE:
                text = text.replace(old, new)
            for old, new in SMALLER:
                text = re.sub(old, new, text)
            text = linked(text, os.path.relpath(path, folder))
            parts = re.split(r"(<pre.*?</pre>)", text, flags=re.S)
            parts[::2] = [re.sub(r"\n\s+(?=<)", "\n", part) for part in parts[::2]]
            with open(path, "w", encoding="utf-8") as file:
                file.write("".join(parts))


def linked(text, page):
    """Returns a page on which the names of everstep in its text lead to the API reference, or to their own page."""
    up = "../" * page.count(os.sep)

    def link(match):
        if match.group("name") is None:
            return match.group()
        name = match.group("name").partition(".optimizers.")[2]
        if name and name in everstep.optimizers.__all__:
            address = "{}definitions/{}.html".format(up, name.lower())
        elif match.group("name").partition(".")[2] in api_reference.names() and os.path.basename(page) != "api.html":
            address = "{}docs/api.html#{}".format(up, api_reference.anchor(match.group("name")))
        else:
            return match.group()
        return '<a href="{}">{}</a>'.format(address, match.group())

    code = r'<code class="literal notranslate">(?P<name>everstep\.[\w.]+)(?:\(\))?</code>'
    return re.sub(r"<(a|h\d|title|pre|script)\b.*?</\1>|" + code, link, text, flags=re.S)


if __name__ == "__main__":
    sys.exit(main())
