// The nightly example as its README describes it: three servers send each customer one mail a day,
// also if a server is killed.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { sleep, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { npmEnv } from '../support/programs.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const EXAMPLE = fileURLToPath(new URL('../../examples/nightly', import.meta.url))
const CUSTOMERS = 3

/**
 * Starts a program of the example, in a process group of its own. Returns { log(), kill(signal),
 * ctrlC(), ended }.
 */
function start(t, args, env) {
  const child = spawn(process.execPath, args, {
    cwd: EXAMPLE,
    detached: true,
    env: { ...process.env, NODE_TEST_CONTEXT: undefined, MAIL_MS: '20', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let log = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text) => {
      log += text
    })
  }
  const ended = once(child, 'close').then(([code, signal]) => signal ?? code)
  atEnd(t, async () => {
    child.kill('SIGTERM')
    await within('its end', ended)
  })
  // A terminal sends Ctrl-C to all processes of a group.
  return {
    log: () => log,
    kill: (signal) => child.kill(signal),
    ctrlC: () => process.kill(-child.pid, 'SIGINT'),
    ended,
  }
}

const threeServers = (cluster) => until('three servers', () => (cluster.log().match(/waits for/g) ?? []).length === 3)

const mailsIn = (folder) => {
  const path = join(folder, 'outbox.jsonl')
  if (!existsSync(path)) return []
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1)
  return lines.map((line) => JSON.parse(line))
}

/**
 * Asserts that each customer had one mail a day, except on at most `cutShort` days of a killed
 * server.
 */
function assertOnce(mails, cutShort = 0) {
  const days = [...new Set(mails.map(({ day }) => day))]
  const complete = days.filter((day) => {
    const own = mails.filter((mail) => mail.day === day)
    assert.equal(new Set(own.map(({ to }) => to)).size, own.length, `two mails of ${day}`)
    assert.equal(new Set(own.map(({ by }) => by)).size, 1, `two servers sent the mails of ${day}`)
    return own.length === CUSTOMERS
  })
  assert.ok(complete.length >= days.length - cutShort, JSON.stringify(mails, null, 1))
  const fences = mails.map(({ fence }) => fence)
  assert.deepEqual(
    fences,
    fences.toSorted((a, b) => a - b),
  )
}

describe('examples/nightly', { timeout: 120_000 }, () => {
  before(() => {
    if (!existsSync(join(EXAMPLE, 'node_modules'))) {
      execFileSync('npm', ['install', '--no-audit', '--no-fund'], { cwd: EXAMPLE, env: npmEnv(), stdio: 'inherit' })
    }
  })

  test('npm run dev starts three servers, one of them sends the mails, and all end in order', async (t) => {
    const folder = temporaryFolder(t)
    const env = { LEASEHOLD_URL: `sqlite:${join(folder, 'locks.db')}`, DATA_DIR: folder }
    const { scripts } = JSON.parse(readFileSync(join(EXAMPLE, 'package.json'), 'utf8'))
    const [, ...args] = scripts.dev.split(' ')
    const cluster = start(t, args, env)
    await threeServers(cluster)
    await until('the mails of a day', () => mailsIn(folder).length >= CUSTOMERS)
    cluster.kill('SIGTERM')
    assert.equal(await within('its end', cluster.ended), 0, cluster.log())
    assertOnce(mailsIn(folder))
    // A missed tick with a message means that the store failed. Without one, the server was late.
    assert.doesNotMatch(cluster.log(), /failed|missed \S+ \S|no second/)
  })

  describe('Ctrl-C', { skip: process.platform === 'win32' && 'Windows has no process groups' }, () => {
    /** Starts the cluster. When all servers run, awaits the first mail of a run. */
    async function sending(t, mailMs) {
      const folder = temporaryFolder(t)
      const store = `sqlite:${join(folder, 'locks.db')}`
      const env = { LEASEHOLD_URL: store, DATA_DIR: folder, MAIL_MS: String(mailMs), CRON: '* * * * * *' }
      const cluster = start(t, ['cluster.mjs'], env)
      await threeServers(cluster)
      await until('a first mail', () => mailsIn(folder).length % CUSTOMERS === 1)
      return { cluster, folder, store }
    }

    test('lets the running server send all mails and release its lock', async (t) => {
      const { cluster, folder, store } = await sending(t, 300)
      cluster.ctrlC()
      // npm passes Ctrl-C on to the cluster, which has got it from the terminal already.
      assert.equal(await Promise.race([cluster.ended, sleep(100)]), undefined, 'the mails are still being sent')
      cluster.kill('SIGINT')
      assert.equal(await within('its end', cluster.ended), 0, cluster.log())
      assertOnce(mailsIn(folder))
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      assert.equal(await locks.inspect('nightly-mail'), null)
    })

    test('a second one ends all servers at once, and the cluster reports it', async (t) => {
      const { cluster, folder } = await sending(t, 2_000)
      cluster.ctrlC()
      // A signal within 0.5 s counts as the same one.
      assert.equal(await Promise.race([cluster.ended, sleep(700)]), undefined, 'the mails are still being sent')
      cluster.ctrlC()
      assert.equal(await within('its end', cluster.ended, 1_000), 1, cluster.log())
      assert.equal(mailsIn(folder).length % CUSTOMERS, 1)
    })
  })

  test('on Redis, the others continue when a server is killed, and no customer gets two mails', async (t) => {
    const folder = temporaryFolder(t)
    const env = { REDIS_URL: (await startRedis(t)).url(), DATA_DIR: folder, CRON: '* * * * * *', MAIL_MS: '100' }
    const servers = new Map(
      ['anna', 'ben', 'cleo'].map((SERVER) => [SERVER, start(t, ['server.mjs'], { ...env, SERVER })]),
    )
    const [{ by }] = await until('a mail', () => {
      const mails = mailsIn(folder)
      return mails.length > 0 && mails
    })
    servers.get(by).kill('SIGKILL')
    const before = mailsIn(folder).length
    await until(
      'mails of others',
      () =>
        mailsIn(folder)
          .slice(before + CUSTOMERS)
          .some((mail) => mail.by !== by),
      60_000,
    )
    for (const [name, server] of servers) {
      server.kill('SIGTERM')
      assert.equal(await within('its end', server.ended), name === by ? 'SIGKILL' : 0, server.log())
    }
    assertOnce(mailsIn(folder), 1)
  })
})
