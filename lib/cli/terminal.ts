// Prints text for people: with colours on a terminal, in columns, and without characters that
// control the terminal.

import type { WriteStream } from 'node:tty'
import { printable, printableJson } from '../util/printable'
import { keyWithoutSecrets } from '../util/without-logins'

type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow'

const CODES: Readonly<Record<Style, number>> = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 }

/** Returns whether to print colours to `stream`: see no-color.org. */
function hasColour(stream: { isTTY?: boolean }): boolean {
  if (process.env.NO_COLOR) return false
  return Boolean(process.env.FORCE_COLOR && process.env.FORCE_COLOR !== '0') || stream.isTTY === true
}

export function paint(style: Style, text: string, stream: { isTTY?: boolean } = process.stdout): string {
  return hasColour(stream) ? `\u001b[${CODES[style]}m${text}\u001b[0m` : text
}

/**
 * The most characters of a key or a name that the command line shows. No client gives longer ones.
 * If this is larger, a client that may write to the store could fill the screen; if it is smaller,
 * long keys are cut off.
 */
const MOST_SHOWN = 1_024

/** Escapes control characters: otherwise, a key could clear the screen. */
export const plain = (text: string): string => printable(text, MOST_SHOWN)

/** Returns a key or a name as errors show it: without the login and the secrets of a URL. */
export const shownName = (name: string): string => plain(keyWithoutSecrets(name))

/**
 * Quotes a key for a sentence. Hides what {@link shownName} hides, and shows up to
 * {@link MOST_SHOWN} characters.
 */
export function quoted(key: string): string {
  // Look for secrets first: a cut could remove the `@` that shows where a password is.
  const shown = keyWithoutSecrets(key)
  return printableJson(shown.length > MOST_SHOWN ? `${shown.slice(0, MOST_SHOWN)}…` : shown)
}

/** Returns a table. `right` lists the columns of numbers. */
export function table(head: readonly string[], rows: readonly (readonly string[])[], right: readonly number[]): string {
  const widths = head.map((word, i) => Math.max(word.length, ...rows.map((row) => (row[i] as string).length)))
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => (right.includes(i) ? cell.padStart(widths[i] as number) : cell.padEnd(widths[i] as number)))
      .join('  ')
      .trimEnd()
  return [paint('bold', line(head)), ...rows.map(line)].join('\n')
}

/** Matches the text of a line between the codes of {@link paint}. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the codes begin with one
const TEXT = /(?<=^(?:\u001b\[\d+m)?)[^\u001b]+/

/** Cuts a line, which may be painted as a whole, to the width of the terminal. */
export function cut(line: string, stream: WriteStream): string {
  const width = stream.columns || 80
  return line.replace(TEXT, (text) => (text.length > width ? `${text.slice(0, width - 1)}…` : text))
}

/** Returns one JSON document, or one line of several. */
export const jsonLine = (value: unknown): string => `${printableJson(value)}\n`

/** Prints one JSON document, or one line of several. */
export function sayJson(value: unknown, stream: NodeJS.WritableStream = process.stdout): void {
  stream.write(jsonLine(value))
}

export function say(text: string): void {
  process.stdout.write(`${text}\n`)
}

/**
 * Returns the line of a message of `leasehold` itself. Escapes control characters: a message may
 * contain the user's arguments.
 */
export const messageLine = (text: string): string => `leasehold: ${printable(text, Number.POSITIVE_INFINITY)}\n`

/** Prints a message of `leasehold` itself to standard error, where the command may print, too. */
export function warn(text: string): void {
  process.stderr.write(messageLine(text))
}

/** Prints an unexpected error with its stack. Escapes control characters, as {@link warn} does. */
export function warnOf(error: unknown): void {
  const [first = '', ...others] = stackOf(error).split('\n')
  warn(first)
  for (const line of others) process.stderr.write(`    ${printable(line.trim(), Number.POSITIVE_INFINITY)}\n`)
}

/** Returns the stack of an unexpected error, to show where it comes from. */
export const stackOf = (error: unknown): string => (error as Error)?.stack ?? String(error)
