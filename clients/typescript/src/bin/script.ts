/** Lines of a script. */

/** A line that is no directive, or can't be followed. */
export class ScriptError extends Error {}

/** What is before and after the first `separator`. */
export function cut(text: string, separator: string): [before: string, after: string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + separator.length)];
}

export function indentation(line: string): number {
  return line.length - line.trimStart().length;
}

export function numberOf(text: string): number {
  const seconds = Number(text);
  if (text === "" || Number.isNaN(seconds)) {
    throw new ScriptError(`not a number of seconds: ${quoted(text)}`);
  }
  return seconds;
}

/** As the built-in scripted worker quotes, which is written in Python. */
export function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/\\/g, "\\\\").replace(/\t/g, "\\t").replace(/\r/g, "\\r");
  return quote + (quote === "'" ? escaped.replace(/'/g, "\\'") : escaped) + quote;
}
