"""What each cell showed when it last ran on this machine: a file in the user's cache.

CI runs in a fresh clone and commits nothing, so the next run reads here which cells ran last, and how long they take
on this machine. A file that is damaged, or cannot be written, is as good as none.
"""
import json
import os
import re
import xml.etree.ElementTree


def path():
    if os.name == "nt":
        folder = os.environ.get("LOCALAPPDATA")
    else:
        folder = os.environ.get("XDG_CACHE_HOME")
    return os.path.join(folder or os.path.expanduser(os.path.join("~", ".cache")), "everstep", "matrix.json")


def read():
    """Returns {cell: {"when", "commit", "seconds", "passed", "failed", "files": {test file: seconds}}}."""
    try:
        with open(path(), encoding="utf-8") as file:
            return {name: values for name, values in json.load(file).items() if _is_sound(values)}
    except (OSError, ValueError, AttributeError):
        return {}


def _is_sound(values):
    return isinstance(values, dict) and isinstance(values.get("when"), str) and all(
        isinstance(number, (int, float)) for number in
        [values.get("seconds"), values.get("failed"), *values.get("files", {}).values()])


def write(name, values):
    """Writes what a cell showed, beside what other runs wrote."""
    shown = dict(read(), **{name: values})
    new = "%s.%d" % (path(), os.getpid())
    try:
        os.makedirs(os.path.dirname(new), exist_ok=True)
        with open(new, "w", encoding="utf-8") as file:
            json.dump(shown, file, indent=1, sort_keys=True)
        os.replace(new, path())
    except OSError:
        pass


def seconds_of_files(path):
    """Returns {test file: whole seconds} of a cell, from what pytest wrote, without files that take none."""
    seconds = {}
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase") if os.path.exists(path) else ():
        module = re.search(r"test_\w+", case.get("classname", ""))
        if module:
            seconds[module.group()] = seconds.get(module.group(), 0) + float(case.get("time", 0))
    return {name: round(value) for name, value in seconds.items() if round(value)}


def seconds(name, past, shown):
    """Returns the seconds that a cell took when it last went well: here or, if it never did, anywhere."""
    for values in (past.get(name), shown.get(name)):
        if values and not values["failed"]:
            return values["seconds"]
    return None


def proven(name, past, shown):
    """Returns the day of a cell's last run, "" if that failed or never was."""
    last = max((each[name] for each in (past, shown) if name in each), key=lambda values: values["when"], default=None)
    return "" if last is None or last["failed"] else last["when"][:10]
