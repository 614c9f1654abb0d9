// Starts three servers, each in a process of its own, as a cluster would. With --fast, a day takes
// five seconds.

import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const SERVERS = ['anna', 'ben', 'cleo']
const server = fileURLToPath(new URL('server.mjs', import.meta.url))
const fast = process.argv.includes('--fast') ? { CRON: '*/5 * * * * *' } : {}

const children = SERVERS.map((name) =>
  spawn(process.execPath, [server], { stdio: 'inherit', env: { ...process.env, ...fast, SERVER: name } }),
)
for (const child of children) {
  child.on('error', (error) => console.error(error.message))
  child.on('exit', (code) => {
    // The code of a server that was ended by a signal is null.
    if (code !== 0) process.exitCode = 1
  })
}
// The terminal sends Ctrl-C to the servers, too. They ignore a copy that comes within 0.5 s. This
// process ends with the last server.
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    for (const child of children) child.kill(signal)
  })
}
