// The advice of the guides about Redis works on a server: the user of docs/operations.md, and the
// script of docs/fencing.md.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { now, within } from '../support/clock.mjs'
import { pages } from '../support/docs/page.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'

const PASSWORD = 'a secret of the tests'
const blocks = pages().flatMap((page) => page.blocks)
const [, rules] = blocks.flatMap(({ text }) => /^user locks on >PASSWORD (.*)$/m.exec(text) ?? [])

async function serverWithUser(t, rules) {
  const server = await startRedis(t, { user: { name: 'locks', password: PASSWORD, rules } })
  return server.url(`locks:${encodeURIComponent(PASSWORD)}`)
}

function open(t, url, options) {
  const locks = createLockClient({ store: url, ...options })
  atEnd(t, () => locks.close())
  return locks
}

/** Returns the promise. Its rejection is handled even if the test fails before it awaits it. */
function deferred(promise) {
  promise.catch(() => {})
  return promise
}

/** Sends every kind of request. */
async function useAll(here, there) {
  const lease = await here.acquire('invoice:42', { ttl: 200 })
  const next = deferred(there.acquire('invoice:42'))
  await queued(here, 'invoice:42', next)
  await lease.release()
  const other = await next
  await other.renew()
  const adopted = await here.adopt(await other.detach())
  assert.ok(adopted.fence > lease.fence)
  assert.equal(await adopted.release(), true)

  const uploads = there.semaphore('uploads', 2)
  const held = await Promise.all([uploads.acquire(), uploads.acquire()])
  const third = deferred(uploads.acquire())
  await queued(here, 'uploads', third)
  for (const lease of held) await lease.release()
  await (await third).release()

  const config = here.readWriteLock('config')
  const reader = await config.read.acquire()
  const writer = deferred(config.write.acquire())
  await queued(there, 'config', writer)
  const late = deferred(there.readWriteLock('config').read.acquire())
  await reader.renew()
  await reader.release()
  await (await writer).release()
  await (await late).release()

  const controller = new AbortController()
  const blocker = await here.acquire('invoice:43')
  const given = deferred(there.acquire('invoice:43', { signal: controller.signal }))
  await queued(here, 'invoice:43', given)
  controller.abort()
  await assert.rejects(given, { code: 'ERR_LOCK_ABORTED' })
  await blocker.release()

  const many = await here.acquire(Array.from({ length: 20 }, (_, i) => `order:${i}`))
  await many.renew()
  assert.equal(await many.release(), true)
}

/**
 * Resolves when a client waits for `key`. Rejects if `pending`, the call that waits, rejects
 * before.
 */
function queued(locks, key, pending) {
  const poll = async () => {
    while (!(await locks.inspect(key))?.waiters.length) await new Promise((resolve) => setImmediate(resolve))
  }
  return within(`a waiter for ${key}`, Promise.race([poll(), pending]), 5_000)
}

describe('guides', { timeout: 60_000 }, () => {
  test('operations: the user of the guide may use every kind of lock, and gets notices', async (t) => {
    const url = await serverWithUser(t, rules)
    const [here, there] = [open(t, url), open(t, url, { handOffs: 0 })]
    await useAll(here, there)
    const codes = (await here.diagnose()).findings.map(({ code }) => code)
    assert.ok(!codes.includes('notices') && !codes.includes('denied'), codes.join())
  })

  test('operations: the user of the guide needs each of its permissions', async (t) => {
    const words = rules.split(' ')
    // The client uses EXISTS only if many leases end at once while a client waits. Without the
    // commands of notices, it polls more slowly.
    const optional = ['+exists', '+subscribe', '+publish', '+pubsub|numsub']
    const needed = words.filter((word) => word.startsWith('+') && !optional.includes(word))
    assert.ok(needed.length > 20)
    const server = await startRedis(t)
    const redis = await server.command()
    atEnd(t, () => redis.close())
    for (const [index, word] of needed.entries()) {
      const rest = words.filter((each) => each !== word)
      await redis('ACL', 'SETUSER', `user${index}`, 'on', '>secret', ...rest)
      const url = server.url(`user${index}:secret`)
      const [here, there] = [createLockClient(url), createLockClient({ store: url, handOffs: 0 })]
      const start = now()
      const error = await useAll(here, there).then(
        () => undefined,
        (error) => error,
      )
      await Promise.all([here.close(), there.close(), redis('FLUSHALL')])
      assert.equal(error?.reason, 'denied', `without ${word}, after ${now() - start} ms: ${error}`)
    }
  })

  test('operations: without the channels, locks work, and diagnose() has a finding', async (t) => {
    const url = await serverWithUser(t, rules.replace(' &leasehold:*', ''))
    const [here, there] = [open(t, url), open(t, url, { handOffs: 0 })]
    await useAll(here, there)
    const codes = (await here.diagnose()).findings.map(({ code }) => code)
    assert.ok(codes.includes('notices'), codes.join())
  })

  test('fencing: the script refuses a smaller fence, and accepts an equal one', async (t) => {
    const scripts = blocks.filter(({ language }) => language === 'lua')
    assert.equal(scripts.length, 1)
    const redis = await (await startRedis(t)).command()
    atEnd(t, () => redis.close())
    const write = (fence, value) => redis('EVAL', scripts[0].text, 1, 'report', fence, value)
    const writeAll = async () => [await write(2, 'b'), await write(2, 'c'), await write(1, 'a'), await write(3, 'd')]
    assert.deepEqual((await writeAll()).map(Number), [1, 1, 0, 1])
    assert.equal(String(await redis('HGET', 'report', 'value')), 'd')
  })
})
