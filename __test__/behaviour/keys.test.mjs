// Unusual keys, and the secrecy of tokens, on every store.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { LockLostError, LockTimeoutError } from 'leasehold'
import { overStores } from '../support/stores.mjs'

const UNUSUAL = {
  unicode: '鍵-🔒-ключ',
  spaces: '  a key  with spaces ',
  lines: 'a\r\nDEL *\r\n',
  tabs: '\t\u0001\u001f',
  colons: 'a:b::c:',
  braces: 'user:{42}:cart',
  'an empty tag': '{}x',
  'an open brace': 'a{b',
  'closing first': '}a{',
  quotes: `'"\`;--`,
  percent: '%s%n%00',
  slashes: '../../etc/passwd\\',
  glob: '*?[a-z]',
  'the name of a side key': '{lock:x}:fence',
  numbers: '0',
  proto: '__proto__',
  'one character': 'k',
  '1024 bytes': 'k'.repeat(1_024),
  '1024 bytes of 4 each': '🔒'.repeat(256),
}

// Pairs of keys that a careless comparison would confuse.
const ALIKE = [
  ['a', 'A'],
  ['a', 'a '],
  ['é', 'e\u0301'],
  ['x', 'x:fence'],
  ['{x}', 'x'],
  ['1', '01'],
  ['k'.repeat(1_023), 'k'.repeat(1_024)],
]

overStores('keys', (store) => {
  for (const [name, key] of Object.entries(UNUSUAL)) {
    test(`a key with ${name} can be locked`, async (t) => {
      const prefix = `${store.key()}:`
      const [a, b] = [store.client(t, { prefix }), store.client(t, { prefix })]
      const lease = await a.acquire(key)
      assert.equal(lease.key, key)
      assert.equal(await b.tryAcquire(key), null)
      assert.equal((await b.inspect(key)).fence, lease.fence)
      await lease.renew()
      assert.equal(await lease.release(), true)
      const next = await b.tryAcquire(key)
      assert.ok(next.fence > lease.fence)
      await next.release()
    })
  }

  test('similar keys are different locks', async (t) => {
    const locks = store.client(t, { prefix: `${store.key()}:` })
    for (const pair of ALIKE) {
      const leases = await Promise.all(pair.map((key) => locks.tryAcquire(key)))
      assert.ok(leases.every(Boolean), inspect(pair))
      await Promise.all(leases.map((lease) => lease.release()))
    }
  })

  test('only the token property shows the token', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(store.key())
    const { token } = lease
    assert.equal(lease.token, token)
    const shown = [
      inspect(lease),
      inspect(lease, { showHidden: true, depth: 10, getters: false }),
      inspect(locks, { showHidden: true, depth: 10 }),
      JSON.stringify(lease),
      JSON.stringify(locks),
      JSON.stringify(Object.assign({}, lease)),
      String(lease),
      inspect(locks.stats()),
    ]
    for (const text of shown) assert.ok(!text?.includes(token), text)
    const error = await locks.acquire(lease.key, { wait: 0 }).catch((reason) => reason)
    assert.ok(error instanceof LockTimeoutError)
    assert.ok(!inspect(error).includes(token))
    await locks.close()
    assert.ok(lease.signal.reason instanceof LockLostError)
    assert.ok(!inspect(lease.signal.reason, { showHidden: true, depth: 10 }).includes(token))
  })

  test('util.inspect() of a lease shows its key and fence', async (t) => {
    const lease = await store.client(t).acquire(store.key())
    assert.ok(inspect(lease).includes(lease.key), inspect(lease))
    assert.ok(inspect(lease).includes(String(lease.fence)), inspect(lease))
  })
})
