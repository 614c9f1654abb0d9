// Defines what a command is, and parses its arguments.

import { parseArgs } from 'node:util'
import { nearest } from '../util/nearest'
import { UsageError } from './exits'
import { shownOption, shownWord, storeAdvice } from './shown-word'

export interface OptionSpec {
  readonly type: 'string' | 'boolean'
  readonly short?: string
  readonly multiple?: boolean
  /** What the value is called in the help. */
  readonly value?: string
  readonly help: string
}

/** The arguments of a command. */
export interface Given {
  readonly values: Readonly<Record<string, string | boolean | string[] | undefined>>
  readonly words: readonly string[]
  /** The words behind `--`; `undefined` without `--`. */
  readonly rest: readonly string[] | undefined
}

export interface Command {
  readonly name: string
  /** The usage behind the name, as in `KEY [options] -- COMMAND`. */
  readonly synopsis: string
  readonly summary: string
  /** The rest of the help text. */
  readonly details: string
  readonly examples: readonly string[]
  readonly options: Readonly<Record<string, OptionSpec>>
  /** How many words the command takes at least, and at most. */
  readonly words: readonly [number, number]
  /** Resolves with the exit code. */
  run(given: Given): Promise<number>
}

/** The options that every command has. */
const COMMON: Readonly<Record<string, OptionSpec>> = {
  json: { type: 'boolean', help: 'print JSON for programs: one document, or one object a line' },
  help: { type: 'boolean', short: 'h', help: 'print this text' },
}

export const optionsOf = (command: Command): Readonly<Record<string, OptionSpec>> => ({ ...command.options, ...COMMON })

export function parse(command: Command, args: readonly string[]): Given {
  const options = optionsOf(command)
  const end = args.indexOf('--')
  const own = end < 0 ? args : args.slice(0, end)
  const rest = end < 0 ? undefined : args.slice(end + 1)
  // Parse without `strict`: our own messages say what is wrong.
  const config = Object.fromEntries(
    Object.entries(options).map(([name, { type, short, multiple = false }]) => [
      name,
      short === undefined ? { type, multiple } : { type, multiple, short },
    ]),
  )
  const parsed = parseArgs({ args: [...own], options: config, strict: false, allowPositionals: true, tokens: true })
  for (const token of parsed.tokens) {
    if (token.kind !== 'option') continue
    const spec = options[token.name]
    if (spec === undefined) throw unknownOption(command, token.rawName, token.name, Object.keys(options))
    if (spec.type === 'string' && token.value === undefined) {
      throw new UsageError(`${token.rawName} needs a value: ${token.rawName} ${spec.value}`)
    }
    if (spec.type === 'boolean' && token.value !== undefined) {
      throw new UsageError(`${token.rawName} takes no value`)
    }
  }
  const words = parsed.positionals
  if (parsed.values.help !== true) checkCount(command, words)
  return { values: parsed.values as Given['values'], words, rest }
}

function unknownOption(command: Command, raw: string, name: string, known: readonly string[]): UsageError {
  const near = nearest(name, known)
  const hint = near === undefined ? `see leasehold ${command.name} --help` : `did you mean --${near}?`
  return new UsageError(`unknown option ${shownOption(raw)}; ${hint}`)
}

function checkCount(command: Command, words: readonly string[]): void {
  const [least, most] = command.words
  if (words.length < least) {
    throw new UsageError(`too few arguments: leasehold ${command.name} ${command.synopsis}`)
  }
  if (words.length > most) {
    const extra = words[most]
    const hint = storeAdvice(extra) || (command.name === 'run' ? '; put -- before the command' : '')
    throw new UsageError(
      `one argument too many, ${shownWord(extra)}: leasehold ${command.name} ${command.synopsis}${hint}`,
    )
  }
}

/** Returns the value of a string option. */
export function text(given: Given, name: string): string | undefined {
  return given.values[name] as string | undefined
}

export function flag(given: Given, name: string): boolean {
  return given.values[name] === true
}

/** Returns the value of an option that takes a whole number from `least` to `most`. */
export function count(given: Given, name: string, fallback: number, least = 0, most = 999_999_999): number {
  const value = text(given, name)
  if (value === undefined) return fallback
  if (/^\d{1,9}$/.test(value) && Number(value) >= least && Number(value) <= most) return Number(value)
  throw new UsageError(`--${name} takes a whole number, ${least} to ${most}`)
}
