// Files that already have one of the names that SQLite and leasehold give the files beside a lock
// file. Opening the lock file must not destroy them.

import assert from 'node:assert/strict'
import { copyFileSync, existsSync, readdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const BESIDE = ['-journal', '-wal', '-shm']

const clientOf = (t, path) => {
  const client = createLockClient({ store: `sqlite:${path}` })
  atEnd(t, () => client.close())
  return client
}

/** Renames all files of the lock file `from`. */
function renameAll(folder, from, to) {
  for (const file of readdirSync(folder))
    if (file.startsWith(from)) renameSync(join(folder, file), join(folder, file.replace(from, to)))
}

/** Makes a lock file of that name, which remembers an id of `once()`. */
async function makeUsed(folder, name) {
  const first = join(folder, 'first')
  const locks = createLockClient({ store: `sqlite:${first}` })
  await locks.once('mail', 'id', () => {})
  await locks.close()
  renameAll(folder, 'first', name)
}

/** Returns the bytes of all files that belong to the lock file at `path`. */
const bytesOf = (path) =>
  ['', '-wal'].map((end) => existsSync(path + end) && readFileSync(path + end, 'latin1')).join('|')

/** Asserts that the lock file at `path` can't be used because of the file at `named`. */
async function assertRefused(t, path, named) {
  const error = await clientOf(t, path)
    .acquire('k', { wait: 300 })
    .catch((error) => error)
  assert.equal(error.code, 'ERR_STORE_UNAVAILABLE', String(error))
  assert.ok(error.message.includes(`${named} is in the way`), error.message)
  assert.match(error.message, /move it away, or name another lock file/)
}

describe('sqlite: the names beside a lock file', { timeout: 60_000 }, () => {
  for (const end of ['.new', '.owners', '.New', ...BESIDE]) {
    test(`a lock file whose name ends with ${end} is refused`, async (t) => {
      const folder = temporaryFolder(t)
      const why = /must not end with \.new, \.owners, -journal, -wal or -shm.*; choose another name/
      assert.throws(() => createLockClient({ store: `sqlite:${folder}/locks${end}` }), { message: why })
      const link = join(folder, 'link')
      symlinkSync(`locks${end}`, link)
      await assert.rejects(clientOf(t, link).tryAcquire('k'), { code: 'ERR_STORE_UNAVAILABLE', message: why })
      assert.deepEqual(readdirSync(folder), ['link'])
    })
  }

  for (const end of ['.new', ...BESIDE]) {
    test(`a text at locks${end} is not destroyed`, async (t) => {
      const path = join(temporaryFolder(t), 'locks')
      writeFileSync(path + end, 'my own text\n')
      await assertRefused(t, path, path + end)
      assert.equal(readFileSync(path + end, 'utf8'), 'my own text\n')
    })

    test(`another lock file at locks${end} is not destroyed`, async (t) => {
      const folder = temporaryFolder(t)
      const path = join(folder, 'locks')
      await makeUsed(folder, `locks${end}`)
      const before = bytesOf(path + end)
      await assertRefused(t, path, path + end)
      assert.equal(bytesOf(path + end), before)
    })
  }

  for (const end of BESIDE) {
    test(`another lock file at locks${end} is not destroyed if there is a lock file, too`, async (t) => {
      const folder = temporaryFolder(t)
      const path = join(folder, 'locks')
      // The lock file is made first: it is complete, and has no log.
      const locks = createLockClient({ store: `sqlite:${path}` })
      await locks.inspect('k')
      await locks.close()
      copyFileSync(path, join(folder, 'copy'))
      renameAll(folder, 'locks', 'old')
      renameSync(join(folder, 'copy'), path)
      await makeUsed(folder, `locks${end}`)
      const before = bytesOf(path + end)
      await assertRefused(t, path, path + end)
      assert.equal(bytesOf(path + end), before)
    })
  }

  test('a file at locks.new-wal is not taken for one that a killed process left', async (t) => {
    const folder = temporaryFolder(t)
    writeFileSync(join(folder, 'locks.new-wal'), '')
    await assertRefused(t, join(folder, 'locks'), join(folder, 'locks.new-wal'))
    assert.deepEqual(readdirSync(folder), ['locks.new-wal'])
  })

  test('what a killed process left while it created the lock file is used', async (t) => {
    const folder = temporaryFolder(t)
    const locks = createLockClient({ store: `sqlite:${join(folder, 'unused')}` })
    await locks.inspect('k')
    await locks.close()
    const complete = readFileSync(join(folder, 'unused'))
    const leftovers = { empty: '', complete, 'cut off': complete.subarray(0, 3 * 4096) }
    for (const [what, bytes] of Object.entries(leftovers)) {
      const path = join(folder, what)
      writeFileSync(`${path}.new`, bytes)
      assert.ok((await clientOf(t, path).acquire('k', { wait: 5_000 })).isHeld, what)
      assert.ok(!existsSync(`${path}.new`), what)
    }
  })
})
