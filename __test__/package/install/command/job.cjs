// What the installed `leasehold run` runs: tells what it was given, and whether somebody else could have the lock meanwhile.

const { spawnSync } = require('node:child_process')

const { LEASEHOLD_KEY: key, LEASEHOLD_FENCE: fence } = process.env
// npx has put the project's commands on the PATH.
const { status: rival } = spawnSync('leasehold', ['run', key, '--try', '--', process.execPath, '-e', ''])
console.log(JSON.stringify({ key, fence, rival }))
process.exitCode = 7
