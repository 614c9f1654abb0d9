// Writes the help texts, which should teach the user.

import { type Command, optionsOf } from './command'
import { paint } from './terminal'

export function overview(commands: readonly Command[]): string {
  const width = Math.max(...commands.map(({ name }) => name.length))
  return `${paint('bold', 'leasehold')}: distributed locks on the command line

Usage: leasehold COMMAND [options]

${paint('bold', 'Commands')}
${commands.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join('\n')}

${paint('bold', 'Where the locks are')}
  --store URL, or the environment: LEASEHOLD_URL, then REDIS_URL. Otherwise a file that the processes
  of this user on this machine share. For a quorum: --store three times or more, or as many URLs in
  LEASEHOLD_URL, with blanks between them. The list of processes does not show passwords in variables.
  sqlite:PATH · redis://HOST · rediss://HOST · redis-sentinel://… · redis-cluster://…

${paint('bold', 'Begin with')}
  leasehold demo                                  see what a lock does, in ten seconds
  leasehold run nightly -- ./backup.sh            never twice at a time
  leasehold ls                                    who holds what

See leasehold COMMAND --help. Exit codes: 64 usage, 69 store unavailable, 70 lease lost, 75 busy.
`
}

export function help(command: Command): string {
  const options = Object.entries(optionsOf(command)).map(([name, { short, value, help }]) => {
    const names = short === undefined ? `    --${name}` : `-${short}, --${name}`
    return [value === undefined ? names : `${names} ${value}`, help] as const
  })
  const width = Math.max(...options.map(([names]) => names.length))
  return `${command.summary}

Usage: leasehold ${command.name} ${command.synopsis}

${command.details.trim()}

${paint('bold', 'Options')}
${options.map(([names, help]) => `  ${names.padEnd(width)}  ${help}`).join('\n')}

${paint('bold', 'Examples')}
${command.examples.map((example) => `  ${example}`).join('\n')}
`
}
