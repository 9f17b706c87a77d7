"""Lays api/, compat/ and optimizers/ out in .dev/ as they are installed, for tools that do not read setup.cfg's map."""
import pathlib

root = pathlib.Path(__file__).resolve().parent.parent
package = root / ".dev" / "everstep"
package.mkdir(parents=True, exist_ok=True)
for old in package.iterdir():
    old.unlink()
for new in [root / "compat", root / "optimizers", *(root / "api").iterdir()]:
    (package / new.name).symlink_to(new)
