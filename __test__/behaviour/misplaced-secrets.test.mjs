// URLs with a password in the place of a name: no message shows the password.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { inspect } from 'node:util'
import { createLockClient } from 'leasehold'
import { collect } from 'leasehold/prometheus'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { noop } from '../support/refusals.mjs'
import { warningsOf } from '../support/warnings.mjs'

const SECRET = 'hunter2'
const URLS = [
  `redis://:${SECRET}@host:6379`,
  ` redis://app:${SECRET}@host`,
  `nightly at rediss://${SECRET}@host/0`,
  // Passwords that are not encoded.
  `redis://:a/${SECRET}@host`,
  `redis-sentinel://:a?${SECRET}#b@host/main`,
  `redis://:a@${SECRET}@host`,
  // The login is longer than what messages show of a name.
  `redis://${'x'.repeat(60)}:${SECRET}${'x'.repeat(60)}@host`,
]
/** URLs of other servers, or with a secret in the query. */
const OTHER_URLS = [
  `keydb://:a/${SECRET}@host`,
  `keydb://:a@${SECRET}/${SECRET}@host`,
  `cache_redis://:a/${SECRET}@host`,
  `http://app:a/${SECRET}@host`,
  `redis://host?password=${SECRET}`,
  `https://host/?a=1&access_token=a ${SECRET}`,
  `jdbc:sqlserver://host;password=${SECRET}`,
  `https://host/?state=1#access_token=${SECRET}`,
  `https://host/?next=https://host/?access_token=a ${SECRET}`,
  `https://host/?user[password]=${SECRET}`,
]

function open(t) {
  const locks = createLockClient('memory:misplaced-secrets')
  atEnd(t, () => locks.close())
  return locks
}

/** Fails if the error shows the password, in its message, its stack or its cause. */
function assertHidden(error) {
  const shown = `${error.message}\n${inspect(error)}`
  assert.ok(!shown.includes(SECRET), shown)
}

/** Returns what `call` throws. */
function thrown(call) {
  try {
    call()
  } catch (error) {
    return error
  }
  return assert.fail(`${call} threw nothing`)
}

describe('misplaced secrets', { timeout: 60_000 }, () => {
  test('a time zone that may be a secret is not shown', (t) => {
    const locks = open(t)
    for (const timeZone of [
      ...URLS,
      `app:${SECRET}@host`,
      `redis%3A%2F%2F:${SECRET}%40host`,
      `redis%3A%2F%2Fhost`,
      `-----BEGIN PRIVATE KEY-----\n${SECRET}`,
    ]) {
      const error = thrown(() => locks.schedule('n', '@daily', noop, { timeZone }))
      assert.equal(error.code, 'ERR_INVALID_ARG_VALUE')
      assert.match(error.message, /"timeZone" option.* Received a text that is not shown, because it may contain a pa/)
      assertHidden(error)
    }
  })

  test('an error of a schedule shows no login in its name', (t) => {
    const locks = open(t)
    for (const url of URLS) {
      assertHidden(thrown(() => locks.schedule(url, '0 3', noop)))
      locks.schedule(url, '@daily', noop, { unref: true })
      const error = thrown(() => locks.schedule(url, '@daily', noop))
      assert.match(error.message, /This client has a schedule ".*…@.*already/)
      assertHidden(error)
    }
  })

  test('an error of a schedule shows no secret in its pattern', (t) => {
    const locks = open(t)
    for (const pattern of [...URLS, `0 3 * * ${SECRET}@host`, `0 3 * ${SECRET}@host *`]) {
      assertHidden(thrown(() => locks.schedule('n', pattern, noop)))
    }
    assert.match(
      thrown(() => locks.schedule('n', '0 25 * * *', noop)).message,
      /hour: 25/,
      'other patterns are explained',
    )
  })

  test('the warning of a failed job shows no login in the name of its schedule', async (t) => {
    const warnings = warningsOf(t, 'LEASEHOLD_UNHEARD_ERROR')
    open(t).schedule(`redis://:${SECRET}@host`, '* * * * * *', () => {
      throw new Error('a mistake')
    })
    await until('a warning', () => warnings.length > 0)
    assert.match(warnings[0].message, /schedule "redis:\/\/…@host" has no/)
    assertHidden(warnings[0])
  })

  test('a message shows no login in a key, and `key` has the whole key', async (t) => {
    const locks = open(t)
    for (const key of [...URLS, ...OTHER_URLS]) {
      const lease = await locks.acquire(key)
      await assert.rejects(locks.acquire(key, { wait: 0 }), (error) => {
        assert.ok(!error.message.includes(SECRET), error.message)
        assert.equal(error.key, key)
        return true
      })
      await lease.release()
    }
  })

  test('a message shows no login in an id of once()', async (t) => {
    const locks = open(t)
    for (const id of [...URLS, ...OTHER_URLS, `https://app:${SECRET}@host/hook`]) {
      let release
      const first = locks.once('task', id, () => new Promise((resolve) => (release = resolve)))
      await until('the work to begin', () => release !== undefined)
      const controller = new AbortController()
      const aborted = locks.once('task', id, noop, { signal: controller.signal })
      controller.abort()
      await assert.rejects(aborted, ({ code, message }) => {
        assert.equal(code, 'ERR_LOCK_ABORTED')
        assert.ok(message.includes('"task@once:') && !message.includes(SECRET), message)
        return true
      })
      release()
      await first
    }
  })

  test('a message shows a key without a login as it is', async (t) => {
    const locks = open(t)
    for (const key of [
      'https://example.com/@user',
      'https://example.com:8080/@user',
      'https://[::1]:80/@user',
      'user@example.com',
      'https://host/a?b=c@d&author=me&keyword=x',
      'redis://host/0',
    ]) {
      await locks.acquire(key)
      await assert.rejects(locks.acquire(key, { wait: 0 }), ({ message }) => message.includes(`"${key}"`))
    }
  })

  test('an error of collect() shows no prefix and no name of a label that may be a secret', (t) => {
    const locks = open(t)
    for (const url of URLS) {
      assertHidden(thrown(() => collect(locks, { prefix: url })))
      assertHidden(thrown(() => collect(locks, { labels: { [url]: 'x' } })))
    }
    assert.match(thrown(() => collect(locks, { prefix: 'a-b' })).message, /"a-b"$/)
  })

  test('a memory: or sqlite: store with the URL of a server as its name is refused', () => {
    for (const url of [
      ...URLS,
      `redis:/:${SECRET}@host`,
      `redis::${SECRET}@host`,
      `redis:\\\\:${SECRET}@host`,
      `redis:%2F%2F:${SECRET}@host`,
      `redis://:${SECRET}%40host`,
      `redis%3A%2F%2F:${SECRET}%40host`,
      `redis%3a%2f%2fapp%3a${SECRET}%40host`,
      `redis://host?password=${SECRET}`,
      `app:${SECRET}@host:6379`,
    ]) {
      for (const scheme of ['memory', 'sqlite']) {
        const error = thrown(() => createLockClient(`${scheme}:${url}`))
        assert.equal(error.code, 'ERR_INVALID_ARG_VALUE')
        assertHidden(error)
      }
    }
  })

  test('a memory: or sqlite: store may have an @ in its name', async () => {
    const stores = [
      'memory:ann@example.com',
      'memory:a%40b:c',
      'memory:http://host',
      'sqlite:/tmp/a@b.db',
      'sqlite:/tmp/12:30/a@b.db',
      'sqlite:C:\\Users\\a@b\\x.db',
    ]
    for (const store of stores) await createLockClient(store).close()
  })
})
