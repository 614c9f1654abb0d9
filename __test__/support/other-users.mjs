// Runs processes as other users of the machine. The users need no account: root starts a process
// with any user id.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from './servers.mjs'

/** The path of the built package. */
export const EXPORTS = fileURLToPath(new URL('../../dist/index.js', import.meta.url))

/** Says why tests that need other users have to be skipped. */
export const alone = process.getuid?.() !== 0 && 'only root can become other users'

const TRY = `
  const { createLockClient } = require(${JSON.stringify(EXPORTS)})
  const [path, umask] = process.argv.slice(1)
  if (umask) process.umask(Number.parseInt(umask, 8))
  const locks = createLockClient('sqlite:' + path)
  const told = locks.tryAcquire('a').then((lease) => ({ isHeld: lease?.isHeld }), ({ reason, message }) => ({ reason, message }))
  told.then(async (answer) => {
    console.log(JSON.stringify(answer))
    await locks.close()
  })`

/** Returns the command that runs another one as the user id `user`, with `group` if it is given. */
export function asUser(user, group) {
  const groups = group ? `--groups=${group}` : '--clear-groups'
  return ['setpriv', `--reuid=${user}`, `--regid=${user}`, groups]
}

/**
 * Tries a lock as `user`, who is also a member of `group`, under `launcher`. Returns whether the
 * lease is held, or the error.
 */
export function tryAs(path, { user = 54_001, group, umask = '', launcher = [] } = {}) {
  const [command, ...args] = [...asUser(user, group), ...launcher, process.execPath, '-e', TRY, path, umask]
  const { stdout, stderr } = spawnSync(command, args, { timeout: 20_000 })
  assert.notEqual(`${stdout}`, '', `${stderr}`)
  return JSON.parse(stdout)
}

/** Returns the path of a lock file in a directory in which all users may create files. */
export function inOpenFolder(t) {
  const folder = temporaryFolder(t)
  chmodSync(folder, 0o1777)
  return join(folder, 'locks.db')
}

/**
 * Returns a rollback journal that replaces all pages of a database by those of `database`.
 * https://www.sqlite.org/fileformat2.html#the_rollback_journal has its layout.
 */
export function forgeJournal(database) {
  const pageSize = database.readUInt16BE(16)
  const pages = database.length / pageSize
  const sector = Buffer.alloc(512)
  Buffer.from('d9d505f920a163d7', 'hex').copy(sector)
  for (const [index, value] of [pages, 0, pages, sector.length, pageSize].entries()) {
    sector.writeUInt32BE(value, 8 + 4 * index)
  }
  const parts = [sector]
  for (let page = 0; page < pages; page++) {
    const bytes = database.subarray(page * pageSize, (page + 1) * pageSize)
    let sum = 0
    for (let at = pageSize - 200; at > 0; at -= 200) sum += bytes[at]
    const numbers = [Buffer.alloc(4), Buffer.alloc(4)]
    numbers[0].writeUInt32BE(page + 1)
    numbers[1].writeUInt32BE(sum)
    parts.push(numbers[0], bytes, numbers[1])
  }
  return Buffer.concat(parts)
}
