"""A release can be cut: versions agree, workflows call scripts that are there, the description has absolute links."""
from __future__ import absolute_import, division, print_function

import io
import os
import re
import runpy
import shutil
import sys
import threading

import pytest

import everstep

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKFLOWS = os.path.join(ROOT, ".github", "workflows")
pytestmark = pytest.mark.shared


def read(*path):
    with io.open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def test_versions_agree():
    for path, pattern in (("setup.cfg", r"^version = (.*)$"), ("CITATION.cff", r"^version: (.*)$"),
                          ("CHANGELOG.md", r"^## (\S+) \(")):
        assert re.search(pattern, read(path), re.M).group(1) == everstep.__version__, path


@pytest.mark.skipif(not os.path.isdir(WORKFLOWS), reason="a source distribution has no workflows")
def test_steps_of_workflows_call_scripts():
    scripts = set()
    for name in sorted(os.listdir(WORKFLOWS)):
        text = read(".github", "workflows", name)
        assert re.search(r"^permissions:\n  contents: read$", text, re.M), name
        for command in re.findall(r"- run: (.*)$", text, re.M):
            assert command.startswith((".ci/", "gh release create ")), command
            scripts.add(command.split()[0])
        for action in re.findall(r"uses: (\S+)", text):
            assert action.split("/")[0] in ("actions", "pypa"), action
    scripts.discard("gh")
    assert {".ci/quick", ".ci/full", ".ci/docs", ".ci/package", ".ci/links"} <= scripts
    for script in scripts:
        assert os.access(os.path.join(ROOT, script), os.X_OK), script
        assert script in read("docs", "release.md"), script


def description(folder, monkeypatch, **metadata):
    """Returns what setup.py gives as the description, with more metadata in setup.cfg."""
    for name in ("setup.py", "README.md"):
        shutil.copy(os.path.join(ROOT, name), str(folder))
    lines = "".join(u"\n{} = {}".format(*item) for item in metadata.items())
    (folder / "setup.cfg").write_text(read("setup.cfg").replace(u"\nname = everstep", u"\nname = everstep" + lines))
    given = {}
    setuptools = pytest.importorskip("setuptools")
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(folder / "setup.py"))
    return given["long_description"]


def test_links_of_the_description(tmp_path, monkeypatch):
    url = u"https://example.org/everstep"
    text = description(tmp_path, monkeypatch, url=url)
    assert "](" + url + "/blob/v" + everstep.__version__ + "/docs/from_native.md)" in text
    assert "](" + url + "/raw/v" + everstep.__version__ + "/examples/curves.png)" in text
    assert re.findall(r"\]\((?!https://|#)[^)]*\)", text) == [] and "<!--" not in text
    assert url not in description(tmp_path, monkeypatch)


@pytest.mark.skipif(sys.version_info < (3, 8), reason="a tool in modern Python")
def test_external_links_are_followed(monkeypatch):
    import http.server

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response({"/there": 200, "/refused": 403}.get(self.path, 404))
            self.end_headers()

        def log_message(self, *arguments):
            pass

    monkeypatch.syspath_prepend(os.path.join(ROOT, "website"))
    import external_links

    server = http.server.HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        home = "http://127.0.0.1:{}/".format(server.server_port)
        faults = [external_links.fault(home + name, 5) for name in ("there", "refused", "lost")]
        assert faults == [None, None, "HTTP 404"]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    addresses = external_links.links()
    assert "https://arxiv.org/abs/1412.6980" in addresses and len(addresses) > 50
    assert "https://doi.org/10.1016/0893-9659(89)90079-7" in addresses
    assert not any(address.count("(") != address.count(")") for address in addresses)
