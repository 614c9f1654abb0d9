// The rights of other users to the files of the embedded store.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { atEnd } from '../support/endings.mjs'
import { alone, asUser, EXPORTS, forgeJournal, inOpenFolder, tryAs } from '../support/other-users.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const skip = process.platform === 'win32' && 'files have no mode there'

function openClient(t, path) {
  const locks = createLockClient(`sqlite:${path}`)
  atEnd(t, () => locks.close())
  return locks
}

/** Returns the modes of all files below `folder` whose names begin with locks.db. */
function modesBelow(folder) {
  const names = readdirSync(folder, { recursive: true })
  return new Map(names.map((name) => [name, statSync(join(folder, name)).mode & 0o777]))
}

/** Runs `work` with another umask, which all threads of the process have. */
async function withUmask(mask, work) {
  const before = process.umask(mask)
  try {
    return await work()
  } finally {
    process.umask(before)
  }
}

describe('sqlite: the rights of other users', { timeout: 60_000, skip }, () => {
  for (const mask of [0o000, 0o022, 0o077]) {
    test(`with the umask ${mask.toString(8)} no other user may open a new file`, async (t) => {
      const folder = temporaryFolder(t)
      const path = join(folder, 'locks.db')
      const modes = await withUmask(mask, async () => {
        const lease = await openClient(t, path).acquire('a')
        assert.ok(lease.isHeld)
        return modesBelow(folder)
      })
      assert.ok(modes.size >= 5, [...modes.keys()].join(' '))
      for (const [name, mode] of modes) {
        assert.equal(mode.toString(8), name === 'locks.db.owners' ? '700' : '600', name)
      }
    })
  }

  test('a file that its owner shares with a group stays shared', async (t) => {
    const folder = temporaryFolder(t)
    const path = join(folder, 'locks.db')
    writeFileSync(path, '')
    chmodSync(path, 0o660)
    const modes = await withUmask(0o077, async () => {
      await openClient(t, path).acquire('a')
      return modesBelow(folder)
    })
    for (const [name, mode] of modes) {
      assert.equal(mode.toString(8), name === 'locks.db.owners' ? '770' : '660', name)
    }
  })

  test('two users of a group share a file in a directory of that group', { skip: alone }, async (t) => {
    const folder = temporaryFolder(t)
    const path = join(folder, 'locks.db')
    const group = 54_000
    writeFileSync(path, '')
    for (const [name, mode] of [
      [path, 0o660],
      [folder, 0o770],
    ]) {
      chownSync(name, 0, group)
      chmodSync(name, mode)
    }
    const start = (user) =>
      startChild(t, 'holder.mjs', { store: `sqlite:${path}`, key: `${user}` }, { launcher: asUser(user, group) })
    const [first, ...check] = [...asUser(54_001, group), process.execPath, '-e', `require('${EXPORTS}')`]
    if (spawnSync(first, check).status !== 0) return t.skip('another user may not load the package')
    const holders = [start(54_001), start(54_002)]
    for (const holder of holders) assert.ok((await holder.next('held')).fence > 0)
    for (const [name, mode] of modesBelow(folder)) {
      assert.equal(mode.toString(8), name === 'locks.db.owners' ? '770' : '660', name)
      assert.equal(statSync(join(folder, name)).gid, group, name)
    }
  })

  const inTheWay = {
    'a FIFO': [/not a directory/, (path) => execFileSync('mkfifo', [path])],
    'a file': [/not a directory/, (path) => writeFileSync(path, '')],
    'a link': [
      /symbolic link/,
      (path, folder) => {
        mkdirSync(join(folder, 'elsewhere'))
        symlinkSync(join(folder, 'elsewhere'), path)
      },
    ],
    "another user's": [
      /belongs to another user \(12345\)/,
      (path) => {
        mkdirSync(path)
        chownSync(path, 12_345, 12_345)
      },
    ],
  }
  for (const [what, [reason, make]] of Object.entries(inTheWay)) {
    const cannot = what === "another user's" && process.getuid?.() !== 0 && 'only root can give a directory away'
    test(`the directory of the owners is refused if it is ${what}`, { skip: cannot }, async (t) => {
      const folder = temporaryFolder(t)
      const path = join(folder, 'locks.db')
      make(`${path}.owners`, folder)
      await assert.rejects(openClient(t, path).acquire('a', { wait: 200 }), (error) => {
        assert.deepEqual([error.code, error.reason], ['ERR_STORE_UNAVAILABLE', 'denied'], error.message)
        assert.match(error.message, reason)
        assert.ok(error.message.includes(`${path}.owners`), error.message)
        return true
      })
      if (what === 'a link') assert.deepEqual(readdirSync(join(folder, 'elsewhere')), [])
    })
  }

  describe('for a user who is not root', { skip: alone }, () => {
    /**
     * Returns the path of a lock file that its owner, 54001, has used, and the bytes of the file.
     */
    const used = (t) => {
      const path = inOpenFolder(t)
      assert.equal(tryAs(path).isHeld, true)
      return { path, before: readFileSync(path) }
    }
    for (const end of ['-wal', '-shm']) {
      test(`the error names another user's locks.db${end}`, (t) => {
        const path = inOpenFolder(t)
        assert.equal(tryAs(path).isHeld, true)
        rmSync(`${path}${end}`, { force: true })
        writeFileSync(`${path}${end}`, '', { mode: 0o600 })
        chownSync(`${path}${end}`, 54_002, 54_002)
        const { reason, message } = tryAs(path)
        // The error may be temporary: another store may be about to share the file.
        assert.equal(reason, 'unreachable', message)
        assert.ok(message.includes(`no right to write ${path}${end} `), message)
        assert.match(message, /belongs to the user 54002/)
      })
    }

    test('the error names a directory of the owners that the user may not read, and says what to do', (t) => {
      const path = inOpenFolder(t)
      assert.equal(tryAs(path).isHeld, true)
      chmodSync(`${path}.owners`, 0)
      const own = tryAs(path)
      assert.equal(own.reason, 'denied', own.message)
      assert.ok(own.message.startsWith(`the directory ${path}.owners, in which the processes `), own.message)
      assert.match(own.message, /: Permission denied .*; run chmod u\+rwx on it$/)
      // A trusted user's directory, which this user may not enter.
      chownSync(`${path}.owners`, 0, 0)
      const roots = tryAs(path)
      assert.equal(roots.reason, 'denied', roots.message)
      assert.match(roots.message, /; it belongs to the user 0: share the lock file and the directory with a group, or /)
    })

    test("the error names another user's locks.db-wal if there is no lock file", (t) => {
      const path = inOpenFolder(t)
      writeFileSync(`${path}-wal`, '', { mode: 0o600 })
      const { reason, message } = tryAs(path)
      assert.equal(reason, 'denied', message)
      assert.ok(message.includes(`${path}-wal is in the way`), message)
    })

    test("another user's empty lock file that all users may write is refused", (t) => {
      const path = inOpenFolder(t)
      writeFileSync(path, '')
      chownSync(path, 54_002, 54_002)
      chmodSync(path, 0o666)
      const { reason, message } = tryAs(path)
      assert.equal(reason, 'denied', message)
      assert.match(message, /it is empty, belongs to another user \(54002\)/)
      assert.equal(statSync(path).size, 0, 'the file stays as it is')
      chownSync(path, 54_001, 54_001)
      assert.equal(tryAs(path).isHeld, true, 'its owner may use it')
      chownSync(path, 54_002, 54_002)
      for (const end of ['-wal', '-shm']) rmSync(`${path}${end}`, { force: true })
      const complete = tryAs(path)
      assert.equal(complete.reason, 'denied', complete.message)
      assert.match(
        complete.message,
        /it lies in a directory that everybody may write, belongs to another user \(54002\)/,
      )
    })

    test("another user's complete lock file is not reached by a link from a directory that all users may write", (t) => {
      const path = inOpenFolder(t)
      const elsewhere = join(temporaryFolder(t), 'planted.db')
      chmodSync(dirname(elsewhere), 0o755)
      writeFileSync(elsewhere, used(t).before)
      chownSync(elsewhere, 54_002, 54_002)
      chmodSync(elsewhere, 0o666)
      symlinkSync(elsewhere, path)
      assert.equal(tryAs(path).reason, 'denied')
    })

    test('a file that all users may write stays shared in a directory that only a group may write', (t) => {
      const folder = temporaryFolder(t)
      chownSync(folder, 54_002, 54_001)
      chmodSync(folder, 0o770)
      const path = join(folder, 'locks.db')
      writeFileSync(path, '')
      chownSync(path, 54_001, 54_001)
      chmodSync(path, 0o666)
      assert.equal(tryAs(path).isHeld, true)
      for (const end of ['', '-wal', '-shm']) chownSync(`${path}${end}`, 54_002, 54_002)
      assert.equal(tryAs(path).isHeld, true)
    })

    const assertRefused = (path, end, reason) => {
      const answer = tryAs(path)
      assert.equal(answer.reason, 'denied', JSON.stringify(answer))
      assert.ok(answer.message.includes(`${path}${end} is refused: it`), answer.message)
      assert.match(answer.message, reason)
    }

    test("another user's journal is not applied to the lock file", (t) => {
      const { path, before } = used(t)
      const other = Buffer.from(before)
      // Set the version of the layout, which is at this offset of SQLite's header.
      other.writeUInt32BE(99, 60)
      const journal = `${path}-journal`
      writeFileSync(journal, forgeJournal(other))
      chmodSync(journal, 0o666)
      chownSync(journal, 54_002, 54_002)
      assertRefused(path, '-journal', /belongs to another user \(54002\)/)
      assert.ok(readFileSync(path).equals(before), 'the file stays as it is')
      chownSync(journal, 54_001, 54_001)
      assert.match(tryAs(path).message, /made by a newer version/, 'the journal of the owner is applied')
    })

    for (const end of ['-wal', '-shm']) {
      test(`another user's locks.db${end} that all users may write is refused`, (t) => {
        const { path } = used(t)
        chmodSync(`${path}${end}`, 0o666)
        chownSync(`${path}${end}`, 54_002, 54_002)
        assertRefused(path, end, /belongs to another user \(54002\)/)
        chownSync(`${path}${end}`, 0, 0)
        assert.equal(tryAs(path).isHeld, true, 'root may make it')
      })
    }

    for (const end of ['-journal', '-wal', '-shm']) {
      test(`a link at locks.db${end} is refused`, (t) => {
        const { path } = used(t)
        const [place, elsewhere] = [`${path}${end}`, join(temporaryFolder(t), 'elsewhere')]
        rmSync(place, { force: true })
        symlinkSync(elsewhere, place)
        if (end !== '-journal') assertRefused(path, end, /symbolic link/)
        chmodSync(dirname(elsewhere), 0o755)
        const { path: other, before } = used(t)
        before.writeUInt32BE(99, 60)
        writeFileSync(elsewhere, end === '-journal' ? forgeJournal(before) : readFileSync(`${other}${end}`))
        chownSync(elsewhere, 54_001, 54_001)
        assertRefused(path, end, /symbolic link/)
        rmSync(place)
        linkSync(elsewhere, place)
        assertRefused(path, end, /several names/)
      })
    }

    test('the error names a umask that takes all rights away', (t) => {
      const path = inOpenFolder(t)
      const { reason, message } = tryAs(path, { umask: '777' })
      assert.equal(reason, 'denied', message)
      assert.match(message, /umask/)
      assert.deepEqual(readdirSync(dirname(path)), [], 'no file is left')
      assert.equal(tryAs(path).isHeld, true)
      rmdirSync(`${path}.owners`)
      assert.match(tryAs(path, { umask: '777' }).message, /umask/)
      assert.equal(tryAs(path).isHeld, true)
    })
  })

  test('a directory of the owners that others may write is closed to them', async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    mkdirSync(`${path}.owners`)
    chmodSync(`${path}.owners`, 0o777)
    await openClient(t, path).acquire('a')
    assert.equal((statSync(`${path}.owners`).mode & 0o777).toString(8), '700')
  })

  test('the error names a directory in the place of locks.db-wal', async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    mkdirSync(`${path}-wal`)
    const error = await openClient(t, path)
      .tryAcquire('k')
      .catch((error) => error)
    assert.match(error.message, /locks\.db-wal is refused: it is a directory; remove it/)
  })

  for (const end of ['', '-wal', '-shm', '-journal', '.new']) {
    test(`a FIFO in the place of locks.db${end} blocks nothing`, async (t) => {
      const path = join(temporaryFolder(t), 'locks.db')
      execFileSync('mkfifo', [`${path}${end}`])
      const locks = openClient(t, path)
      if (end === '.new') return assert.ok((await locks.acquire('a', { wait: 5_000 })).isHeld)
      await assert.rejects(locks.acquire('a', { wait: 200 }), (error) => {
        assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
        assert.match(error.message, /is not a regular file/)
        return true
      })
    })
  }

  test('a device is refused, and no journal is left beside it', {
    skip: process.getuid() !== 0 && 'needs root',
  }, async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    execFileSync('mknod', [path, 'c', '1', '3'])
    const locks = openClient(t, path)
    await assert.rejects(locks.tryAcquire('a'), { message: /locks\.db is not a regular file; name another file/ })
    assert.deepEqual(
      readdirSync(dirname(path)).filter((name) => name.endsWith('-journal')),
      [],
    )
  })

  test('no message shows a control character of a path', async (t) => {
    const folder = join(temporaryFolder(t), 'a\u001b[2J\u2028b')
    mkdirSync(join(folder, 'locks.db'), { recursive: true })
    const error = await openClient(t, join(folder, 'locks.db'))
      .tryAcquire('a')
      .catch((error) => error)
    assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
    assert.ok(error.message.includes('a\\u{1b}[2J\\u{2028}b'), error.message)
  })

  test('diagnose reports what other users may open', async (t) => {
    const folder = temporaryFolder(t)
    const path = join(folder, 'locks.db')
    const locks = openClient(t, path)
    const exposed = async () => {
      const { findings } = await locks.diagnose()
      return findings.filter(({ code }) => code === 'exposed')
    }
    assert.deepEqual(await exposed(), [])
    chmodSync(path, 0o644)
    chmodSync(folder, 0o1777)
    const [{ level, message }] = await exposed()
    assert.equal(level, 'warning')
    assert.match(message, /0644.*1777/)
  })
})
