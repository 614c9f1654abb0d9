// Starts three servers, as a cluster would, each a process of its own. With --fast a day takes five seconds.

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
    if (code) process.exitCode = 1
  })
}
// Ctrl-C reaches the servers by itself, being of this terminal; both are told to be sure. This process ends with the last of them.
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    for (const child of children) child.kill(signal)
  })
}
