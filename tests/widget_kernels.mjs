// Runs the kernels of a widget under node: one JSON request on each line of the input, one answer on each line of the output.
import fs from "node:fs";
import readline from "node:readline";
import vm from "node:vm";

const [folder, name] = process.argv.slice(2);
for (const file of ["loader.js", `${name}.kernels.js`]) vm.runInThisContext(fs.readFileSync(`${folder}/${file}`, "utf8"), file);
const { call } = await schedLab.open(name);
const words = (key, value) => typeof value !== "number" || Number.isFinite(value) ? value : String(value);
const number = (key, value) => value === "Infinity" ? Infinity : value;
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { kernel, given, after } = JSON.parse(line, number);
  let answer;
  try {
    const { after: read, ...found } = call(kernel, given);
    answer = { ...found, after: Object.fromEntries(after.map((path) => [path, read(path)])) };
  } catch (error) {
    answer = { error: `${error}` };
  }
  console.log(JSON.stringify(answer, words));
}
