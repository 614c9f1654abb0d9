// Escapes text from other programs, so that it can't control a terminal. Native code does the same
// with the text that servers send: see src/store/printable.rs.

import { keyWithoutSecrets } from './without-logins'

/** Matches control characters, line separators, and marks that change the direction of text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern has to match them
const STEERS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** Cuts `text` off after `most` characters, and escapes what {@link STEERS} matches. */
export function printable(text: string, most: number): string {
  const shown = text.length > most ? `${text.slice(0, most)}…` : text
  return shown.replace(STEERS, (letter) => SHORT[letter] ?? `\\u{${codeOf(letter)}}`)
}

/** Returns `value` as JSON that can't control a terminal. JSON escapes too few characters. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value).replace(STEERS, (letter) => `\\u${codeOf(letter).padStart(4, '0')}`)
}

/**
 * Returns a key as messages show it: quoted, on one line, without the login of a URL and the
 * secrets in its query, and of at most 80 characters.
 */
export function quote(key: string): string {
  // Look for secrets first: a cut could remove the `@` that shows where a password is.
  const shown = keyWithoutSecrets(key)
  return printableJson(shown.length > 80 ? `${shown.slice(0, 79)}…` : shown)
}

const codeOf = (letter: string): string => letter.charCodeAt(0).toString(16)
