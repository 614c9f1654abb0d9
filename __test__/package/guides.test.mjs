// What the guides tell to do at a Redis server is done at one: the user of docs/operations.md, the script of docs/fencing.md.

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

/** A promise that is awaited later, if all goes well until then. */
function asked(promise) {
  promise.catch(() => {})
  return promise
}

/** Every kind of request that there is. */
async function useAll(here, there) {
  const lease = await here.acquire('invoice:42', { ttl: 200 })
  const next = asked(there.acquire('invoice:42'))
  await queued(here, 'invoice:42', next)
  await lease.release()
  const other = await next
  await other.renew()
  const adopted = await here.adopt(await other.detach())
  assert.ok(adopted.fence > lease.fence)
  assert.equal(await adopted.release(), true)

  const uploads = there.semaphore('uploads', 2)
  const held = await Promise.all([uploads.acquire(), uploads.acquire()])
  const third = asked(uploads.acquire())
  await queued(here, 'uploads', third)
  for (const one of held) await one.release()
  await (await third).release()

  const config = here.readWriteLock('config')
  const reader = await config.read.acquire()
  const writer = asked(config.write.acquire())
  await queued(there, 'config', writer)
  const late = asked(there.readWriteLock('config').read.acquire())
  await reader.renew()
  await reader.release()
  await (await writer).release()
  await (await late).release()

  const controller = new AbortController()
  const blocker = await here.acquire('invoice:43')
  const given = asked(there.acquire('invoice:43', { signal: controller.signal }))
  await queued(here, 'invoice:43', given)
  controller.abort()
  await assert.rejects(given, { code: 'ERR_LOCK_ABORTED' })
  await blocker.release()

  const many = await here.acquire(Array.from({ length: 20 }, (_, i) => `order:${i}`))
  await many.renew()
  assert.equal(await many.release(), true)
}

/** When somebody is in line for `key`, as `pending` asked to be. What that rejects with meanwhile comes out. */
function queued(locks, key, pending) {
  const poll = async () => {
    while (!(await locks.inspect(key))?.waiters.length) await new Promise((resolve) => setImmediate(resolve))
  }
  return within(`somebody to wait for ${key}`, Promise.race([poll(), pending]), 5_000)
}

describe('guides', { timeout: 60_000 }, () => {
  test('operations: the user that is told suffices for every kind of lock, and is told of free ones', async (t) => {
    const url = await serverWithUser(t, rules)
    const [here, there] = [open(t, url), open(t, url, { handOffs: 0 })]
    await useAll(here, there)
    const codes = (await here.diagnose()).findings.map(({ code }) => code)
    assert.ok(!codes.includes('notices') && !codes.includes('denied'), codes.join())
  })

  test('operations: nothing of that may be left out', async (t) => {
    const words = rules.split(' ')
    // EXISTS is asked for only when many leases end at once while somebody waits; without those of the notices it goes on, slower.
    const spared = ['+exists', '+subscribe', '+publish', '+pubsub|numsub']
    const needed = words.filter((word) => word.startsWith('+') && !spared.includes(word))
    assert.ok(needed.length > 20)
    const server = await startRedis(t)
    const control = await server.command()
    atEnd(t, () => control.close())
    for (const [index, word] of needed.entries()) {
      const rest = words.filter((each) => each !== word)
      await control('ACL', 'SETUSER', `user${index}`, 'on', '>secret', ...rest)
      const url = server.url(`user${index}:secret`)
      const [here, there] = [createLockClient(url), createLockClient({ store: url, handOffs: 0 })]
      const start = now()
      const error = await useAll(here, there).then(
        () => undefined,
        (error) => error,
      )
      await Promise.all([here.close(), there.close(), control('FLUSHALL')])
      assert.equal(error?.reason, 'denied', `without ${word}, after ${now() - start} ms: ${error}`)
    }
  })

  test('operations: without the channels it works, and diagnose() says what that costs', async (t) => {
    const url = await serverWithUser(t, rules.replace(' &leasehold:*', ''))
    const [here, there] = [open(t, url), open(t, url, { handOffs: 0 })]
    await useAll(here, there)
    const codes = (await here.diagnose()).findings.map(({ code }) => code)
    assert.ok(codes.includes('notices'), codes.join())
  })

  test('fencing: the script refuses a smaller fence than it has seen, and takes an equal one', async (t) => {
    const scripts = blocks.filter(({ language }) => language === 'lua')
    assert.equal(scripts.length, 1)
    const redis = await (await startRedis(t)).command()
    atEnd(t, () => redis.close())
    const write = (fence, value) => redis('EVAL', scripts[0].text, 1, 'report', fence, value)
    const written = async () => [await write(2, 'b'), await write(2, 'c'), await write(1, 'a'), await write(3, 'd')]
    assert.deepEqual((await written()).map(Number), [1, 1, 0, 1])
    assert.equal(String(await redis('HGET', 'report', 'value')), 'd')
  })
})
