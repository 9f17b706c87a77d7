"""A page in a real Chromium, for tests: it needs Chromium itself and no package.

    with Browser() as browser:
        page = browser.open("report.html", width=390)
        page.write("#query", "adam")
        assert page.value("document.querySelectorAll('tr:not([hidden])').length") == 3
        assert page.faults == [] and page.fits()

Commands go through Chromium's pipe: https://chromedevtools.github.io/devtools-protocol/
"""
import base64
import fcntl
import importlib.util
import json
import os
import pathlib
import select
import shutil
import signal
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
NEEDED = "no Chromium here: install it (https://packages.debian.org/chromium), or give its path in CHROMIUM"
FLAGS = ("--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run --disable-sync "
         "--disable-background-networking --disable-component-update --hide-scrollbars --remote-debugging-pipe").split()
SECONDS = 60  # that Chromium may take for an answer, on a busy machine
AXE_PACKAGE = "axe_playwright_python"  # it has axe-core in a file, and is installed without Playwright


def axe():
    """Returns the path of axe-core's script, or None: from the Python package that has it, or from npm's axe-core."""
    found = importlib.util.find_spec(AXE_PACKAGE)
    folders = [pathlib.Path(found.origin).parent] if found else []
    folders += [pathlib.Path(os.environ[name], more, "axe-core") for name, more in (
        ("NODE_MODULES", "node_modules"), ("NODE_PATH", "")) if os.environ.get(name)]
    return next((path for path in (folder / "axe.min.js" for folder in folders) if path.exists()), None)


class Browser:
    """A running Chromium with a profile of its own, which ends with the `with` block."""

    def __enter__(self):
        self.profile = tempfile.mkdtemp()
        self.answers, self.events, self.buffer, self.count = {}, [], b"", 0
        ours, theirs = [], []
        for k in (0, 1):  # Chromium reads from 3 and writes to 4; above 9 they cannot be in the way
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe()]
            theirs.append(ends[k])
            ours.append(ends[1 - k])
        self.writes, self.reads = ours
        self.pid = os.posix_spawn(
            CHROMIUM, [CHROMIUM, "--user-data-dir=" + self.profile] + FLAGS, dict(os.environ),
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs[0], 3), (os.POSIX_SPAWN_DUP2, theirs[1], 4),
                          (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                          (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
        for end in theirs:
            os.close(end)
        return self

    def __exit__(self, *error):
        try:
            self.send("Browser.close")
        finally:
            if not self._ended():
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            for end in (self.writes, self.reads):
                os.close(end)
            shutil.rmtree(self.profile, ignore_errors=True)

    def _ended(self):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return True
            time.sleep(0.05)
        return False

    def send(self, method, session=None, **parameters):
        """Sends a command and returns its result."""
        self.count += 1
        number = self.count
        message = dict(id=number, method=method, params=parameters, **({"sessionId": session} if session else {}))
        data = json.dumps(message).encode("utf-8") + b"\0"
        while data:
            data = data[os.write(self.writes, data):]
        self.until(lambda: number in self.answers)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError("{}: {}".format(method, answer["error"]["message"]))
        return answer["result"]

    def until(self, known):
        """Reads what Chromium says until `known()` is true."""
        end = time.monotonic() + SECONDS
        while not known():
            if not select.select([self.reads], [], [], max(0, end - time.monotonic()))[0]:
                raise RuntimeError("Chromium does not answer within {} seconds".format(SECONDS))
            data = os.read(self.reads, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended: {} {}".format(CHROMIUM, " ".join(FLAGS)))
            *whole, self.buffer = (self.buffer + data).split(b"\0")
            for message in map(json.loads, whole):
                if "id" in message:
                    self.answers[message["id"]] = message
                else:
                    self.events.append(message)

    def open(self, path, width=1280, height=900, dark=False):
        """Opens a file, with ?query and #anchor if given, in a new window of that size, in CSS pixels."""
        return Page(self, str(path), width, height, dark)


class Page:
    """One page. `faults` are errors on its console, exceptions of its scripts, and what it asks a network for."""

    def __init__(self, browser, path, width, height, dark):
        self.browser = browser
        self.width = width
        self.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(domain + ".enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        name, mark, rest = path.partition("?") if "?" in path else path.partition("#")
        self.send("Page.navigate", url=pathlib.Path(name).resolve().as_uri() + mark + rest)
        browser.until(lambda: self._events("Page.loadEventFired"))

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def _events(self, method):
        return [each["params"] for each in self.browser.events
                if each["method"] == method and each.get("sessionId") == self.session]

    @property
    def faults(self):
        self.value("0")  # what was said before this answer has been read
        texts = [each["entry"]["text"] for each in self._events("Log.entryAdded") if each["entry"]["level"] == "error"]
        texts += [str([value.get("value", value.get("description")) for value in each["args"]])
                  for each in self._events("Runtime.consoleAPICalled") if each["type"] in ("error", "assert")]
        texts += [each["exceptionDetails"].get("exception", {}).get("description", each["exceptionDetails"]["text"])
                  for each in self._events("Runtime.exceptionThrown")]
        urls = [each["request"]["url"] for each in self._events("Network.requestWillBeSent")]
        return texts + ["asks for " + url for url in urls if not url.startswith(("file:", "data:"))]

    def value(self, script):
        """Returns the value of a JavaScript expression; of a promise, what it is kept with."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError("{}: {}".format(script[:200], answer["exceptionDetails"]["exception"]["description"]))
        return answer["result"].get("value")

    def texts(self, selector):
        """Returns the text, as it is seen, of each element that a selector finds."""
        return self.value("[...document.querySelectorAll({})].map(each => each.innerText)".format(json.dumps(selector)))

    def move(self, selector):
        """Moves the mouse to the middle of the first element, and returns where that is."""
        place = self.value("(() => {{ const e = document.querySelector({}); e.scrollIntoView({{block: 'center'}});"
                           "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
                           .format(json.dumps(selector)))
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        return place

    def click(self, selector):
        x, y = self.move(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def write(self, selector, text):
        """Types a text into an input, in place of what is in it."""
        self.click(selector)
        self.value("document.querySelector({}).select()".format(json.dumps(selector)))
        self.press("Delete", 46)
        self.send("Input.insertText", text=text)

    def press(self, key, code):
        """Presses a key by its name and number, such as "Tab", 9."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def fits(self):
        """Returns whether the page is as wide as the window at most. A phone's innerWidth grows with the page."""
        return self.value("document.documentElement.scrollWidth") <= self.width

    def inaccessible(self):
        """Returns what axe-core finds that is serious or critical, as texts."""
        self.value(axe().read_text("utf-8") + "; 0")
        found = self.value("axe.run(document, {resultTypes: ['violations'], preload: false})"
                           ".then(result => result.violations)")
        return ["{impact}: {help}: {}".format([node["target"] for node in each["nodes"][:3]], **each)
                for each in found if each["impact"] in ("serious", "critical")]

    def picture(self, path):
        """Writes a PNG of the window."""
        data = base64.b64decode(self.send("Page.captureScreenshot")["data"])
        pathlib.Path(path).write_bytes(data)

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)
