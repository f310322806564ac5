// Answers each line, fields in hex of UTF-16 with tabs between: query, context, field, value, ...; "-" is null.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { lookUpKey } = await import(pathToFileURL(process.argv[2]).href);
const most = Number(process.argv[3]);
const out = [];
for await (const line of createInterface({ input: process.stdin })) {
  const [query, context, ...pairs] = line.split("\t").map(text);
  const filters = {};
  for (let i = 0; i < pairs.length; i += 2) filters[pairs[i]] = pairs[i + 1];
  const known = [query, context, ...pairs].every((one) => one === null || !/\p{Cn}/u.test(one));
  let key = "refused";
  try {
    key = lookUpKey(query, context, filters, most);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
  out.push(`${key} ${known ? "known" : "unknown"}\n`);
}
process.stdout.write(out.join(""));

function text(hex) {
  if (hex === "-") return null;
  return String.fromCharCode(...(hex.match(/..../g) ?? []).map((unit) => parseInt(unit, 16)));
}
