// Passwords of URLs in the errors of users' code: no warning shows them.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { warningsOf } from '../support/warnings.mjs'

const SECRET = 'hunter2'

/** Returns the warning about work under a lock that fails with `thrown`. */
async function warningOf(t, thrown) {
  const warnings = warningsOf(t, 'LEASEHOLD_UNHEARD_ERROR')
  const locks = createLockClient('memory:thrown-secrets')
  atEnd(t, () => locks.close())
  locks.withLock('k', (_error, _lease, done) => done(thrown))
  await until('a warning', () => warnings.length > 0)
  return warnings[0]
}

/** Fails if the warning about an error with this text, or about the text itself, has the secret. */
async function assertHidden(t, text, shown) {
  for (const thrown of [new Error(text), text, { message: text }]) {
    const { message, detail } = await warningOf(t, thrown)
    for (const said of [message, detail]) assert.ok(!said.includes(SECRET), said)
    if (shown !== undefined) assert.ok(message.includes(shown), message)
  }
}

describe('thrown secrets', { timeout: 60_000 }, () => {
  for (const [what, text, shown] of [
    ['a login', `connect postgres://app:${SECRET}@db failed`, 'connect postgres://…@db failed'],
    ['the login of a scheme with _', `no cache_redis://:${SECRET}@h here`, 'no cache_redis://…@h here'],
    ['the login of a long scheme', `${'a'.repeat(40)}://u:${SECRET}@h`, 'a://…@h'],
    ['the login of a file: URL', `file://u:${SECRET}@h/x`, 'file://…@h/x'],
    ['a login of 1200 characters', `postgres://app:${SECRET}${'x'.repeat(1_200)}@db now`, 'postgres://…@db now'],
    ['a password with a blank', `connect redis://:correct ${SECRET}@h now`, 'connect redis://…@h now'],
    ['a password with blanks, a user and an @', `redis://u:one 2 ${SECRET}@${SECRET}@h now`, 'redis://…@h now'],
    ['a password of digits and a blank', `redis://:6379 ${SECRET}@h now`, 'redis://…@h now'],
    ...['access_token', 'client_secret', 'api_key', 'apiKey', 'sig', 'x_password', 'X-Amz-Signature', 'key'].map(
      (name) => [
        `the value of ${name}`,
        `GET https://h/?a=1&${name}=${SECRET} 500`,
        `GET https://h/?a=1&${name}=… 500`,
      ],
    ),
    ['a token behind a #', `at https://h/#access_token=${SECRET}&a=1`, 'https://h/#access_token=…&a=1'],
    [
      'a token behind a # and a query',
      `at https://h/?state=1#access_token=${SECRET} now`,
      '?state=1#access_token=… now',
    ],
    ['a token behind a ; and a query', `at https://h/?a=1;access_token=${SECRET}`, '?a=1;access_token=…'],
    [
      'a token of a URL in a query',
      `at https://h/?next=https://i/?token=${SECRET}&a=1`,
      '?next=https://i/?token=…&a=1',
    ],
    ['a password in brackets', `at https://h/?user[password]=${SECRET}`, '?user[password]=…'],
    ['two tokens', `at https://h/?token=${SECRET}&sig=${SECRET}`, '?token=…&sig=…'],
    ['a password behind a ;', `jdbc:sqlserver://h;password=${SECRET}`, 'jdbc:sqlserver://h;password=…'],
  ]) {
    test(`a warning hides ${what}`, (t) => assertHidden(t, text, shown))
  }

  test('a warning shows other texts as they are', async (t) => {
    for (const text of [
      'see https://example.com:8080/docs?page=2&design=new or ask ops@example.com',
      'connect redis://localhost:6379 failed: ask ops@example.com',
      'at file:///app/node_modules/@scope/main.js:1:2',
    ]) {
      const { message } = await warningOf(t, new Error(text))
      assert.ok(message.includes(text), message)
    }
  })

  test('a warning hides a login at the place where a long text is cut', async (t) => {
    const most = 20_000
    for (const login of [`redis://:${SECRET}`, `redis://:correct ${SECRET}`, `https://h?token=${SECRET}`]) {
      // The first logins become short, so the last one is in view.
      const before = `redis://:${'y'.repeat(most - login.length - 14)}@h `
      await assertHidden(t, `${before}${login}${'z'.repeat(100)}@h`, 'redis://…@h ')
    }
  })

  test('a warning about hostile text hides its login', async (t) => {
    for (const part of ['redis://', '://:', '@', '://a:b @', '?token', 'redis://:a ']) {
      for (const end of ['', '@', '=']) {
        await assertHidden(t, `redis://:${SECRET}@h ${part.repeat(1_000_000 / part.length)}${end}`)
      }
    }
  })
})
