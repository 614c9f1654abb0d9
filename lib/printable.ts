// Text that others wrote, for people to read: without the characters that steer a terminal. Native
// code does the same to what servers say, see src/store/printable.rs.

/** Control characters, line separators, and what changes the direction of text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it is about
const STEERS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** Escapes these characters in `text`, and leaves out what exceeds `most` characters. */
export function printable(text: string, most: number): string {
  const shown = text.length > most ? `${text.slice(0, most)}…` : text
  return shown.replace(STEERS, (letter) => SHORT[letter] ?? `\\u{${codeOf(letter)}}`)
}

/** Returns `value` as JSON that steers no terminal either. JSON itself escapes some of the characters. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value).replace(STEERS, (letter) => `\\u${codeOf(letter).padStart(4, '0')}`)
}

const codeOf = (letter: string): string => letter.charCodeAt(0).toString(16)
