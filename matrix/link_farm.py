"""Links api/, compat/ and optimizers/ into .dev/ as the installed package, for tools that ignore setup.cfg's map."""
import pathlib

root = pathlib.Path(__file__).resolve().parent.parent
package = root / ".dev" / "everstep"
package.mkdir(parents=True, exist_ok=True)
for old in package.iterdir():
    old.unlink()
for new in [root / "compat", root / "optimizers", *(root / "api").iterdir()]:
    (package / new.name).symlink_to(new)
