// The program that the installed `leasehold run` starts. It prints its variables, and the exit code
// of a second `leasehold run` for the same lock.

const { spawnSync } = require('node:child_process')

const { LEASEHOLD_KEY: key, LEASEHOLD_FENCE: fence } = process.env
// npx has put the project's commands on the PATH.
const { status: rival } = spawnSync('leasehold', ['run', key, '--try', '--', process.execPath, '-e', ''])
console.log(JSON.stringify({ key, fence, rival }))
process.exitCode = 7
