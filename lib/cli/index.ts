#!/usr/bin/env node
// The program `leasehold`. Finds the command, which has a file of its own, runs it, and reports its
// errors.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { nearest } from '../util/nearest'
import { type Command, parse } from './command'
import { Exit, exitOf, UsageError } from './exits'
import { failureOf } from './failure'
import { help, overview } from './help'
import { shownOption, shownWord, storeAdvice } from './shown-word'
import { say, sayJson, stackOf, warn, warnOf } from './terminal'

/** Loads a command by its name. To load all commands at each start would take longer. */
const COMMANDS: ReadonlyMap<string, () => Command> = new Map([
  ['run', () => (require('./run') as typeof import('./run')).run],
  ['ls', () => (require('./ls') as typeof import('./ls')).ls],
  ['inspect', () => (require('./inspect') as typeof import('./inspect')).inspect],
  ['watch', () => (require('./watch') as typeof import('./watch')).watch],
  ['release', () => (require('./release') as typeof import('./release')).release],
  ['doctor', () => (require('./doctor') as typeof import('./doctor')).doctor],
  ['demo', () => (require('./demo') as typeof import('./demo')).demo],
  ['bench', () => (require('./bench') as typeof import('./bench')).bench],
])

const loadAll = (): Command[] => [...COMMANDS.values()].map((load) => load())

function find(name: string): Command {
  const load = COMMANDS.get(name)
  if (load !== undefined) return load()
  const near = nearest(name, [...COMMANDS.keys()])
  const hint = near === undefined ? `see leasehold --help${storeAdvice(name)}` : `did you mean leasehold ${near}?`
  throw new UsageError(`unknown command ${shownWord(name)}; ${hint}`)
}

function version(): string {
  return JSON.parse(readFileSync(join(__dirname, '..', '..', 'package.json'), 'utf8')).version
}

async function main([name, ...args]: string[]): Promise<number> {
  if (name === undefined) {
    process.stderr.write(overview(loadAll()))
    return Exit.Usage
  }
  if (name === '--version' || name === '-V' || name === 'version') {
    if (args.includes('--json')) sayJson({ version: version() })
    else say(version())
    return Exit.Ok
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(args[0] === undefined ? overview(loadAll()) : help(find(args[0])))
    return Exit.Ok
  }
  if (name.startsWith('-')) {
    throw new UsageError(`a command comes before its options: leasehold COMMAND, then ${shownOption(name)}`)
  }
  const command = find(name)
  const given = parse(command, args)
  if (given.values.help === true) {
    process.stdout.write(help(command))
    return Exit.Ok
  }
  return command.run(given)
}

// The reader of the output may end early, like head(1), or the terminal may be closed. Then end
// this process, because its output is not needed. But let `run` go on: its command has another
// purpose.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (process.argv[2] === 'run') return
  process.exit(error.code === 'EPIPE' ? Exit.Ok : 1)
})
// Go on without standard error: the exit code still reports the result.
process.stderr.on('error', () => {})

main(process.argv.slice(2)).then(
  (code) => {
    process.exitCode = code
  },
  (error: unknown) => {
    const code = exitOf(error)
    const words = process.argv.slice(2)
    const end = words.indexOf('--')
    if ((end < 0 ? words : words.slice(0, end)).includes('--json')) {
      const told = code === undefined ? { ...failureOf(error), message: stackOf(error) } : failureOf(error)
      sayJson({ error: { ...told, exit: code ?? 1 } }, process.stderr)
    } else if (code === undefined) {
      warnOf(error)
    } else {
      warn(failureOf(error).message)
    }
    process.exitCode = code ?? 1
  },
)
