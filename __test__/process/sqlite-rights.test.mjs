// Tests the rights of other users to the files of the embedded store.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const EXPORTS = fileURLToPath(new URL('../../dist/index.js', import.meta.url))
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

  const alone = process.getuid?.() !== 0 && 'only root can become other users'
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
    const asUser = (user) => ['setpriv', `--reuid=${user}`, `--regid=${user}`, `--groups=${group}`]
    const start = (user) =>
      startChild(t, 'holder.mjs', { store: `sqlite:${path}`, key: `${user}` }, { launcher: asUser(user) })
    const [first, ...check] = [...asUser(54_001), process.execPath, '-e', `require('${EXPORTS}')`]
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
    "somebody else's": [
      /belongs to another user \(12345\)/,
      (path) => {
        mkdirSync(path)
        chownSync(path, 12_345, 12_345)
      },
    ],
  }
  for (const [what, [reason, make]] of Object.entries(inTheWay)) {
    const cannot = what === "somebody else's" && process.getuid?.() !== 0 && 'only root can give a directory away'
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
    const AS_USER = ['setpriv', '--reuid=54001', '--regid=54001', '--clear-groups']
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
    /** Tries a lock as another user. Returns what this user is told. */
    const tryAs = (path, umask = '') => {
      const { stdout, stderr } = spawnSync(AS_USER[0], [...AS_USER.slice(1), process.execPath, '-e', TRY, path, umask])
      assert.notEqual(`${stdout}`, '', `${stderr}`)
      return JSON.parse(stdout)
    }
    /** Returns the path of a lock file in a directory in which everybody may create files. */
    const inOpenFolder = (t) => {
      const folder = temporaryFolder(t)
      chmodSync(folder, 0o1777)
      return join(folder, 'locks.db')
    }

    for (const end of ['-wal', '-shm']) {
      test(`somebody else's locks.db${end} is named`, (t) => {
        const path = inOpenFolder(t)
        assert.equal(tryAs(path).isHeld, true)
        rmSync(`${path}${end}`, { force: true })
        writeFileSync(`${path}${end}`, '', { mode: 0o600 })
        chownSync(`${path}${end}`, 54_002, 54_002)
        const { reason, message } = tryAs(path)
        // Another store may be about to share it.
        assert.equal(reason, 'unreachable', message)
        assert.ok(message.includes(`no right to write ${path}${end} `), message)
        assert.match(message, /belongs to the user 54002/)
      })
    }

    test("somebody else's locks.db-wal without a lock file is named", (t) => {
      const path = inOpenFolder(t)
      writeFileSync(`${path}-wal`, '', { mode: 0o600 })
      const { reason, message } = tryAs(path)
      assert.equal(reason, 'denied', message)
      assert.ok(message.includes(`${path}-wal is in the way`), message)
    })

    test("somebody else's empty lock file that everybody may write is refused", (t) => {
      const path = inOpenFolder(t)
      writeFileSync(path, '')
      chownSync(path, 54_002, 54_002)
      chmodSync(path, 0o666)
      const { reason, message } = tryAs(path)
      assert.equal(reason, 'denied', message)
      assert.match(message, /it is empty, belongs to another user \(54002\)/)
      assert.equal(statSync(path).size, 0, 'and stays as it is')
      chownSync(path, 54_001, 54_001)
      assert.equal(tryAs(path).isHeld, true, 'its owner uses it')
      chownSync(path, 54_002, 54_002)
      for (const end of ['-wal', '-shm']) rmSync(`${path}${end}`, { force: true })
      assert.equal(tryAs(path).isHeld, true, 'a file in use stays shared')
    })

    test('a umask that takes all rights away is named', (t) => {
      const path = inOpenFolder(t)
      const { reason, message } = tryAs(path, '777')
      assert.equal(reason, 'denied', message)
      assert.match(message, /umask/)
      assert.deepEqual(readdirSync(dirname(path)), [], 'no file is left')
      assert.equal(tryAs(path).isHeld, true)
      rmdirSync(`${path}.owners`)
      assert.match(tryAs(path, '777').message, /umask/)
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

  for (const end of ['', '-wal', '-shm', '-journal', '.new']) {
    test(`a FIFO in the place of locks.db${end} blocks nothing`, async (t) => {
      const path = join(temporaryFolder(t), 'locks.db')
      execFileSync('mkfifo', [`${path}${end}`])
      const locks = openClient(t, path)
      if (end) return assert.ok((await locks.acquire('a', { wait: 5_000 })).isHeld)
      await assert.rejects(locks.acquire('a', { wait: 200 }), (error) => {
        assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
        assert.match(error.message, /is not a regular file/)
        return true
      })
    })
  }

  test('diagnose tells what other users may open', async (t) => {
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
