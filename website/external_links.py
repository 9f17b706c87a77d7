"""Follows the external links of all pages, and prints those that lead nowhere: python website/external_links.py"""
import concurrent.futures
import os
import re
import sys
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("", "docs", os.path.join("docs", "records"), "examples", "matrix", os.path.join("matrix", "record"),
           "website", "optimizers", os.path.join("optimizers", "wrappers"))
LINK = re.compile(r"https?://(?:\([^\s()]*\)|[^\s()>\"'`|\]])+")  # a DOI may have parentheses in it
REFUSING = (401, 403, 405, 429, 503)  # a page that is there and answers no program


def links(root=ROOT):
    """Returns {address: the first file with it}, of pages and definitions."""
    found = {}
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(root, folder)) if os.path.isdir(os.path.join(root, folder)) else []):
            if name.endswith((".md", ".py")) and not (folder == "website" and name.endswith(".py")):
                with open(os.path.join(root, folder, name), encoding="utf-8") as file:
                    for address in LINK.findall(file.read()):
                        found.setdefault(address.rstrip(".,;:"), os.path.join(folder, name))
    return found


def fault(address, timeout=30):
    """Returns why an address leads nowhere; None if it leads somewhere."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (a check of links)"})
    try:
        with urllib.request.urlopen(request, timeout=timeout):
            return None
    except urllib.error.HTTPError as error:
        return None if error.code in REFUSING else "HTTP {}".format(error.code)
    except (OSError, ValueError) as error:
        return str(error)


def main(addresses):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        faults = list(pool.map(fault, addresses))
    wrong = ["{}: {}: {}".format(addresses[address], address, why) for address, why in zip(addresses, faults) if why]
    print("\n".join(wrong + ["{} external links, {} lead nowhere".format(len(addresses), len(wrong))]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(links()))
